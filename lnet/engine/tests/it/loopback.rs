//! Messages of a node to itself (lnet-wire 14): no LND, no credits, the same events.

use lnet_api::EventKind::{Ack, Get, Put, Reply, Send};
use lnet_api::{AckRequest, Event, EventKind, LNet, MdOptions};
use lnet_nid::{Nid, ProcessId};
use nlx_testkit::events::on_wake;

use super::common::*;

/// Returns an event handler whose `wake` sends the next message from the node to itself, `messages`
/// times in all.
fn relay(node: &Node, messages: u32) -> std::sync::Arc<dyn lnet_api::EventHandler> {
    let (node, left) = (std::sync::Arc::downgrade(&node.engine), std::sync::atomic::AtomicU32::new(messages));
    on_wake(move || {
        use std::sync::atomic::Ordering::Relaxed;
        let Some(node) = node.upgrade() else { return };
        if left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            return;
        }
        let md = lnet_api::Md {
            memory: memory(1),
            threshold: lnet_api::Threshold::Limited(1),
            max_size: 0,
            options: MdOptions::empty(),
            user_ptr: 0,
            eq: None,
        };
        let put = lnet_api::Put {
            source: None,
            md: node.md_bind(md, lnet_api::Unlink::Auto).unwrap(),
            ack: AckRequest::NoAck,
            target: ProcessId::lnet(Nid::LOOPBACK),
            portal: portal(),
            match_bits: lnet_nid::MatchBits(1),
            offset: 0,
            hdr_data: 0,
        };
        node.put(&put).unwrap();
    })
}

/// The stack does not grow while each message causes the next one.
#[test]
fn messages_sent_from_inside_wake_go_on_for_ever() {
    const MESSAGES: u32 = 100_000;
    let (_network, node) = one_node();
    let eq = node.engine.eq_alloc(relay(&node, MESSAGES)).unwrap();
    let inbox = lnet_api::Md {
        eq: Some(eq),
        threshold: lnet_api::Threshold::Infinite,
        ..node.md(&memory(1), MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE, 0)
    };
    node.engine.md_attach(node.post(1), inbox, lnet_api::Unlink::Retain).unwrap();
    node.put(node.bind(&memory(1), 1), node.id(), 1, AckRequest::NoAck).unwrap();
    assert_eq!(node.engine.counters().recv_count, u64::from(MESSAGES) + 1);
}

/// Returns a node's own addresses, and the source of its own messages at each.
fn names(node: &Node) -> [ProcessId; 2] {
    [ProcessId::lnet(Nid::LOOPBACK), node.id()]
}

fn of_kind(events: &[Event], kind: EventKind) -> Event {
    let mut found = events.iter().filter(|event| event.kind == kind);
    let event = *found.next().expect("an event of this kind");
    assert!(found.next().is_none(), "only one {kind:?}");
    event
}

#[test]
fn a_node_puts_and_gets_to_and_from_itself() {
    for bytes in [0, 1, 5000, 1 << 20] {
        let (network, node) = one_node();
        for (seed, target) in names(&node).into_iter().enumerate() {
            let (from, to) = (pattern(bytes, seed as u8), memory(bytes));
            node.expect(1, &to, MdOptions::OP_PUT);
            node.put(node.bind(&from, 2), target, 1, AckRequest::Ack).unwrap();
            assert_eq!(content(&to), pattern_bytes(bytes, seed as u8));
            let events = node.events();
            assert_eq!(events.len(), 3);
            let (put, ack) = (of_kind(&events, Put), of_kind(&events, Ack));
            assert!(put.unlinked && events.iter().filter(|event| event.unlinked).count() == 2);
            assert_eq!(
                (put.source, put.target, put.initiator, put.sender),
                (target, target, target, target.nid)
            );
            assert_eq!((put.mlength, ack.mlength), (bytes as u32, bytes as u32));
            of_kind(&events, Send);

            let sink = memory(bytes);
            node.expect(2, &from, MdOptions::OP_GET);
            node.get(node.bind(&sink, 2), target, 2).unwrap();
            assert_eq!(content(&sink), pattern_bytes(bytes, seed as u8));
            let events = node.events();
            assert_eq!(events.len(), 3);
            assert!(of_kind(&events, Get).unlinked);
            assert_eq!(of_kind(&events, Reply).mlength, bytes as u32);
            assert!(of_kind(&events, Reply).unlinked != of_kind(&events, Send).unlinked);
        }
        assert!(node.is_quiet() && network.queue.lock().is_empty());
    }
}

#[test]
fn credits_do_not_count() {
    let network = Network::new();
    *network.limits.lock() = lnet_api::NiLimits { credits: 1, peer_credits: 1, ..LIMITS };
    let node = Node::new(&network, 2);
    node.put(node.bind(&memory(1), 1), ProcessId::lnet(nid(3)), 1, AckRequest::NoAck).unwrap();
    for _ in 0..100 {
        node.expect(1, &memory(4), MdOptions::OP_PUT);
        node.put(node.bind(&memory(4), 1), node.id(), 1, AckRequest::NoAck).unwrap();
    }
    assert_eq!(node.events().len(), 200);
}

#[test]
fn what_is_not_wanted_is_dropped_and_its_answer_is_late() {
    let (_network, node) = one_node();
    node.get(node.bind(&memory(4), 2), ProcessId::lnet(Nid::LOOPBACK), 1).unwrap();
    assert_eq!(brief(&node.events()), [(Send, Ok(()), false)]);
    node.engine.advance(150_000_000_000);
    assert_eq!(brief(&node.events()), [(Reply, Err(lnet_api::Errno::ETIMEDOUT), true)]);
    assert!(node.is_quiet());
}

#[test]
fn a_message_into_its_own_memory_arrives() {
    let (_network, node) = one_node();
    let buffer = pattern(16, 1);
    node.expect(1, &buffer, MdOptions::OP_PUT);
    node.put(node.bind(&buffer, 1), node.id(), 1, AckRequest::NoAck).unwrap();
    assert_eq!(brief(&node.events()), [(Send, Ok(()), true), (Put, Ok(()), true)]);
    assert_eq!((node.engine.counters().drop_count, content(&buffer)), (0, pattern_bytes(16, 1)));
}

#[test]
fn a_second_name_of_the_node_is_local_too() {
    let (network, node) = one_node();
    node.engine.add_ni(ProcessId::lnet(nid(5)), network.clone()).unwrap();
    let to = memory(4);
    node.expect(1, &to, MdOptions::OP_PUT);
    node.put(node.bind(&pattern(4, 4), 1), ProcessId::lnet(nid(5)), 1, AckRequest::NoAck).unwrap();
    assert_eq!(content(&to), pattern_bytes(4, 4));
    let ids: Vec<ProcessId> = [Nid::LOOPBACK, nid(2), nid(5)].map(ProcessId::lnet).into();
    assert_eq!(node.engine.local_ids(), ids);
}

/// A handler that panics does not affect the others: they are woken, now and later.
#[test]
fn a_handler_that_panics_takes_no_wake_up_along() {
    let (_network, node) = one_node();
    let (woken, wakes) = std::sync::mpsc::channel();
    let panics = on_wake(move || {
        woken.send(()).unwrap();
        panic!("a handler of the test's");
    });
    let eq = node.engine.eq_alloc(panics).unwrap();
    for round in 1..=2 {
        node.expect(1, &memory(1), MdOptions::OP_PUT);
        let md = lnet_api::Md { eq: Some(eq), ..node.md(&memory(1), MdOptions::empty(), 1) };
        let md = node.engine.md_bind(md, lnet_api::Unlink::Auto).unwrap();
        let put = || node.put(md, node.id(), 1, AckRequest::NoAck);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(put)).is_err());
        assert_eq!(wakes.try_iter().count(), 1);
        // The sender's event came first, the buffer's second.
        assert_eq!(node.log.wakes(), round);
    }
    assert!(node.is_quiet());
}
