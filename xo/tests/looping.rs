//! Transfer machines in a program's event loop: no event is missed, whichever thread drives the
//! network (S-412).
#![cfg(feature = "in-process")]
// A helper that fails ends the test that called it.
#![allow(clippy::unwrap_used)]

#[path = "support/helper.rs"]
mod helper;

use std::sync::mpsc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nlx::{Domain, Errno, Error, Event, NodeConfig, Op, Queue, Quotas, Stop, TmOptions, TransferMachine};

/// A test that waits longer, in milliseconds, is considered hung.
const HUNG_MS: u16 = 60_000;

fn loopback() -> Domain {
    helper::domain(module_path!(), &NodeConfig::new())
}

fn node(address: &str) -> Domain {
    let text = format!("options lnet networks=tcp({address}) accept_port=21313");
    helper::domain(module_path!(), &NodeConfig::from_text(&text).unwrap())
}

fn machine(domain: &Domain) -> TransferMachine {
    let nid = domain.nids()[0];
    domain.transfer_machine(&format!("{nid}:12345:31:*"), TmOptions::default()).unwrap()
}

fn post(domain: &Domain, tm: &TransferMachine, timeout: Option<Duration>) {
    tm.start(Op::receive(domain.allocate(64).unwrap()).timeout(timeout)).unwrap();
}

fn send(domain: &Domain, from: &TransferMachine, to: &TransferMachine, bytes: &[u8]) {
    let to = from.end_point(&to.address().to_string()).unwrap();
    from.start(Op::send(domain.buffer_of(bytes).unwrap(), &to)).unwrap();
}

/// Returns the next event, from a loop over one descriptor.
fn next(tm: &TransferMachine) -> Result<Event, Error> {
    loop {
        if let Some(event) = tm.poll()? {
            return Ok(event);
        }
        if tm.arm()? {
            let mut set = [PollFd::new(tm.descriptor()?, PollFlags::POLLIN)];
            assert_eq!(poll(&mut set, PollTimeout::from(HUNG_MS)), Ok(1), "nothing comes any more");
        }
    }
}

/// Returns the next message; sends that end before it have succeeded.
fn message(tm: &TransferMachine) -> Vec<u8> {
    loop {
        let event = next(tm).unwrap();
        assert_eq!(event.status, Ok(()));
        if let Some(message) = event.message {
            return message.to_vec();
        }
    }
}

#[test]
fn two_nodes_in_one_loop() {
    let nodes = [node("127.0.0.25"), node("127.0.0.26")];
    let tms = [machine(&nodes[0]), machine(&nodes[1])];
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    for (at, tm) in tms.iter().enumerate() {
        epoll.add(tm.descriptor().unwrap(), EpollEvent::new(EpollFlags::EPOLLIN, at as u64)).unwrap();
        post(&nodes[at], tm, None);
    }
    send(&nodes[0], &tms[0], &tms[1], &[0; 8]);
    let mut count = 0u64;
    while count < 500 {
        let mut idle = true;
        for (at, tm) in tms.iter().enumerate() {
            while let Some(event) = tm.poll().unwrap() {
                assert_eq!(event.status, Ok(()));
                let Some(message) = event.message else { continue };
                assert_eq!(message[..], count.to_le_bytes());
                count += 1;
                post(&nodes[at], tm, None);
                send(&nodes[at], tm, &tms[1 - at], &count.to_le_bytes());
            }
            idle &= tm.arm().unwrap();
        }
        if idle {
            let mut ready = [EpollEvent::empty(); 2];
            assert_ne!(epoll.wait(&mut ready, EpollTimeout::from(HUNG_MS)), Ok(0), "nothing comes any more");
        }
    }
}

#[test]
fn a_timeout_makes_the_descriptor_readable() {
    let domain = loopback();
    let tm = machine(&domain);
    post(&domain, &tm, Some(Duration::from_secs(3600)));
    assert!(tm.arm().unwrap());
    // The loop sleeps until the later deadline, and has not read this one.
    let start = || post(&domain, &tm, Some(Duration::from_millis(5)));
    std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    let mut set = [PollFd::new(tm.descriptor().unwrap(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut set, PollTimeout::from(HUNG_MS)), Ok(1));
    let event = next(&tm).unwrap();
    assert_eq!((event.queue, event.status), (Queue::MessageReceive, Err(Errno::ETIMEDOUT)));
    assert_eq!(tm.in_flight(), 1);
}

#[test]
fn another_thread_drives() {
    let nodes = [node("127.0.0.27"), node("127.0.0.28")];
    let [looped, waited, peer] = [machine(&nodes[0]), machine(&nodes[0]), machine(&nodes[1])];
    let rounds = 200u64;
    // Posted before the first message can arrive, because a message without a buffer is lost.
    for _ in 0..rounds {
        post(&nodes[0], &looped, None);
        post(&nodes[1], &peer, None);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                post(&nodes[0], &waited, None);
                send(&nodes[0], &waited, &peer, &round.to_le_bytes());
                // Waits for its answer, and meanwhile drives the loop's messages.
                while waited.wait(None).unwrap().is_none_or(|event| event.message.is_none()) {}
            }
        });
        scope.spawn(|| {
            for _ in 0..rounds {
                let event = loop {
                    let event = peer.wait(None).unwrap().unwrap();
                    if event.message.is_some() {
                        break event;
                    }
                };
                let bytes = event.message.unwrap();
                let answer = nodes[1].buffer_of(&bytes).unwrap();
                peer.start(Op::send(answer, &event.sender.unwrap()).length(bytes.len())).unwrap();
                send(&nodes[1], &peer, &looped, &bytes);
            }
        });
        for round in 0..rounds {
            assert_eq!(message(&looped), round.to_le_bytes());
        }
    });
}

#[test]
fn a_stop_elsewhere_ends_the_loop() {
    let domain = loopback();
    let tm = machine(&domain);
    post(&domain, &tm, None);
    let (tx, rx) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let event = next(&tm).unwrap();
            tx.send((event.status, next(&tm).err())).unwrap();
        });
        tm.stop(Stop::Abort, None).unwrap();
    });
    let (status, error) = rx.recv().unwrap();
    assert_eq!((status, error.map(|error| error.errno())), (Err(Errno::ECANCELED), Some(Errno::ESHUTDOWN)));
    assert!(!tm.arm().unwrap(), "a poll would tell of the end");
}

#[test]
fn a_machine_with_callbacks_has_no_descriptor() {
    let tm = loopback().machine().callbacks(|_, _| {}).start("0@lo:12345:31:*").unwrap();
    assert_eq!(tm.descriptor().err(), Some(Error::Delivery));
    assert_eq!(tm.arm().err(), Some(Error::Delivery));
}

#[test]
fn a_domain_gives_out_no_more_than_its_quotas() {
    let domain = loopback();
    domain.set_quotas(&Quotas::default().buffers(3).machines(1).operations(2).end_points(2));
    let quota = |error: Option<Error>, object, limit| assert_eq!(error, Some(Error::Quota { object, limit }));
    let tm = machine(&domain);
    quota(domain.transfer_machine("0@lo:12345:31:*", TmOptions::default()).err(), "transfer machines", 1);
    post(&domain, &tm, None);
    post(&domain, &tm, None);
    let third = domain.allocate(64).unwrap();
    quota(domain.allocate(64).err(), "registered buffers", 3);
    let back = tm.start(Op::receive(third)).unwrap_err();
    quota(Some(back.error), "operations in flight at the transfer machine", 2);
    let peer = tm.end_point("0@lo:12345:31:1").unwrap();
    quota(tm.end_point("0@lo:12345:31:2").err(), "end points in use at the transfer machine", 2);
    assert_eq!(tm.end_point("0@lo:12345:31:1").unwrap(), peer, "it is there already");
    drop((peer, back.buffer));
    tm.end_point("0@lo:12345:31:2").unwrap();
    domain.allocate(64).unwrap();
    drop(tm);
    machine(&domain);
}

#[test]
fn bytes_of_the_program_are_a_buffer() {
    let domain = loopback();
    let tm = machine(&domain);
    let mut large = vec![7u8; (1 << 20) + 3];
    large[0] = 1;
    assert_eq!(domain.adopt_copying(large).unwrap().read().unwrap()[..3], [1, 7, 7]);
    post(&domain, &tm, None);
    let bytes: Box<[u8]> = (*b"hello").into();
    tm.start(Op::send(domain.adopt_copying(bytes).unwrap(), tm.own_end_point()).length(5)).unwrap();
    assert_eq!(message(&tm), b"hello");
    assert_eq!(domain.adopt_copying(Vec::new()).unwrap_err().errno(), Errno::EINVAL);
}
