//! The watcher of drops gets each PUT that no buffer takes, and nothing else.

use lnet::{DropReason, RECENT_DROPS};
use lnet_api::{
    AckRequest, Arrival, DropWatcher, Dropped, Errno, LNet, MdOptions, RxContext, Upcalls, Verdict,
};
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use lnet_proto::{Body, Header, MessageType, WireHandle};
use parking_lot::Mutex;
use std::sync::Arc;

use super::common::*;

/// A watcher that remembers the reports.
#[derive(Default)]
struct Watcher(Mutex<Vec<Dropped>>);

impl Watcher {
    fn of(node: &Node) -> Arc<Watcher> {
        let watcher = Arc::new(Watcher::default());
        node.engine.watch_drops(watcher.clone()).unwrap();
        watcher
    }

    fn lengths(&self) -> Vec<u32> {
        std::mem::take(&mut *self.0.lock()).iter().map(|message| message.length).collect()
    }
}

impl DropWatcher for Watcher {
    fn dropped(&self, message: &Dropped) {
        self.0.lock().push(*message);
    }
}

fn pair() -> (Arc<Network>, Node, Node, Arc<Watcher>) {
    let (network, a, b) = two_nodes();
    let watcher = Watcher::of(&b);
    (network, a, b, watcher)
}

fn send(from: &Node, to: ProcessId, bits: u64, bytes: usize) {
    from.put(from.bind(&pattern(bytes, 1), 1), to, bits, AckRequest::NoAck).unwrap();
}

#[test]
fn a_message_without_a_match_is_reported_with_its_header() {
    let (network, a, b, watcher) = pair();
    send(&a, b.id(), 7, 5);
    network.run();
    let reported = std::mem::take(&mut *watcher.0.lock());
    let (portal, match_bits) = (portal().get(), MatchBits(7));
    assert_eq!(reported, [Dropped { target: b.id(), portal, match_bits, initiator: a.id(), length: 5 }]);
    assert_eq!(b.engine.counters().drop_count, 1);
}

#[test]
fn what_does_not_fit_its_buffer_or_finds_it_in_use_is_reported() {
    let (network, a, b, watcher) = pair();
    let buffer = memory(10);
    b.expect(1, &buffer, MdOptions::OP_PUT);
    send(&a, b.id(), 1, 11);
    network.run();
    assert_eq!(watcher.lengths(), [11]);
    let reading = buffer.read(0..10).unwrap();
    send(&a, b.id(), 1, 9);
    network.run();
    assert_eq!(watcher.lengths(), [9]);
    drop(reading);
    send(&a, b.id(), 1, 8);
    network.run();
    assert_eq!((watcher.lengths().len(), b.events().len()), (0, 1));
}

/// The PID of the target is the node's, regardless of the header: the node does not match by it.
#[test]
fn a_dropped_message_of_the_node_to_itself_is_reported() {
    let (_network, _, b, watcher) = pair();
    for (nid, pid) in [(b.nid, Pid::LNET), (Nid::LOOPBACK, Pid(99))] {
        send(&b, ProcessId::new(nid, pid), 1, 3);
        let reported = std::mem::take(&mut *watcher.0.lock());
        let reported: Vec<_> =
            reported.iter().map(|message| (message.target, message.initiator.nid)).collect();
        assert_eq!(reported, [(ProcessId::lnet(nid), nid)]);
    }
}

#[test]
fn what_a_lazy_portal_keeps_is_not_reported_before_it_is_lost() {
    let network = Network::new();
    let mut config = lnet::EngineConfig::new(Pid::LNET, 1);
    config.limits.delayed = 3;
    let (a, b) = (Node::new(&network, 2), Node::with_config(&network, 3, config));
    let watcher = Watcher::of(&b);
    b.engine.set_lazy(portal(), true);
    (1..=4).for_each(|bytes| send(&a, b.id(), 1, bytes));
    network.run();
    // The buffer has room for three bytes.
    assert_eq!(watcher.lengths(), [4]);
    b.expect(1, &memory(0), MdOptions::OP_PUT);
    // None of the three buffers is large enough: each is tried in turn.
    assert_eq!(watcher.lengths(), [1, 2, 3]);
    send(&a, b.id(), 2, 5);
    send(&b, b.id(), 2, 6);
    network.run();
    assert!(watcher.lengths().is_empty());
    b.engine.set_lazy(portal(), false);
    let mut lengths = watcher.lengths();
    lengths.sort_unstable();
    assert_eq!(lengths, [5, 6]);
}

#[test]
fn waiting_messages_end_with_their_connection_or_interface() {
    let (network, a, b, watcher) = pair();
    b.engine.set_lazy(portal(), true);
    let Packet { header, .. } = put_from(&b, a.nid, 1, vec![0; 4]);
    let arrival = Arrival { ni: b.nid, from: a.id(), header: &header, host: None, rx: RxContext(9) };
    let Verdict::Delay(token) = b.engine.parse(&arrival) else { panic!("it waits") };
    assert!(b.engine.forget_delayed(token));
    assert!(!b.engine.forget_delayed(token));
    assert_eq!(watcher.lengths(), [4]);
    send(&a, b.id(), 1, 5);
    network.run();
    b.engine.remove_ni(b.nid).unwrap();
    assert_eq!(watcher.lengths(), [5]);
}

/// A GET is not reported: its initiator detects the missing answer. Late answers and pushes have no
/// user here. Messages that break the protocol, or claim this node as their source, are no
/// program's.
#[test]
fn nothing_else_is_reported() {
    let (network, a, b, watcher) = pair();
    a.get(a.bind(&memory(4), 2), b.id(), 1).unwrap();
    network.run();
    let from = |src: ProcessId, body| Header { dest: b.id(), src, payload_length: 0, body };
    let handle = WireHandle::new(1, 2);
    let put =
        |portal, ack_wmd| Body::Put { ack_wmd, match_bits: MatchBits::PING, hdr_data: 0, portal, offset: 0 };
    for header in [
        from(a.id(), Body::Ack { dst_wmd: handle, match_bits: MatchBits(1), mlength: 0 }),
        from(a.id(), Body::Reply { dst_wmd: handle }),
        from(a.id(), put(0, WireHandle::NONE)),
        from(b.id(), put(34, WireHandle::NONE)),
    ] {
        let arrival = Arrival { ni: b.nid, from: a.id(), header: &header, host: None, rx: RxContext(9) };
        let _ = b.engine.parse(&arrival);
    }
    assert!(watcher.lengths().is_empty());
    assert!(b.engine.counters().drop_count >= 4);
}

/// A peer can name any portal.
#[test]
fn an_invalid_portal_is_reported_unchanged() {
    let (_network, a, b, watcher) = pair();
    for portal in [64, u32::MAX] {
        let body =
            Body::Put { ack_wmd: WireHandle::NONE, match_bits: MatchBits(1), hdr_data: 0, portal, offset: 0 };
        let header = Header { dest: b.id(), src: a.id(), payload_length: 0, body };
        let arrival = Arrival { ni: b.nid, from: a.id(), header: &header, host: None, rx: RxContext(9) };
        assert!(matches!(b.engine.parse(&arrival), Verdict::Discard));
        assert_eq!(watcher.0.lock().pop().map(|reported| reported.portal), Some(portal));
    }
}

#[test]
fn there_is_one_watcher() {
    let (network, a, b, watcher) = pair();
    assert_eq!(errno(b.engine.watch_drops(Arc::new(Watcher::default()))), Errno::EBUSY);
    send(&a, b.id(), 1, 5);
    network.run();
    assert_eq!(watcher.lengths(), [5]);
}

/// Returns the drops that a node has recorded: kind, match bits, reason and count, the newest
/// first.
fn remembered(node: &Node) -> Vec<(MessageType, Option<u64>, DropReason, u64)> {
    let drops = node.engine.recent_drops().into_iter();
    drops.map(|drop| (drop.kind, drop.match_bits.map(|bits| bits.0), drop.reason, drop.count)).collect()
}

#[test]
fn a_dropped_message_is_named_with_its_source_portal_bits_and_reason() {
    let (network, a, b, _) = pair();
    send(&a, b.id(), 7, 5);
    a.get(a.bind(&memory(4), 2), b.id(), 8).unwrap();
    network.run();
    send(&a, b.id(), 7, 6);
    network.run();
    use {DropReason::NoMatch, MessageType as Kind};
    assert_eq!(remembered(&b), [(Kind::Put, Some(7), NoMatch, 2), (Kind::Get, Some(8), NoMatch, 1)]);
    let drop = b.engine.recent_drops()[0];
    assert_eq!(
        (drop.source, drop.target, drop.portal, drop.length),
        (a.id(), b.nid, Some(portal().get()), 6)
    );
    assert!(remembered(&a).is_empty());
}

#[test]
fn each_reason_is_distinguished() {
    let (network, a, b, _) = pair();
    let reason = |bits: u64, expected: DropReason| {
        network.run();
        let last = b.engine.recent_drops()[0];
        assert_eq!((last.match_bits, last.reason), (Some(MatchBits(bits)), expected));
    };
    let buffer = memory(10);
    b.expect(1, &buffer, MdOptions::OP_PUT);
    send(&a, b.id(), 1, 11);
    reason(1, DropReason::TooLong);
    let reading = buffer.read(0..10).unwrap();
    send(&a, b.id(), 1, 9);
    reason(1, DropReason::Busy);
    drop(reading);
    let arrive = |header: Header| {
        let arrival = Arrival { ni: b.nid, from: a.id(), header: &header, host: None, rx: RxContext(9) };
        b.engine.parse(&arrival)
    };
    let put = |src, dest, portal, bits| Header {
        dest,
        src,
        payload_length: 0,
        body: Body::Put {
            ack_wmd: WireHandle::NONE,
            match_bits: MatchBits(bits),
            hdr_data: 0,
            portal,
            offset: 0,
        },
    };
    let elsewhere = ProcessId::lnet("10.0.0.9@tcp9".parse().unwrap());
    for (header, bits, expected) in [
        (put(a.id(), b.id(), 64, 2), 2, DropReason::NoPortal),
        (put(b.id(), b.id(), 34, 3), 3, DropReason::BadSource),
        (put(a.id(), elsewhere, 34, 4), 4, DropReason::OtherNode),
    ] {
        assert!(matches!(arrive(header), Verdict::Discard));
        reason(bits, expected);
    }
    let (dst_wmd, match_bits) = (WireHandle::new(1, 2), MatchBits(5));
    let body = Body::Ack { dst_wmd, match_bits, mlength: 0 };
    assert!(matches!(arrive(Header { body, ..put(a.id(), b.id(), 0, 0) }), Verdict::Discard));
    reason(5, DropReason::Unexpected);
    b.engine.set_lazy(portal(), true);
    send(&a, b.id(), 6, 1);
    network.run();
    b.engine.set_lazy(portal(), false);
    reason(6, DropReason::NotLazy);
    b.engine.set_lazy(portal(), true);
    let Verdict::Delay(token) = arrive(put(a.id(), b.id(), portal().get(), 7)) else { panic!("it waits") };
    assert!(b.engine.forget_delayed(token));
    reason(7, DropReason::ConnectionLost);
    b.engine.add_fault("drop 1/1 put".parse().unwrap()).unwrap();
    send(&a, b.id(), 8, 1);
    reason(8, DropReason::FaultRule);
}

#[test]
fn the_last_drops_are_the_newest_of_all_partitions() {
    let network = Network::new();
    let nodes: Vec<Node> = (2..6).map(|last| Node::new(&network, last)).collect();
    let config = partitioned(lnet::EngineConfig::new(Pid::LNET, 1));
    let b = Node::with_config(&network, 99, config);
    for bits in 0..2 * RECENT_DROPS as u64 {
        b.engine.advance(1 + bits);
        send(&nodes[bits as usize % nodes.len()], b.id(), bits, 0);
        network.run();
    }
    let newest = (RECENT_DROPS as u64..2 * RECENT_DROPS as u64).rev().map(Some);
    assert!(remembered(&b).iter().map(|drop| drop.1).eq(newest), "{:?}", remembered(&b));
    let ages = b.engine.recent_drops().into_iter().map(|drop| drop.age_ns);
    assert!(ages.eq(0..RECENT_DROPS as u64));
}
