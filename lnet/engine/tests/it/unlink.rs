//! Explicit unlink in every state of an operation (lnet-semantics 7).

use std::sync::atomic::Ordering;

use lnet_api::EventKind::{self, Ack, Get, Put, Reply, Send};
use lnet_api::{AckRequest, Errno, LNet, MdOptions, NiLimits, Unlink};

use super::common::*;

const GONE: (EventKind, Result<(), Errno>, bool) = (EventKind::Unlink, Ok(()), true);

#[test]
fn an_idle_descriptor_ends_with_one_unlink_event_at_once() {
    let (_network, node) = one_node();
    let (bound, attached) = (node.bind(&memory(8), 1), node.expect(1, &memory(8), MdOptions::OP_PUT));
    for md in [bound, attached] {
        node.engine.md_unlink(md).unwrap();
        let events = node.events();
        assert_eq!(brief(&events), [GONE]);
        assert_eq!(events[0].md, md);
        assert_eq!(node.engine.md_unlink(md).unwrap_err().errno(), Errno::ENOENT);
    }
}

#[test]
fn waiting_for_an_answer_is_idle() {
    let (network, a, b) = two_nodes();
    b.expect(1, &memory(8), MdOptions::OP_PUT);
    b.expect(2, &memory(8), MdOptions::OP_GET);
    let (put, get) = (a.bind(&memory(8), 2), a.bind(&memory(8), 2));
    a.put(put, b.id(), 1, AckRequest::Ack).unwrap();
    a.get(get, b.id(), 2).unwrap();
    network.step();
    network.step();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false); 2]);
    for md in [put, get] {
        a.engine.md_unlink(md).unwrap();
        assert_eq!(brief(&a.events()), [GONE]);
    }
    // Answers that arrive after the unlink are dropped.
    network.run();
    assert_eq!((a.events(), a.engine.counters().drop_count), (vec![], 2));
    assert_eq!(brief(&b.events()), [(Put, Ok(()), true), (Get, Ok(()), true)]);
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn a_message_being_sent_ends_its_descriptor_with_etimedout() {
    let (network, a, b) = two_nodes();
    for (send, threshold) in [(0, 1), (1, 2), (2, 2)] {
        let md = a.bind(&memory(8), threshold);
        match send {
            0 => a.put(md, b.id(), 1, AckRequest::NoAck),
            1 => a.put(md, b.id(), 1, AckRequest::Ack),
            _ => a.get(md, b.id(), 1),
        }
        .unwrap();
        a.engine.md_unlink(md).unwrap();
        assert_eq!(a.events(), []);
        assert_eq!(a.engine.md_unlink(md).unwrap_err().errno(), Errno::ENOENT);
        network.step();
        assert_eq!(brief(&a.events()), [(Send, Err(Errno::ETIMEDOUT), true)]);
        assert!(a.is_quiet());
    }
}

/// A PUT, a GET or an answer that its network gives back has never been sent, and its credits start
/// other messages.
#[test]
fn a_message_that_has_not_begun_to_leave_is_taken_back() {
    let network = Network::new();
    *network.limits.lock() = NiLimits { credits: 1, peer_credits: 1, ..LIMITS };
    let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
    network.withdraws.store(true, Ordering::Relaxed);
    for kind in 0..3 {
        let (md, after) = (a.bind(&memory(8), 2), a.bind(&memory(8), 1));
        match kind {
            0 => a.put(md, b.id(), 1, AckRequest::NoAck),
            1 => a.put(md, b.id(), 1, AckRequest::Ack),
            _ => a.get(md, b.id(), 1),
        }
        .unwrap();
        a.put(after, b.id(), 7, AckRequest::NoAck).unwrap();
        a.engine.md_unlink(md).unwrap();
        let events = a.events();
        assert_eq!((brief(&events), events[0].md), (vec![(Send, Err(Errno::ECANCELED), true)], md));
        assert_eq!((b.events(), network.queue.lock().len()), (vec![], 1));
        a.engine.audit().unwrap();
        network.run();
        assert_eq!((brief(&a.events()), b.events()), (vec![(Send, Ok(()), true)], vec![]));
        assert!(a.is_quiet());
    }
    // The third kind: an answer.
    let buffer = b.expect(1, &memory(8), MdOptions::OP_GET);
    a.get(a.bind(&memory(8), 2), b.id(), 1).unwrap();
    network.step();
    assert_eq!((network.queue.lock().len(), b.events()), (1, vec![]));
    // The buffer is used up, and ends with its last message.
    match b.engine.md_unlink(buffer) {
        Ok(()) => assert_eq!(brief(&b.events()), [(Get, Err(Errno::ECANCELED), true)]),
        Err(error) => assert_eq!(error.errno(), Errno::ENOENT),
    }
    b.engine.audit().unwrap();
    network.run();
    assert!(b.is_quiet());
}

/// Unlinking an MD withdraws only messages that are still its own: after a later message of another
/// MD, the last message of an MD is still found, and a token that has ended does not name a
/// message of another MD.
#[test]
fn what_is_over_is_not_taken_back() {
    let (network, a, b) = two_nodes();
    network.withdraws.store(true, Ordering::Relaxed);
    let (md, other) = (a.bind(&memory(8), 5), a.bind(&memory(8), 1));
    a.put(md, b.id(), 1, AckRequest::NoAck).unwrap();
    network.step();
    // The message of the other MD uses the slot of the one that has ended.
    a.put(other, b.id(), 1, AckRequest::NoAck).unwrap();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
    a.engine.md_unlink(md).unwrap();
    assert_eq!((brief(&a.events()), network.queue.lock().len()), (vec![GONE], 1));
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), true)]);
    // The last of two messages is withdrawn; the first one ends the MD.
    let md = a.bind(&memory(8), 5);
    a.put(md, b.id(), 1, AckRequest::NoAck).unwrap();
    a.put(md, b.id(), 1, AckRequest::NoAck).unwrap();
    a.engine.md_unlink(md).unwrap();
    assert_eq!(brief(&a.events()), [(Send, Err(Errno::ECANCELED), false)]);
    a.engine.audit().unwrap();
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Err(Errno::ETIMEDOUT), true)]);
    assert!(a.is_quiet());
}

#[test]
fn an_error_of_the_network_is_kept() {
    let (network, a) = one_node();
    let md = a.bind(&memory(8), 1);
    a.put(md, lnet_nid::ProcessId::lnet(nid(3)), 1, AckRequest::NoAck).unwrap();
    a.engine.md_unlink(md).unwrap();
    network.fail(0, Errno::ECONNRESET);
    assert_eq!(brief(&a.events()), [(Send, Err(Errno::ECONNRESET), true)]);
}

#[test]
fn a_queued_message_is_cancelled_at_once() {
    let (network, a, b) = two_nodes();
    let credits = LIMITS.peer_credits as usize;
    for _ in 0..credits {
        a.put(a.bind(&memory(8), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    }
    let (put, get, after) = (a.bind(&memory(8), 2), a.bind(&memory(8), 2), a.bind(&memory(8), 1));
    a.put(put, b.id(), 1, AckRequest::Ack).unwrap();
    a.get(get, b.id(), 1).unwrap();
    a.put(after, b.id(), 1, AckRequest::NoAck).unwrap();
    for md in [put, get] {
        a.engine.md_unlink(md).unwrap();
        let events = a.events();
        assert_eq!((brief(&events), events[0].md), (vec![(Send, Err(Errno::ECANCELED), true)], md));
        a.engine.audit().unwrap();
    }
    assert_eq!(network.queue.lock().len(), credits);
    // One credit is returned, and starts the message behind them.
    network.step();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), true)]);
    assert_eq!(network.queue.lock().len(), credits);
    network.run();
    assert_eq!(a.events().last().map(|event| event.md), Some(after));
    assert!(a.is_quiet());
}

// Covers: S-108
#[test]
fn a_message_being_received_ends_its_descriptor_with_etimedout() {
    let (network, a, b) = two_nodes();
    let me = b.post(1);
    let buffer = memory(8);
    let md = b.engine.md_attach(me, b.md(&buffer, MdOptions::OP_PUT, 5), Unlink::Auto).unwrap();
    a.put(a.bind(&pattern(8, 1), 2), b.id(), 1, AckRequest::Ack).unwrap();
    let packet = network.take(0).unwrap();
    let (token, receiver) = network.arrive_header(&packet).unwrap();
    b.engine.md_unlink(md).unwrap();
    assert_eq!(b.events(), []);
    // The entry is removed at once: no further message matches it.
    assert_eq!(b.engine.me_unlink(me).unwrap_err().errno(), Errno::ENOENT);
    receiver.finalize_rx(token, Ok(()));
    assert_eq!(brief(&b.events()), [(Put, Err(Errno::ETIMEDOUT), true)]);
    assert!(b.is_quiet() || b.engine.counters().msgs_alloc == 1, "the ACK is all that is left");
}

#[test]
fn a_reply_being_received_ends_its_descriptor_with_etimedout() {
    let (network, a, b) = two_nodes();
    b.expect(1, &pattern(8, 1), MdOptions::OP_GET);
    let md = a.bind(&memory(8), 2);
    a.get(md, b.id(), 1).unwrap();
    network.step();
    let packet = network.take(0).unwrap();
    let (token, receiver) = network.arrive_header(&packet).unwrap();
    a.engine.md_unlink(md).unwrap();
    receiver.finalize_rx(token, Ok(()));
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Reply, Err(Errno::ETIMEDOUT), true)]);
}

#[test]
fn an_answer_being_sent_ends_its_descriptor_with_etimedout() {
    let (network, a, b) = two_nodes();
    let me = b.post(1);
    let md = b.engine.md_attach(me, b.md(&pattern(8, 1), MdOptions::OP_GET, 5), Unlink::Auto).unwrap();
    let sink = memory(8);
    a.get(a.bind(&sink, 2), b.id(), 1).unwrap();
    network.step();
    b.engine.me_unlink(me).unwrap();
    assert_eq!((b.events(), b.engine.md_unlink(md).unwrap_err().errno()), (vec![], Errno::ENOENT));
    network.run();
    assert_eq!(brief(&b.events()), [(Get, Err(Errno::ETIMEDOUT), true)]);
    assert_eq!(content(&sink), pattern_bytes(8, 1));
}

// Covers: S-108
#[test]
fn of_several_messages_the_last_one_ends_the_descriptor() {
    let (network, a, b) = two_nodes();
    let md = a.engine.md_bind(a.md(&memory(8), MdOptions::empty(), 9), Unlink::Retain).unwrap();
    for _ in 0..3 {
        a.put(md, b.id(), 1, AckRequest::Ack).unwrap();
    }
    network.step();
    a.engine.md_unlink(md).unwrap();
    network.step();
    network.step();
    let expected = [(Send, Ok(()), false), (Send, Ok(()), false), (Send, Err(Errno::ETIMEDOUT), true)];
    assert_eq!(brief(&a.events()), expected);
    assert!(a.is_quiet());
}

#[test]
fn an_early_answer_does_not_end_a_descriptor_whose_message_is_being_sent() {
    let (network, a, b) = two_nodes();
    b.expect(1, &memory(8), MdOptions::OP_PUT);
    let md = a.bind(&memory(8), 2);
    a.put(md, b.id(), 1, AckRequest::Ack).unwrap();
    let mut put = network.take(0).unwrap();
    let tx = put.tx.take().unwrap();
    network.arrive(put);
    network.run();
    assert_eq!(brief(&a.events()), [(Ack, Ok(()), false)]);
    // The MD is exhausted, but its message has not left yet.
    a.engine.md_unlink(md).unwrap();
    assert_eq!(a.events(), []);
    a.finalize(tx);
    assert_eq!(brief(&a.events()), [(Send, Err(Errno::ETIMEDOUT), true)]);
}
