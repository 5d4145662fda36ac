//! Requests without a buffer, from nodes that accept refusals and from those that do not.

use lnet_api::EventKind::{Ack, Reply, Send};
use lnet_api::{AckRequest, Errno, LNet, MdHandle, MdOptions, Unlink};
use lnet_proto::{Body, WireHandle};
use lnet_region::IoVec;

use super::common::*;

fn bind(node: &Node, memory: &IoVec) -> MdHandle {
    node.engine.md_bind(node.md(memory, MdOptions::TAKES_REFUSALS, 2), Unlink::Auto).expect("a valid MD")
}

fn pair() -> (std::sync::Arc<Network>, Node, Node) {
    let (network, a, b) = two_nodes();
    (network, a, b)
}

/// Starts a GET or an acknowledged PUT.
fn start(node: &Node, get: bool, md: MdHandle, to: lnet_nid::ProcessId) {
    match get {
        true => node.get(md, to, 7).unwrap(),
        false => node.put(md, to, 7, AckRequest::Ack).unwrap(),
    }
}

// Covers: MT-198
#[test]
fn a_request_that_nothing_takes_ends_with_enodata() {
    for (get, answer) in [(true, Reply), (false, Ack)] {
        for left_first in [true, false] {
            let (network, a, b) = pair();
            start(&a, get, bind(&a, &pattern(100, 1)), b.id());
            let expected = if left_first {
                assert!(network.step() && network.step());
                [(Send, Ok(()), false), (answer, Err(Errno::ENODATA), true)]
            } else {
                // The refusal arrives before the sender's request is finalised.
                let mut request = network.take(0).unwrap();
                let tx = request.tx.take();
                network.arrive(request);
                assert!(network.step());
                a.finalize(tx.unwrap());
                [(answer, Err(Errno::ENODATA), false), (Send, Ok(()), true)]
            };
            assert_eq!(brief(&a.events()), expected, "GET: {get}");
            assert_eq!((b.engine.counters().drop_count, a.engine.counters().drop_count), (1, 0));
            assert!(a.is_quiet() && b.is_quiet());
        }
    }
}

/// A buffer that is too short or in use does not prevent the refusal.
#[test]
fn what_a_buffer_cannot_take_is_refused() {
    let (network, a, b) = pair();
    b.expect(7, &memory(99), MdOptions::OP_PUT);
    start(&a, false, bind(&a, &pattern(100, 1)), b.id());
    network.run();
    assert_eq!(brief(&a.events())[1], (Ack, Err(Errno::ENODATA), true));
    b.expect(7, &memory(99), MdOptions::OP_GET);
    start(&a, true, bind(&a, &memory(100)), b.id());
    network.run();
    assert_eq!(brief(&a.events())[1], (Reply, Err(Errno::ENODATA), true));
}

#[test]
fn what_is_taken_is_answered_as_ever() {
    let (network, a, b) = pair();
    let (source, sink) = (pattern(100, 1), memory(100));
    b.expect(7, &sink, MdOptions::OP_PUT);
    start(&a, false, bind(&a, &source), b.id());
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Ack, Ok(()), true)]);
    assert_eq!(content(&sink), pattern_bytes(100, 1));
    b.expect(7, &sink, MdOptions::OP_GET);
    let read = memory(100);
    start(&a, true, bind(&a, &read), b.id());
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Reply, Ok(()), true)]);
    assert_eq!(content(&read), pattern_bytes(100, 1));
}

#[test]
fn a_node_refuses_its_own_requests() {
    let (_network, a, _b) = pair();
    for (get, answer) in [(true, Reply), (false, Ack)] {
        for to in [a.id(), lnet_nid::ProcessId::lnet(lnet_nid::Nid::LOOPBACK)] {
            start(&a, get, bind(&a, &memory(8)), to);
            assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (answer, Err(Errno::ENODATA), true)]);
        }
    }
    assert!(a.is_quiet());
}

/// A request from a kernel node, or from a program that does not accept refusals, gets no answer
/// (lnet-wire 11).
// Covers: MT-198
#[test]
fn a_request_that_does_not_ask_for_it_is_dropped_without_a_word() {
    let (network, a, b) = pair();
    for get in [true, false] {
        let md = a.bind(&memory(100), 2);
        start(&a, get, md, b.id());
        network.run();
        assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
        a.engine.md_unlink(md).unwrap();
        a.events();
    }
    a.put(bind(&a, &memory(100)), b.id(), 7, AckRequest::NoAck).unwrap();
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
    assert_eq!((b.engine.counters().drop_count, b.engine.counters().send_count), (3, 0));
}

/// Only the target of a request can refuse it, and only once; forged or late refusals are dropped.
#[test]
fn a_refusal_that_is_not_waited_for_is_dropped() {
    let (network, a, b) = pair();
    let c = Node::new(&network, 4);
    start(&a, true, bind(&a, &memory(100)), b.id());
    assert!(network.step());
    let refusal = network.take(0).unwrap();
    let again = |from: &Node, change: &dyn Fn(WireHandle) -> WireHandle| {
        let mut header = refusal.header;
        if let Body::Ack { dst_wmd, .. } = &mut header.body {
            *dst_wmd = change(*dst_wmd);
        }
        header.src = from.id();
        network.arrive(Packet { from: from.nid, to: a.id(), header, payload: Vec::new(), tx: None });
    };
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
    again(&c, &|wmd| wmd);
    again(&b, &|wmd| WireHandle::new(wmd.interface_cookie() + 1, wmd.object_cookie()));
    again(&b, &|wmd| WireHandle::new(wmd.interface_cookie(), wmd.object_cookie() ^ 1));
    assert!(a.events().is_empty());
    again(&b, &|wmd| wmd);
    assert_eq!(brief(&a.events()), [(Reply, Err(Errno::ENODATA), true)]);
    again(&b, &|wmd| wmd);
    assert!(a.events().is_empty());
    assert_eq!(a.engine.counters().drop_count, 4);
}
