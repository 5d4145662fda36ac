//! NIs that are added and removed while others carry traffic (S-202).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::EventKind::{Reply, Send};
use lnet_api::{AckRequest, Errno, Get, LNet, LNetError, MdOptions, NiLimits, Put, Unlink, Upcalls};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::PING_PORTAL;
use lnet_proto::ping::{NiStatus, PingInfo};

use super::common::*;
use super::ping::{asleep, ping};

// Covers: S-202
#[test]
fn stopping_an_ni_ends_everything_that_goes_over_it() {
    let (network, a, b) = two_nodes();
    // Requests in three states: sent, in flight, queued for credits.
    let awaited = a.bind(&memory(8), 2);
    a.get(awaited, b.id(), 1).unwrap();
    network.lose(0);
    let more = LIMITS.peer_credits as usize + 20;
    for _ in 0..more {
        a.put(a.bind(&memory(8), 2), b.id(), 1, AckRequest::Ack).unwrap();
    }
    a.events();
    a.engine.remove_ni(a.nid).unwrap();
    let events = a.events();
    let down = Err(Errno::ESHUTDOWN);
    let sends =
        events.iter().filter(|event| (event.kind, event.status, event.unlinked) == (Send, down, true));
    assert_eq!(sends.count(), more);
    let reply = events.iter().find(|event| event.kind == Reply).unwrap();
    assert_eq!((reply.md, reply.status, reply.unlinked), (awaited, down, true));
    assert_eq!(events.len(), more + 1);
    assert!(a.is_quiet());
    assert_eq!(a.engine.local_ids(), [ProcessId::lnet(Nid::LOOPBACK)]);
    let md = a.bind(&memory(8), 1);
    assert_eq!(a.put(md, b.id(), 1, AckRequest::NoAck).unwrap_err().errno(), Errno::EHOSTUNREACH);
    assert_eq!(a.engine.remove_ni(a.nid).unwrap_err().errno(), Errno::EADDRNOTAVAIL);

    // The NI is added again, with all its credits.
    a.engine.add_ni(a.id(), network.clone()).unwrap();
    for _ in 0..more {
        a.put(a.bind(&memory(8), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    }
    assert_eq!(network.queue.lock().len(), LIMITS.peer_credits as usize);
    network.run();
    assert_eq!(a.events().len(), more);
}

/// Answers leave before the network has reported its limits, which turn out lower: the end of these
/// answers does not make room for others.
#[test]
fn an_ni_that_starts_with_fewer_credits_than_it_has_used_waits_for_them() {
    const EARLY: usize = 5;
    const CREDITS: u32 = 2;
    let (network, a, b) = two_nodes();
    let late = ProcessId::lnet(nid(5));
    *network.limits.lock() = NiLimits { credits: CREDITS, peer_credits: CREDITS, ..LIMITS };
    let asking = a.engine.clone();
    let md = a.md(&memory(64), MdOptions::TRUNCATE, 2 * EARLY as u32);
    let md = a.engine.md_bind(md, Unlink::Auto).unwrap();
    *network.while_starting.lock() = Some(Box::new(move |network| {
        let (portal, match_bits) = (PING_PORTAL, MatchBits::PING);
        let get = Get { source: None, md, target: late, portal, match_bits, offset: 0 };
        (0..EARLY).for_each(|_| asking.get(&get).unwrap());
        // Each request arrives, and is answered.
        (0..EARLY).for_each(|_| assert!(network.step()));
    }));
    b.engine.add_ni(late, network.clone()).unwrap();
    b.engine.audit().unwrap();
    let out = || network.queue.lock().iter().filter(|packet| packet.from == late.nid).count();
    assert_eq!(out(), EARLY);

    let md = b.engine.md_bind(b.md(&memory(8), MdOptions::empty(), 3), Unlink::Auto).unwrap();
    let put = Put {
        source: Some(late.nid),
        md,
        ack: AckRequest::NoAck,
        target: a.id(),
        portal: portal(),
        match_bits: MatchBits(1),
        offset: 0,
        hdr_data: 0,
    };
    (0..3).for_each(|_| b.engine.put(&put).unwrap());
    for left in (CREDITS as usize..EARLY).rev() {
        network.step();
        assert_eq!(out(), left);
        b.engine.audit().unwrap();
    }
    for _ in 0..3 {
        network.step();
        assert_eq!(out(), CREDITS as usize);
        b.engine.audit().unwrap();
    }
    network.run();
    assert!(a.is_quiet() && b.is_quiet());
}

/// The list of NIs changes while answers with the old one are in flight: one is with the network,
/// one waits for its credit. The requests would not be repeated, so both answers arrive.
// Covers: S-202
#[test]
fn a_change_of_nis_takes_no_answer_to_a_ping_back() {
    let network = Network::new();
    *network.limits.lock() = NiLimits { credits: 1, peer_credits: 1, ..LIMITS };
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    network.withdraws.store(true, Ordering::Relaxed);
    let mut pings = [(); 2].map(|()| b.engine.ping(None, a.id(), asleep()).unwrap());
    // The second GET leaves with the credit of the first, so both arrive.
    assert!(network.step() && network.step());
    let answers = || network.queue.lock().iter().filter(|packet| packet.from == a.nid).count();
    assert_eq!((answers(), a.engine.counters().msgs_alloc), (1, 2));
    a.engine.add_ni(ProcessId::lnet(nid(5)), network.clone()).unwrap();
    a.engine.audit().unwrap();
    let changed = ping(&network, &b, a.id());
    assert_eq!(changed.nis.len(), 2);
    for ping in &mut pings {
        let old = ping.poll().expect("an answer has been taken back").unwrap();
        assert_eq!((old.nis.len(), old.sequence), (1, changed.sequence - 1));
    }
    // The list also changes when an NI is removed; nothing of the old lists is left.
    let mut last = b.engine.ping(None, a.id(), asleep()).unwrap();
    assert!(network.step());
    a.engine.remove_ni(nid(5)).unwrap();
    network.run();
    assert_eq!(last.poll().expect("an answer has been taken back").unwrap(), changed);
    drop((pings, last));
    a.engine.audit().unwrap();
    assert_eq!(a.engine.counters().errors, 0);
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn an_ni_of_another_network_takes_no_part() {
    let (network, a, b) = two_nodes();
    let second: Nid = "10.88.0.2@tcp1".parse().unwrap();
    a.engine.add_ni(ProcessId::lnet(second), network.clone()).unwrap();
    b.expect(1, &pattern(8, 1), MdOptions::OP_GET);
    let sink = memory(8);
    a.get(a.bind(&sink, 2), b.id(), 1).unwrap();
    a.engine.remove_ni(second).unwrap();
    network.run();
    assert_eq!(content(&sink), pattern_bytes(8, 1));
}

/// lnet-semantics 14, 16; lnet-routing 17: pings report that the link of an NI is down, and
/// messages use another NI of its network while there is one. A peer that would take each NI for
/// another node still gets all messages from the same NI.
#[test]
fn the_link_of_an_ni_goes_down_and_up() {
    let (network, a, b) = two_nodes();
    a.engine.add_ni(ProcessId::lnet(nid(5)), network.clone()).unwrap();
    let source = || {
        a.put(a.bind(&memory(8), 1), b.id(), 1, AckRequest::NoAck).unwrap();
        let from = network.queue.lock().front().unwrap().from;
        network.run();
        a.events();
        from
    };
    let reported = || ping(&network, &b, a.id()).nis.iter().map(|ni| ni.status).collect::<Vec<_>>();
    let up = || [a.nid, nid(5)].map(|nid| a.engine.ni_statistics(nid).unwrap().up);
    assert_eq!((source(), reported(), up()), (a.nid, vec![NiStatus::UP; 2], [true; 2]));
    let before = ping(&network, &b, a.id()).sequence;
    a.engine.link_changed(a.nid, false);
    a.engine.link_changed(a.nid, false);
    a.engine.link_changed(nid(77), false);
    assert_eq!(ping(&network, &b, a.id()).sequence, before + 1, "a change gets the next sequence number");
    assert_eq!((source(), reported(), up()), (nid(5), vec![NiStatus::DOWN, NiStatus::UP], [false, true]));
    a.engine.link_changed(nid(5), false);
    assert_eq!(
        (source(), reported(), up()),
        (nid(5), vec![NiStatus::DOWN; 2], [false; 2]),
        "better than none"
    );
    a.engine.link_changed(nid(5), true);
    assert_eq!(source(), nid(5));
    a.engine.link_changed(a.nid, true);
    assert_eq!((source(), reported(), up()), (nid(5), vec![NiStatus::UP; 2], [true; 2]));
    a.engine.link_changed(nid(5), false);
    assert_eq!(source(), a.nid);
    a.engine.audit().unwrap();
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn nis_that_cannot_be_are_refused() {
    let (network, a) = one_node();
    let add = |id| a.engine.add_ni(id, network.clone()).unwrap_err();
    assert_eq!(add(a.id()).errno(), Errno::EEXIST);
    assert_eq!(add(ProcessId::lnet(Nid::LOOPBACK)).errno(), Errno::EINVAL);
    assert_eq!(add(ProcessId::ANY).errno(), Errno::EINVAL);
    for last in 0..62 {
        a.engine.add_ni(ProcessId::lnet(nid(100 + last)), network.clone()).unwrap();
    }
    a.engine.add_ni(ProcessId::lnet(nid(200)), network.clone()).unwrap();
    assert!(matches!(add(ProcessId::lnet(nid(201))), LNetError::TooMany { limit: 64, .. }));
}

// Covers: MT-13
#[test]
fn an_ni_whose_network_does_not_start_leaves_no_trace() {
    let (network, a) = one_node();
    let refusing = Arc::new(Refusing);
    let before = ping(&network, &a, ProcessId::lnet(Nid::LOOPBACK));
    let error = a.engine.add_ni(ProcessId::lnet(nid(5)), refusing.clone()).unwrap_err();
    assert_eq!(error.errno(), Errno::EADDRINUSE);
    assert_eq!(a.engine.local_ids().len(), 2);
    let after = ping(&network, &a, ProcessId::lnet(Nid::LOOPBACK));
    assert_eq!(PingInfo { sequence: before.sequence, ..after.clone() }, before);
    assert!(after.sequence > before.sequence);
}

/// An LND that starts nothing.
struct Refusing;

impl lnet_api::Lnd for Refusing {
    fn net_type(&self) -> lnet_nid::NetType {
        lnet_nid::NetType::TCP
    }

    fn startup(
        &self,
        _: ProcessId,
        upcalls: Arc<dyn lnet_api::Upcalls>,
    ) -> Result<lnet_api::NiLimits, lnet_api::LndError> {
        drop(upcalls);
        Err(lnet_api::LndError { what: "the address is another's".into(), errno: Errno::EADDRINUSE })
    }

    fn shutdown(&self, _: Nid) {
        unreachable!("it never started")
    }

    fn send(&self, _: lnet_api::Tx) -> lnet_api::Sent {
        unreachable!("it never started")
    }

    fn resume(&self, _: lnet_api::RxContext, _: Option<lnet_api::PayloadTarget>) {}
}

// Covers: S-202
#[test]
fn peers_learn_all_nis_in_the_order_of_their_addition() {
    let (network, a, b) = two_nodes();
    let nids = |info: &PingInfo| info.nis.iter().map(|ni| ni.nid).collect::<Vec<_>>();
    let first = ping(&network, &b, a.id());
    assert_eq!(nids(&first), [a.nid]);
    a.engine.add_ni(ProcessId::lnet(nid(5)), network.clone()).unwrap();
    a.engine.add_ni(ProcessId::lnet(nid(6)), network.clone()).unwrap();
    assert_eq!(nids(&ping(&network, &b, a.id())), [a.nid, nid(5), nid(6)]);
    a.engine.remove_ni(nid(5)).unwrap();
    a.engine.add_ni(ProcessId::lnet(nid(7)), network.clone()).unwrap();
    let last = ping(&network, &b, a.id());
    assert_eq!(nids(&last), [a.nid, nid(6), nid(7)]);
    assert_eq!(last.sequence, first.sequence + 4);
}
