//! Connections that end, by either side.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use lnet_api::Errno;
use lnet_o2iblnd::fabric::*;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::common::*;

fn flushed(count: u64) -> Vec<WorkCompletion> {
    (0..count).map(|id| WorkCompletion { id, length: 0, status: Err(WorkError::Flushed) }).collect()
}

/// The buffers of both sides are returned, each once.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn disconnecting_flushes_both_sides() {
    let host = new_host();
    let (active, passive) = pair(&host);
    let receives = SIZES.receives as usize;
    active.endpoint.disconnect();
    passive.expect_disconnected();
    for side in [&active, &passive] {
        let mut all = side.completions(receives);
        all.sort_by_key(|done| done.id);
        assert_eq!(all, flushed(receives as u64));
    }
    // Posting to an ended connection completes at once, or is refused.
    let work = ReceiveWork { id: 0, piece: active.slab.piece(0, 64) };
    if active.endpoint.post_receives(&[work]).is_ok() {
        assert_eq!(active.completions(1), flushed(1));
    }
}

/// A completion queue that is not polled overflows and breaks, with its connection; the channel
/// reports that.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn queues_that_run_over() {
    let host = new_host();
    let (active, passive) = (node(&host, 0), node(&host, 1));
    let (_, _listener) = passive.listen();
    let (token, endpoint) = active.resolved(passive.at(SERVICE));
    let mut active = Side::new(active, token, endpoint);
    active.endpoint.connect(b"hello", &OPTIONS).expect("connecting");

    let mut endpoint = passive.channel.adopt(ChannelToken(7), passive.request()).expect("adopting");
    let made = endpoint.make_queues(&QueueSizes { completions: 1, receives: 64, ..SIZES }).expect("queues");
    let slab = passive.memory(BUFFER);
    let works: Vec<_> = (0..64).map(|id| ReceiveWork { id, piece: slab.piece(0, BUFFER) }).collect();
    endpoint.post_receives(&works).expect("receives");
    endpoint.accept(b"welcome", &OPTIONS).expect("accepting");
    active.established();
    assert!(made.completions < 64, "{made:?}");
    for _ in 0..made.completions {
        active.send(7, &[active.slab.piece(0, 8)], false);
        active.completions(1);
    }
    // The peer may never acknowledge this send.
    active.send(7, &[active.slab.piece(0, 8)], false);
    loop {
        match passive.cm_event() {
            CmEvent::Disconnected(ChannelToken(7)) => break,
            CmEvent::Established(ChannelToken(7)) => (),
            other => panic!("{}", describe(&other)),
        }
    }
}

/// An endpoint that is dropped ends its connection, even with posted requests and unread events.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn dropping_ends() {
    let host = new_host();
    for _ in 0..10 {
        let (active, passive) = pair(&host);
        passive.endpoint.arm().expect("arming");
        active.send(7, &[active.slab.piece(0, 64)], false);
        let Side { endpoint, node, token, slab, .. } = active;
        drop(endpoint);
        drop(slab);
        passive.expect_disconnected();
        drop(passive);
        if let Some(cm_event) = node.next_event() {
            panic!("{token:?} is gone: {}", describe(&cm_event));
        }
    }
}

/// The variable that marks the process that is to be killed.
const VICTIM: &str = "NLX_VERBS_VICTIM";

/// The peer that [`a_killed_peer`] kills.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn the_peer_that_is_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    let host = new_host();
    let passive = node(&host, 1);
    let (_, _listener) = passive.listen();
    println!("\nlistening");
    let passive = accept(passive, b"welcome");
    passive.expect_established();
    // The process waits here until it is killed.
    panic!("{}", describe(&passive.node.cm_event()));
}

/// Work requests that are posted when a peer is killed end, and the channel reports the end.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn a_killed_peer() {
    let mut victim = Command::new("/proc/self/exe")
        .args(["--ignored", "--exact", "--nocapture", "ending::the_peer_that_is_killed"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("another process");
    let words = BufReader::new(victim.stdout.take().expect("its output"));
    assert!(words.lines().any(|line| line.expect("a line") == "listening"));

    let host = new_host();
    let target = std::net::SocketAddrV4::new(ADDRESSES[1], SERVICE);
    let mut active = connect(node(&host, 0), target, b"hello");
    active.established();
    victim.kill().expect("killing it");
    victim.wait().expect("its end");
    active.send(7, &[active.slab.piece(0, 64)], false);
    let sent = active.completions(1);
    // The peer was killed before the send: the send either gets no answer, or the end has been
    // reported already.
    let statuses = [WorkError::RetriesExceeded, WorkError::Flushed, WorkError::NoReceiver].map(Err);
    assert!(statuses.contains(&sent[0].status), "{sent:?}");
}

/// The parent sends and receives as before while a child lives that was forked with its memory:
/// neither side's first write after the fork leaves the device with another page than the program
/// has. Both buffers are shorter than those that children never get.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn a_parent_notices_nothing_of_a_child() {
    let host = new_host();
    let (active, passive) = pair(&host);
    let memory = active.node.memory(4096);
    memory.fill(0, &[1; 64]);
    let (lasts, lives) = nix::unistd::pipe().expect("a pipe");
    // SAFETY: the child only reads from a pipe, and ends without running the parent's exit
    // handlers.
    match unsafe { fork() }.expect("a child") {
        ForkResult::Child => {
            drop(lives);
            let ended = nix::unistd::read(&lasts, &mut [0]);
            // SAFETY: as above.
            unsafe { nix::libc::_exit(i32::from(ended != Ok(0))) }
        }
        ForkResult::Parent { child } => {
            memory.fill(0, &[2; 64]);
            passive.slab.fill(0, &[3; 64]);
            active.send(7, &[memory.piece(0, 64)], false);
            assert_eq!(active.completions(1), [WorkCompletion { id: 7, length: 0, status: Ok(()) }]);
            assert_eq!(passive.completions(1), [WorkCompletion { id: 0, length: 64, status: Ok(()) }]);
            assert_eq!(passive.slab.bytes(0, 64), [2; 64]);
            drop(lives);
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
}

/// A forked child cannot use the objects of its parent, and dropping them in the child does not
/// destroy those of the parent.
#[test]
#[ignore = "needs RDMA devices: ./test verbs"]
fn forked_children_touch_nothing() {
    let host = new_host();
    let (active, passive) = pair(&host);
    // SAFETY: the child calls only permitted functions: none takes a lock that another thread could
    // hold, as the tests run one at a time.
    match unsafe { fork() }.expect("a child") {
        ForkResult::Child => {
            let mut done = Completions::new();
            let polled = active.endpoint.poll(&mut done) == Err(Errno::EPERM);
            let armed = active.endpoint.arm() == Err(Errno::EPERM);
            active.endpoint.disconnect();
            active.node.channel.ring();
            let silent = active.node.next_event().is_none();
            let opened = host.open(ADDRESSES[0]).err().is_some_and(|error| error.errno == Errno::EPERM);
            drop((active, passive, host));
            // SAFETY: the child ends without running the parent's exit handlers.
            unsafe { nix::libc::_exit(i32::from(!(polled && armed && silent && opened))) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
    active.send(7, &[active.slab.piece(0, 64)], false);
    assert_eq!(active.completions(1), [WorkCompletion { id: 7, length: 0, status: Ok(()) }]);
    assert_eq!(passive.completions(1), [WorkCompletion { id: 0, length: 64, status: Ok(()) }]);
}
