//! A process that dies in the middle of bulk transfers. The process is this test program, which
//! runs the ignored test at the end of this file.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use nlx::{Descriptor, Domain, Event, NodeConfig, Offer, Op, OpId, Queue, TmOptions, TransferMachine};

const PORT: u16 = 21_799;
const OURS: &str = "127.61.9.1";
const THEIRS: &str = "127.61.9.2";
const BULK: usize = 1 << 20;
/// The number of offers in each direction.
const OFFERS: usize = 24;

/// A wait that takes longer is considered hung.
const HUNG: Option<Duration> = Some(Duration::from_secs(60));

fn node(address: &str) -> (Domain, TransferMachine) {
    let config = NodeConfig::new().net(&format!("tcp({address})")).unwrap().accept_port(PORT);
    // The longest wait for a dead node.
    let domain = Domain::in_process(&config.transaction_timeout(Duration::from_secs(4))).unwrap();
    let tm = domain.transfer_machine(&format!("{address}@tcp:12345:31:1"), TmOptions::default()).unwrap();
    (domain, tm)
}

fn byte_of(number: usize) -> u8 {
    number as u8 + 1
}

/// The other process, and its offers: buffers to read, and buffers to write.
struct Peer {
    child: Child,
    sends: Vec<Descriptor>,
    receives: Vec<Descriptor>,
}

impl Peer {
    fn start() -> Peer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dying::peer", "--ignored", "--nocapture", "--test-threads=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let offer = |line: String| Some(descriptor(line.split_once("offers ")?.1));
        let mut offers = lines.filter_map(offer).take(2 * OFFERS).collect::<Vec<_>>();
        let receives = offers.split_off(OFFERS);
        Peer { child, sends: offers, receives }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Stops the process with a signal, and waits until it has stopped.
    fn stand_still(&self) {
        self.signal(Signal::SIGSTOP);
        let pid = Pid::from_raw(self.child.id() as i32);
        let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn descriptor(text: &str) -> Descriptor {
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap());
    Descriptor::from_bytes(&bytes.collect::<Vec<_>>()).unwrap()
}

/// Each operation with it ends once, with success or an error; data that was read with success is
/// correct; and its successor can be reached.
// Covers: MT-241
#[test]
fn a_process_that_dies_in_the_middle_of_bulk_ends_it() {
    let (domain, tm) = node(OURS);
    let peer = Peer::start();
    let mut ops: HashMap<OpId, usize> = HashMap::new();
    let start = |number: usize| {
        let (sends, receives) = (&peer.sends[number], &peer.receives[number]);
        let read =
            tm.start(Op::active_receive(domain.allocate(BULK).unwrap(), sends).timeout(HUNG)).unwrap().op;
        let written =
            tm.start(Op::active_send(domain.allocate(BULK).unwrap(), receives).timeout(HUNG)).unwrap().op;
        [(read, number), (written, number)]
    };
    // First the connections are opened. Then the process is stopped while operations fill the space
    // between the two, and killed.
    ops.extend(start(0));
    for _ in 0..2 {
        let event = tm.wait(HUNG).unwrap().expect("it hangs");
        assert_eq!(event.status, Ok(()));
        check(event, 0);
    }
    ops.clear();
    peer.stand_still();
    (1..OFFERS).for_each(|number| ops.extend(start(number)));
    // An offer to the process that it will not use.
    let offered = tm.start(Op::passive_receive(domain.allocate(64).unwrap())).unwrap().op;

    peer.signal(Signal::SIGKILL);
    let mut failed = 0;
    while !ops.is_empty() {
        let event = tm.wait(HUNG).unwrap().expect("it hangs");
        let number = ops.remove(&event.op).expect("each ends once");
        assert!(event.status.is_err() || event.queue == Queue::ActiveBulkSend, "{event:?}");
        failed += usize::from(event.status.is_err());
        check(event, number);
    }
    // More than fit between the two.
    assert!(failed > OFFERS, "{failed} have failed");
    assert_eq!(tm.in_flight(), 1);
    assert!(tm.cancel(offered));
    assert_eq!(tm.wait(HUNG).unwrap().map(|event| event.op), Some(offered));
    drop(peer);

    let successor = Peer::start();
    // For a moment the connection may still be recorded as broken.
    loop {
        tm.start(Op::active_receive(domain.allocate(BULK).unwrap(), successor.sends[0]).timeout(HUNG))
            .unwrap();
        let event = tm.wait(HUNG).unwrap().expect("it hangs");
        let is_there = event.status.is_ok();
        check(event, 0);
        if is_there {
            break;
        }
    }
}

/// Checks that the buffer can be used again, and that data read with success is the offered data.
fn check(event: Event, number: usize) {
    let is_read = event.queue == Queue::ActiveBulkReceive;
    let mut buffer = event.buffer.expect("it was the last event");
    match event.status {
        Ok(()) => {
            assert_eq!(event.length, BULK);
            assert!(!is_read || buffer.read().unwrap().iter().all(|&byte| byte == byte_of(number)));
        }
        Err(_) => assert_eq!(event.length, 0),
    }
    buffer.write().unwrap().fill(0xff);
}

#[test]
#[ignore = "the other process of the test above"]
fn peer() {
    let (domain, tm) = node(THEIRS);
    let print = |offer: Offer| {
        let hex: String = offer.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        println!("offers {hex}");
    };
    for number in 0..OFFERS {
        let mut buffer = domain.allocate(BULK).unwrap();
        buffer.write().unwrap().fill(byte_of(number));
        print(tm.start(Op::passive_send(buffer).length(BULK)).unwrap().offer);
    }
    for _ in 0..OFFERS {
        print(tm.start(Op::passive_receive(domain.allocate(BULK).unwrap())).unwrap().offer);
    }
    // Runs until it is killed.
    loop {
        let _ = tm.wait(None).unwrap();
    }
}
