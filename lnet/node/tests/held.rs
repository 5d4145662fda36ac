//! A program that holds messages, and one that is stopped: TCP cannot distinguish them; the system
//! answers and the window stays closed. In real time, with timeouts of a second. The other program
//! is this test program again, started with the ignored test at the end of this file.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lnet_api::{AckRequest, EqHandle, Errno, EventKind, LNet, Md, MdOptions, MeSpec, Put, Threshold, Unlink};
use lnet_nid::{MatchBits, Portal, ProcessId};
use lnet_node::{Node, NodeConfig};
use lnet_region::{IoVec, Region};
use lnet_socklnd::HeldLimits;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nlx_testkit::{TIME_LIMIT, until};

const PORT: u16 = 21_979;
const TIMEOUT_S: u32 = 1;
/// The lines by which the other program and this one take turns.
const READY: &str = "holds everything";
const HAS_IT: &str = "has it";

/// The length of the first message, which fits into the sockets; the others fit only in part.
const FIRST: usize = 5000;
const BEHIND: usize = 8;
const LENGTH: usize = 1 << 20;

/// The number of signs of life to wait for: the other program sends sixteen in a timeout, so this
/// takes eight timeouts.
const SIGNS: u64 = 128;

struct Side {
    node: Node,
    lnet: Arc<dyn LNet>,
    eq: EqHandle,
}

impl Side {
    fn start(address: &str) -> Side {
        let mut config = NodeConfig::new().net(&format!("tcp({address})")).unwrap().accept_port(PORT);
        config.tcp().timeout_s = TIMEOUT_S;
        // Without memory for them, held messages stay on their connection.
        config.tcp().held = HeldLimits { peer_kb: 0, ..HeldLimits::default() };
        let node = Node::start(&config).unwrap();
        let lnet = node.lnet();
        let eq = lnet.eq_alloc_polled(1024, None).unwrap();
        Side { node, lnet, eq }
    }

    fn md(&self, length: usize, options: MdOptions) -> Md {
        let memory = IoVec::whole(Region::heap(length).unwrap());
        Md { memory, threshold: Threshold::Limited(1), max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    fn put(&self, to: &str, length: usize, bits: u64) {
        let target = ProcessId::lnet(format!("{to}@tcp").parse().unwrap());
        let md = self.lnet.md_bind(self.md(length, MdOptions::empty()), Unlink::Auto).unwrap();
        let (portal, match_bits) = (portal(), MatchBits(bits));
        let ack = AckRequest::NoAck;
        let put = Put { source: None, md, ack, target, portal, match_bits, offset: 0, hdr_data: 0 };
        self.lnet.put(&put).unwrap();
    }

    fn post(&self, length: usize, bits: u64) {
        let me = MeSpec::new(portal(), MatchBits(bits));
        let me = self.lnet.me_attach(&me).unwrap();
        self.lnet.md_attach(me, self.md(length, MdOptions::OP_PUT), Unlink::Auto).unwrap();
    }

    /// Returns the result of the next event of this kind.
    fn result(&self, kind: EventKind) -> Result<(), Errno> {
        loop {
            let event = self.node.eq_poll(&[self.eq], Some(TIME_LIMIT)).unwrap().expect("it hangs").event;
            if event.kind == kind {
                return event.status;
            }
        }
    }

    fn drive_until(&self, happens: impl Fn(&Node) -> bool) {
        until("the node gets there", || {
            let _ = self.node.eq_poll(&[self.eq], Some(Duration::from_millis(1))).unwrap();
            happens(&self.node)
        });
    }
}

fn portal() -> Portal {
    Portal::new(42).unwrap()
}

/// The other program, which is killed when this is dropped.
struct Holder {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Holder {
    fn start(address: &str) -> Holder {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holder", "--ignored", "--nocapture", "--test-threads=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{address}").unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Holder { child, stdin, stdout };
        holder.await_word(READY);
        holder
    }

    /// Waits for a line that contains the word: the test harness prints its own output, perhaps on
    /// the same line.
    fn await_word(&mut self, word: &str) {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it has ended");
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a node and a peer that holds its first message; sends more behind it than can leave, and
/// drives the node for several timeouts.
fn scene(number: u8) -> (Side, Holder) {
    let [own, other] = [1, 2].map(|host| format!("127.46.{number}.{host}"));
    let (side, holder) = (Side::start(&own), Holder::start(&other));
    side.put(&other, FIRST, 1);
    assert_eq!(side.result(EventKind::Send), Ok(()));
    (2..).take(BEHIND).for_each(|bits| side.put(&other, LENGTH, bits));
    side.drive_until(|node| node.tcp().counters().rx.noops >= SIGNS);
    assert_eq!(side.node.tcp().counters().rx.peers_lost, 0, "{:?}", side.node.tcp().counters());
    (side, holder)
}

/// A held message that was reported as sent is not lost, at any number of messages behind it and
/// after any time.
// Covers: S-109, S-310
#[test]
fn a_held_message_outlasts_all_timeouts_of_tcp() {
    let (side, mut holder) = scene(1);
    writeln!(holder.stdin, "post").unwrap();
    holder.await_word(HAS_IT);
    assert_eq!(side.node.tcp().counters().rx.peers_lost, 0);
}

/// The connection to a stopped program is closed after the timeout, though the program's system
/// answers for it.
// Covers: S-109
#[test]
fn a_stopped_program_is_given_up() {
    let (side, holder) = scene(2);
    holder.signal(Signal::SIGSTOP);
    side.drive_until(|node| node.tcp().counters().rx.peers_lost == 1);
    let reason = side.node.tcp().counters().rx;
    assert_eq!((reason.timeouts, reason.protocol_errors), (1, 0));
}

/// The connection to a killed program is closed without waiting for the timeout.
// Covers: S-109
#[test]
fn a_killed_program_is_given_up() {
    let (side, holder) = scene(3);
    holder.signal(Signal::SIGKILL);
    side.drive_until(|node| node.tcp().counters().rx.peers_lost == 1);
    assert_eq!(side.node.tcp().counters().rx.timeouts, 0);
}

#[test]
#[ignore = "the other program of the tests above"]
fn holder() {
    let mut lines = std::io::stdin().lines();
    let Some(Ok(address)) = lines.next() else { return };
    let side = Side::start(&address);
    side.lnet.set_lazy(portal(), true);
    println!("{READY}");
    // The program runs until it gets a line or the starting program is gone; the scheduler threads
    // drive the node.
    if lines.next().is_some() {
        side.post(FIRST, 1);
        assert_eq!(side.result(EventKind::Put), Ok(()));
        println!("{HAS_IT}");
        let _ = lines.next();
    }
}
