//! Several shards (S-203, S-209, S-312): the shard of each connection, shards that come with NIs,
//! threads that drive them at the same time, and NIs that come and go under traffic (S-202).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::PARTITIONS;
use crate::common::raw::{self, CONTROL, Wire};
use crate::common::{
    Engine, Node, PORT, address, address_on, config, drive, idle_pair, memory, nid_of, pattern, settle,
};
use lnet_api::{Errno, Lnd, Upcalls};
use lnet_nid::ProcessId;
use lnet_socklnd::sys::Os;
use lnet_socklnd::{Hardware, SockConfig, SockLnd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nlx_testkit::until;

/// Drives one shard, asleep or awake, until `done`.
fn drive_shard(node: &Node, shard: usize, done: &AtomicBool) {
    while !done.load(Ordering::Acquire) {
        let work = node.poll_shard(shard).work;
        if work == 0 && node.lnd.arm(shard) {
            // Short sleeps, because the end wakes nothing.
            let mut fds = [PollFd::new(node.lnd.wait_fd(shard), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(1_u16)).unwrap();
        }
    }
}

/// Runs `work` while a separate thread drives each shard of each node.
fn with_drivers<T>(nodes: &[&Node], work: impl FnOnce() -> T) -> T {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        for node in nodes {
            for shard in 0..node.lnd.shards() {
                scope.spawn(move || drive_shard(node, shard, done));
            }
        }
        // The guard also ends the threads if the work panics.
        let _done = Done(done);
        work()
    })
}

/// One shard per partition; a peer that connects in on the listener's shard is served by its own.
// Covers: S-209, S-312
#[test]
fn each_peer_is_on_the_shard_of_its_partition() {
    let node = Node::new();
    assert_eq!(node.lnd.shards(), PARTITIONS);
    assert!((0..PARTITIONS).all(|shard| node.lnd.partition(shard) == shard));
    let ours = node.nid.ipv4().unwrap();
    for number in 0..2 * PARTITIONS {
        let shard = number / 2;
        let peer = address_on(shard);
        let (mut wire, answer) = Wire::shake_hands(peer, &node, 7, CONTROL);
        assert_eq!(answer[48..52], CONTROL.to_le_bytes());
        settle(&[&node]);
        wire.send(&raw::put(peer, ours, 0, 0, b"x"));
        for other in (0..PARTITIONS).filter(|other| *other != shard) {
            node.poll_shard(other);
        }
        assert_eq!(node.received(), number, "its bytes raise no event elsewhere");
        while node.received() == number {
            node.poll_shard(shard);
        }
    }
    assert_eq!(node.counters().rx.handed_over, 2 * (PARTITIONS as u64 - 1));
}

/// Bytes right behind the hello move to the other shard with it.
// Covers: S-209
#[test]
fn messages_behind_the_hello_are_handed_over() {
    let node = Node::new();
    let ours = node.nid.ipv4().unwrap();
    for number in 0..PARTITIONS {
        let peer = address_on(number);
        let mut wire = Wire::connect(peer, 0, &node);
        let put = raw::put(peer, ours, 0, 0, &pattern(number as u64, 100));
        wire.send(&[raw::request(ours), raw::hello(3, peer, ours, 7, CONTROL), put].concat());
        drive(&[&node], || node.received() == number + 1);
        node.with_got(|got| assert_eq!(got[number].bytes(), pattern(number as u64, 100)));
    }
}

/// Each further NI on another device brings a shard per partition, up to `nscheds`; shards stay
/// when NIs go, and are used again.
// Covers: S-203, S-312
#[test]
fn shards_come_with_nis() {
    let node = Node::with(SockConfig { nscheds: 2, ..config() });
    let peer = Node::new();
    assert_eq!(node.lnd.shards(), PARTITIONS);
    let others = [address(), address()].map(nid_of);
    for nid in others {
        node.lnd.startup(ProcessId::lnet(nid), node.engine.clone()).unwrap();
        assert_eq!(node.lnd.shards(), 2 * PARTITIONS);
    }
    assert!((0..2 * PARTITIONS).all(|shard| node.lnd.partition(shard) == shard % PARTITIONS));
    let shard = PARTITIONS + node.engine.partition_of(others[0], peer.nid);
    peer.put_bytes(ProcessId::lnet(others[0]), b"x", 0);
    drive(&[&node, &peer], || node.received() == 1);
    let before = node.lnd.counters().rx.calls;
    peer.put_bytes(ProcessId::lnet(others[0]), b"y", 0);
    while node.received() == 1 {
        node.poll_shard(shard);
    }
    assert!(node.lnd.counters().rx.calls > before);
    node.lnd.shutdown(others[0]);
    assert_eq!(node.lnd.shards(), 2 * PARTITIONS);
    // A new NI uses the free shard.
    node.lnd.startup(ProcessId::lnet(others[0]), node.engine.clone()).unwrap();
    drive(&[&node, &peer], || peer.lost().len() == 1);
    peer.put_bytes(ProcessId::lnet(others[0]), b"z", 0);
    drive(&[&node, &peer], || node.received() == 3);
}

/// NIs on one network device share their shards; the first NI of another device brings further
/// ones.
// Covers: S-203, S-312
#[test]
fn nis_of_one_device_share_their_shards() {
    let lnd = SockLnd::over(SockConfig { nscheds: 3, ..config() }, Arc::new(Os)).unwrap();
    let engine = Arc::new(Engine::default());
    let start = |device: Option<&str>| {
        let nid = nid_of(address());
        device.into_iter().for_each(|device| lnd.set_hardware(nid, Hardware::named(device)));
        lnd.startup(ProcessId::lnet(nid), engine.clone()).unwrap();
        (nid, lnd.shards() / PARTITIONS)
    };
    let counts = [Some("eth0"), Some("eth0"), Some("eth1"), Some("eth0"), None, None, Some("eth2")]
        .map(|device| start(device).1);
    // An NI of an unknown device counts as a separate device, and there are no more shards than
    // `nscheds`.
    assert_eq!(counts, [1, 1, 2, 2, 3, 3, 3]);
    let again = start(Some("eth1"));
    lnd.shutdown(again.0);
    assert_eq!(lnd.shards(), 3 * PARTITIONS, "shards stay");
}

/// Hosts that fill the handshakes of one shard's listener do not affect those of another's, which
/// could not make room.
#[test]
fn handshakes_on_one_shard_do_not_shut_the_listeners_of_others() {
    let node = Node::with(SockConfig { nscheds: 2, ..config() });
    let (peer, other) = (address(), address());
    node.lnd.startup(ProcessId::lnet(nid_of(other)), node.engine.clone()).unwrap();
    let mut crowd = Vec::new();
    for from in [address(), address(), address(), address()] {
        for _ in 0..64 {
            crowd.push(Wire::connect(from, 0, &node));
            // The listen queue holds no more connections than this.
            settle(&[&node]);
        }
    }
    let mut wire = Wire::connect_to(peer, 0, SocketAddr::from((other, PORT)));
    wire.send(&[raw::request(other), raw::hello(3, peer, other, 7, CONTROL)].concat());
    assert_eq!(wire.read(&[&node], 56)[48..52], CONTROL.to_le_bytes());
    assert_eq!(node.counters().rx.refusals, 0, "none had to be dropped for it");
    // On the full shard, the next handshake still costs the oldest.
    let (_wire, answer) = Wire::shake_hands(peer, &node, 7, CONTROL);
    assert_eq!((answer[48..52].to_vec(), node.counters().rx.refusals), (CONTROL.to_le_bytes().to_vec(), 1));
}

/// A shard without sockets costs no system call.
#[test]
fn an_idle_shard_is_polled_without_a_system_call() {
    let node = Node::new();
    settle(&[&node]);
    let before = node.counters().rx.polls;
    for _ in 0..10 {
        node.poll();
    }
    assert_eq!(node.counters().rx.polls - before, 10, "the listener's shard alone");
    // The shard can be woken all the same, and sleeps again.
    let peer = ProcessId::lnet(nid_of(address_on(PARTITIONS - 1)));
    let token = node.put_bytes(peer, b"x", 0);
    drive(&[&node], || node.sent(token).is_some());
    assert_eq!(node.sent(token), Some(Err(Errno::ECONNREFUSED)));
    settle(&[&node]);
    let mut fds: Vec<PollFd<'_>> = node.wait_fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    assert_eq!(poll(&mut fds, PollTimeout::ZERO).unwrap(), 0, "nobody is kept from sleeping");
}

/// No thread can poll while an NI ends, and a thread that is turned away may sleep although its
/// last poll left work that no descriptor reports any more: it is woken.
#[test]
fn the_end_of_an_ni_leaves_no_sleeper_with_work() {
    const MESSAGES: usize = 5;
    let (node, peer) = idle_pair();
    let extra = ProcessId::lnet(nid_of(address()));
    node.lnd.startup(extra, node.engine.clone()).unwrap();
    settle(&[&node, &peer]);
    let before = node.received();
    for _ in 0..MESSAGES {
        peer.put_bytes(node.id(), b"x", 0);
    }
    settle(&[&peer]);
    for shard in 0..node.lnd.shards() {
        node.lnd.poll(shard, node.now_ns(), 1);
    }
    assert!(node.received() < before + MESSAGES, "the budget was too small for all of them");
    let is_readable = || {
        let mut fds: Vec<_> = node.wait_fds().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
    };
    assert!(!is_readable() && !node.arm());
    node.lnd.shutdown(extra.nid);
    assert!(is_readable());
    settle(&[&node]);
    assert_eq!(node.received(), before + MESSAGES);
    assert!(!is_readable() && node.arm(), "nobody is kept from sleeping");
}

/// Threads drive all shards of several nodes at once, others send: every message arrives once and
/// complete, and is finalised once.
// Covers: S-203
#[test]
fn shards_are_driven_by_several_threads_under_traffic() {
    const EACH: usize = 150;
    let nodes: Vec<Node> = (0..4).map(|_| Node::new()).collect();
    let all: Vec<&Node> = nodes.iter().collect();
    with_drivers(&all, || {
        std::thread::scope(|scope| {
            for from in &nodes {
                let nodes = &nodes;
                scope.spawn(move || {
                    for number in 0..EACH {
                        for to in nodes.iter().filter(|to| to.nid != from.nid) {
                            let size = number * 131 % 30_000;
                            from.put_bytes(to.id(), &pattern(number as u64, size), number as u64);
                            from.get(to.id(), size, number as u64);
                        }
                    }
                });
            }
        });
        // From each other node: its PUTs and GETs, and the REPLYs to this one's GETs.
        let expected = 3 * EACH * (nodes.len() - 1);
        until("all have come", || nodes.iter().all(|node| node.received() == expected));
        let messages = 2 * EACH * (nodes.len() - 1);
        until("all are sent", || {
            nodes.iter().all(|node| (1..=messages as u64).all(|token| node.sent(token).is_some()))
        });
    });
    for node in &nodes {
        assert!(node.engine.sent.lock().unwrap().values().all(|result| *result == Ok(())));
        node.with_got(|got| {
            for got in got {
                let number = match got.header.body {
                    lnet_proto::Body::Put { match_bits, .. } => match_bits.0,
                    lnet_proto::Body::Reply { dst_wmd } => dst_wmd.object_cookie(),
                    _ => continue,
                };
                assert!(got.bytes() == pattern(number, number as usize * 131 % 30_000));
            }
        });
        assert!(node.lost().is_empty(), "{:?}", node.lost());
    }
}

/// NIs are added and removed while other NIs have traffic and threads send over the very NI that
/// goes. Every message is finalised once, an ended NI makes no upcalls, and the traffic of the
/// others continues.
// Covers: S-202
#[test]
fn nis_come_and_go_under_traffic() {
    const ROUNDS: usize = 12;
    let (a, b) = (Node::with(SockConfig { nscheds: 2, ..config() }), Node::new());
    let extra = ProcessId::lnet(nid_of(address()));
    // The shards of the second NI exist before their drivers do.
    a.lnd.startup(extra, a.engine.clone()).unwrap();
    a.lnd.shutdown(extra.nid);
    let engine = Arc::new(Engine::default());
    let stop = AtomicBool::new(false);
    let tokens = with_drivers(&[&a, &b], || {
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let bytes = memory(&pattern(0, 5000), 1);
                let mut tokens = Vec::new();
                while !stop.load(Ordering::Acquire) {
                    let before = b.received();
                    let token = a.put(b.id(), &bytes, 0);
                    // The messages use the NI that comes and goes, in both directions.
                    tokens.push(a.get_over(extra.nid, &engine, b.id()));
                    b.put(extra, &bytes, 0);
                    until("it goes on", || a.sent(token).is_some() && b.received() > before);
                }
                tokens
            });
            for round in 0..ROUNDS {
                a.lnd.startup(extra, engine.clone()).unwrap();
                let before = engine.received();
                until("it goes on", || engine.received() > before + 2);
                a.lnd.shutdown(extra.nid);
                let after = engine.upcalls.load(Ordering::Relaxed);
                let before = b.received();
                until("it goes on", || b.received() > before + 5);
                let upcalls = engine.upcalls.load(Ordering::Relaxed) - after;
                assert_eq!(upcalls, 0, "round {round}: an upcall for an NI that has ended");
            }
            stop.store(true, Ordering::Release);
            sender.join().unwrap()
        })
    });
    let sent = engine.sent.lock().unwrap();
    assert!(tokens.iter().all(|token| sent.contains_key(token)), "no message is forgotten");
    assert!(a.lost().is_empty(), "{:?}", a.lost());
    assert_eq!(a.lnd.shards(), 2 * PARTITIONS);
}
