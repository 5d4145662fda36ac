//! Credits: how many messages are handed over at a time, and what becomes of the others (lnet-semantics 13).

use std::sync::atomic::Ordering;

use lnet_api::EventKind::Send;
use lnet_api::{AckRequest, Errno, LNet, Md, MdOptions, NiLimits, Threshold, Unlink};
use lnet_nid::ProcessId;

use super::common::*;

const MANY: usize = 10_000;

fn limited(credits: u32, peer_credits: u32) -> std::sync::Arc<Network> {
    let network = Network::new();
    *network.limits.lock() = NiLimits { credits, peer_credits, ..LIMITS };
    network
}

fn endless(node: &Node) -> lnet_api::MdHandle {
    let md = Md { threshold: Threshold::Infinite, ..node.md(&pattern(16, 1), MdOptions::empty(), 0) };
    node.engine.md_bind(md, Unlink::Retain).unwrap()
}

#[test]
fn no_peer_gets_more_than_its_credits_and_all_messages_leave_in_order() {
    let network = limited(256, 3);
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    // A region can be read by some thousand messages at a time: these use several.
    let mds = [(); 10].map(|()| endless(&a));
    for number in 0..MANY as u64 {
        a.put(mds[number as usize % mds.len()], b.id(), number, AckRequest::NoAck).unwrap();
    }
    assert_eq!(network.queue.lock().len(), 3);
    assert_eq!(a.engine.counters().msgs_alloc, MANY as u64);
    for number in 0..MANY as u64 {
        let bits = match network.queue.lock()[0].header.body {
            lnet_proto::Body::Put { match_bits, .. } => match_bits.0,
            other => panic!("{other:?}"),
        };
        assert_eq!(bits, number);
        assert!(network.step());
    }
    assert_eq!(network.most_in_flight.load(Ordering::Relaxed), 3);
    assert_eq!(brief(&a.events()), vec![(Send, Ok(()), false); MANY]);
    assert!(a.is_quiet());
    // All credits are back.
    for _ in 0..4 {
        a.put(mds[0], b.id(), 1, AckRequest::NoAck).unwrap();
    }
    assert_eq!(network.queue.lock().len(), 3);
}

#[test]
fn the_credits_of_an_ni_are_shared_by_its_peers() {
    let network = limited(4, 3);
    let a = Node::new(&network, 2);
    let md = endless(&a);
    let peers: Vec<ProcessId> = (0..10).map(|number| ProcessId::lnet(nid(neighbour(10, number)))).collect();
    for _ in 0..5 {
        for &peer in &peers {
            a.put(md, peer, 1, AckRequest::NoAck).unwrap();
        }
    }
    let mut sent = 0;
    while !network.queue.lock().is_empty() {
        assert!(network.queue.lock().len() <= 4);
        network.lose(0);
        sent += 1;
    }
    assert_eq!((sent, network.most_in_flight.load(Ordering::Relaxed)), (50, 4));
    assert_eq!(a.events().len(), 50);
    assert!(a.is_quiet());
    for &peer in &peers[..5] {
        a.put(md, peer, 1, AckRequest::NoAck).unwrap();
    }
    assert_eq!(network.queue.lock().len(), 4);
}

#[test]
fn a_network_that_fails_at_once_ends_a_long_queue_without_recursion() {
    let network = limited(256, 8);
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    let mds = [(); 10].map(|()| endless(&a));
    for number in 0..MANY {
        a.put(mds[number % mds.len()], b.id(), 1, AckRequest::NoAck).unwrap();
    }
    *network.sending.lock() = Sending::Fail(Errno::EHOSTUNREACH);
    network.fail(0, Errno::ECONNRESET);
    while !network.queue.lock().is_empty() {
        network.fail(0, Errno::ECONNRESET);
    }
    let events = a.events();
    let failed = |errno| events.iter().filter(|event| event.status == Err(errno)).count();
    assert_eq!((failed(Errno::ECONNRESET), failed(Errno::EHOSTUNREACH)), (8, MANY - 8));
    assert!(a.is_quiet());
    assert_eq!(a.engine.counters().errors, MANY as u64);
}

#[test]
fn messages_that_waited_too_long_end_with_etimedout_when_their_turn_comes() {
    let network = limited(256, 2);
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    let md = endless(&a);
    let start = 5_000_000_000;
    a.engine.advance(start);
    for _ in 0..10 {
        a.put(md, b.id(), 1, AckRequest::NoAck).unwrap();
    }
    let deadline = network.queue.lock()[0].tx.as_ref().unwrap().deadline_ns;
    assert_eq!(deadline, start + LIMITS.timeout_ns + 1_000_000_000);
    a.engine.advance(deadline - 1);
    network.step();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
    a.engine.advance(deadline);
    network.step();
    let expected: Vec<_> =
        std::iter::once((Send, Ok(()), false)).chain([(Send, Err(Errno::ETIMEDOUT), false); 7]).collect();
    assert_eq!(brief(&a.events()), expected);
    network.run();
    assert!(a.is_quiet());
}

#[test]
fn both_queues_let_go_what_is_cancelled() {
    // One credit for the NI: messages wait for it holding their peers' credits, and others wait for those.
    let network = limited(1, 1);
    let a = Node::new(&network, 2);
    let peers = [0, 1, 2].map(|number| ProcessId::lnet(nid(neighbour(10, number))));
    let mds: Vec<_> = (0..9).map(|_| a.bind(&memory(8), 1)).collect();
    for (number, &md) in mds.iter().enumerate() {
        a.put(md, peers[number % 3], number as u64, AckRequest::NoAck).unwrap();
    }
    // All but the first and the last are cancelled, from the middle of each queue outwards.
    let order = [4, 1, 7, 2, 5, 3, 6];
    for &number in &order {
        a.engine.md_unlink(mds[number]).unwrap();
        a.engine.audit().unwrap();
    }
    let events = a.events();
    assert_eq!(brief(&events), [(Send, Err(Errno::ECANCELED), true); 7]);
    assert_eq!(events.iter().map(|event| event.md).collect::<Vec<_>>(), order.map(|number| mds[number]));
    assert_eq!(network.queue.lock().len(), 1);
    // The others are sent.
    for md in [mds[0], mds[8]] {
        network.lose(0);
        let events = a.events();
        assert_eq!((brief(&events), events[0].md), (vec![(Send, Ok(()), true)], md));
    }
    assert!(network.queue.lock().is_empty() && a.is_quiet());
}

#[test]
fn answers_wait_for_credits_like_everything_else() {
    let network = limited(256, 2);
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    let md = endless(&b);
    for _ in 0..4 {
        b.put(md, a.id(), 1, AckRequest::NoAck).unwrap();
    }
    b.expect(1, &pattern(4, 1), MdOptions::OP_GET);
    let sink = memory(4);
    a.get(a.bind(&sink, 2), b.id(), 1).unwrap();
    assert_eq!(network.queue.lock().len(), 3);
    network.run();
    assert_eq!(content(&sink), pattern_bytes(4, 1));
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn idle_peers_make_room_for_new_ones() {
    let network = Network::new();
    let mut config = lnet::EngineConfig::new(lnet_nid::Pid::LNET, 1);
    config.limits.peers = 4;
    let a = Node::with_config(&network, 2, config);
    let md = endless(&a);
    let put = |number| {
        a.put(md, ProcessId::lnet(nid(neighbour(10, number))), 1, AckRequest::NoAck).unwrap();
        a.events().pop().map_or(Ok(()), |event| event.status)
    };
    for number in 0..4 {
        put(number).unwrap();
    }
    // All four are busy.
    assert_eq!(put(4), Err(Errno::ENOMEM));
    network.lose(2);
    put(4).unwrap();
    assert_eq!(put(5), Err(Errno::ENOMEM));
    put(3).unwrap();
    while !network.queue.lock().is_empty() {
        network.lose(0);
    }
    a.events();
    for number in 0..60 {
        put(number).unwrap();
        network.lose(0);
        a.events();
    }
    assert!(a.is_quiet());
}
