//! PUTs and GETs at their target: thresholds, packing, truncation, offsets.

use lnet_api::EventKind::{self, Put, Reply, Send};
use lnet_api::{
    AckRequest, Arrival, LNet, Md, MdHandle, MdOptions, MeSpec, PayloadTarget, RxContext, Threshold, Unlink,
    Upcalls, Verdict,
};
use lnet_nid::MatchBits;
use proptest::prelude::*;

use super::common::*;

/// Creates two nodes; everything that `a` sends is addressed to `b`.
fn pair() -> (std::sync::Arc<Network>, Node, Node) {
    let (network, a, b) = two_nodes();
    (network, a, b)
}

fn put_bytes(network: &Network, a: &Node, b: &Node, bits: u64, bytes: usize, seed: u8) {
    a.put(a.bind(&pattern(bytes, seed), 1), b.id(), bits, AckRequest::NoAck).unwrap();
    network.run();
}

fn attach(node: &Node, bits: u64, md: Md, me_unlink: Unlink, md_unlink: Unlink) -> MdHandle {
    let me = node.engine.me_attach(&MeSpec { unlink: me_unlink, ..spec(bits) }).unwrap();
    node.engine.md_attach(me, md, md_unlink).unwrap()
}

// Covers: S-108
#[test]
fn a_threshold_counts_matches_and_the_last_one_unlinks() {
    let (network, a, b) = pair();
    attach(&b, 1, b.md(&memory(100), MdOptions::OP_PUT, 3), Unlink::Auto, Unlink::Auto);
    for seed in 0..4 {
        put_bytes(&network, &a, &b, 1, 10, seed);
    }
    let events = b.events();
    assert_eq!(brief(&events), [(Put, Ok(()), false), (Put, Ok(()), false), (Put, Ok(()), true)]);
    assert_eq!(events.iter().map(|event| event.offset).collect::<Vec<_>>(), [0, 10, 20]);
    assert_eq!((b.engine.counters().drop_count, b.engine.counters().drop_length), (1, 10));
}

#[test]
fn a_retained_descriptor_stays_exhausted_until_it_is_unlinked() {
    let (network, a, b) = pair();
    let md = attach(&b, 1, b.md(&memory(100), MdOptions::OP_PUT, 1), Unlink::Auto, Unlink::Retain);
    let next = memory(100);
    b.expect(1, &next, MdOptions::OP_PUT);
    put_bytes(&network, &a, &b, 1, 10, 1);
    put_bytes(&network, &a, &b, 1, 10, 2);
    assert_eq!(brief(&b.events()), [(Put, Ok(()), false), (Put, Ok(()), true)]);
    assert_eq!(content(&next)[..10], pattern_bytes(10, 2));
    b.engine.md_unlink(md).unwrap();
    assert_eq!(brief(&b.events()), [(EventKind::Unlink, Ok(()), true)]);
}

#[test]
fn a_retained_entry_keeps_its_place_and_takes_another_descriptor() {
    let (network, a, b) = pair();
    let me = b.engine.me_attach(&MeSpec { unlink: Unlink::Retain, ..spec(1) }).unwrap();
    let (first, second, other) = (memory(10), memory(10), memory(10));
    b.engine.md_attach(me, b.md(&first, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    b.expect(1, &other, MdOptions::OP_PUT);
    put_bytes(&network, &a, &b, 1, 10, 1);
    b.engine.md_attach(me, b.md(&second, MdOptions::OP_PUT, 1), Unlink::Auto).unwrap();
    put_bytes(&network, &a, &b, 1, 10, 2);
    assert_eq!((content(&first), content(&second)), (pattern_bytes(10, 1), pattern_bytes(10, 2)));
    assert_eq!(content(&other), [0; 10]);
    b.engine.me_unlink(me).unwrap();
    put_bytes(&network, &a, &b, 1, 10, 3);
    assert_eq!(content(&other), pattern_bytes(10, 3));
}

// Several messages are put into one buffer, one after the other, until less than max_size is left.
// Covers: S-403
#[test]
fn max_size_packs_messages_until_the_rest_is_too_small() {
    let (network, a, b) = pair();
    let buffer = memory(1000);
    let md = Md {
        threshold: Threshold::Infinite,
        max_size: 300,
        ..b.md(&buffer, MdOptions::OP_PUT | MdOptions::MAX_SIZE, 0)
    };
    attach(&b, 1, md, Unlink::Auto, Unlink::Auto);
    // A message too long for max_size is dropped although there is room; the buffer is unchanged.
    put_bytes(&network, &a, &b, 1, 301, 9);
    let lengths = [300, 0, 250, 151];
    for (seed, length) in lengths.into_iter().enumerate() {
        put_bytes(&network, &a, &b, 1, length, seed as u8);
    }
    let events = b.events();
    let last = [false, false, false, true];
    assert_eq!(events.iter().map(|event| event.unlinked).collect::<Vec<_>>(), last);
    let mut at = 0;
    for (seed, (event, length)) in events.iter().zip(lengths).enumerate() {
        assert_eq!((event.offset, event.mlength as usize), (at as u64, length));
        assert_eq!(content(&buffer)[at..at + length], pattern_bytes(length, seed as u8));
        at += length;
    }
    assert_eq!(b.engine.counters().drop_count, 1);
}

#[test]
fn a_match_that_is_too_long_drops_the_message_and_later_entries_are_not_tried() {
    let (network, a, b) = pair();
    let (short, long) = (memory(9), memory(10));
    b.expect(1, &short, MdOptions::OP_PUT);
    b.expect(1, &long, MdOptions::OP_PUT);
    put_bytes(&network, &a, &b, 1, 10, 1);
    assert_eq!(b.events(), []);
    assert_eq!(b.engine.counters().drop_count, 1);
    put_bytes(&network, &a, &b, 1, 9, 1);
    assert_eq!(content(&short), pattern_bytes(9, 1));
}

#[test]
fn truncate_cuts_the_message_and_tells_the_initiator_how_much_was_taken() {
    let (network, a, b) = pair();
    let buffer = memory(6);
    b.expect(1, &buffer, MdOptions::OP_PUT | MdOptions::TRUNCATE);
    a.put(a.bind(&pattern(10, 3), 2), b.id(), 1, AckRequest::Ack).unwrap();
    network.run();
    assert_eq!(content(&buffer), pattern_bytes(10, 3)[..6]);
    let events = b.events();
    assert_eq!((events[0].rlength, events[0].mlength), (10, 6));
    let ack = a.events().pop().unwrap();
    assert_eq!((ack.kind, ack.mlength, ack.unlinked), (EventKind::Ack, 6, true));

    // The GET requests more bytes than there are.
    b.expect(2, &pattern(6, 4), MdOptions::OP_GET | MdOptions::TRUNCATE);
    let sink = memory(10);
    a.get(a.bind(&sink, 2), b.id(), 2).unwrap();
    network.run();
    assert_eq!(content(&sink)[..6], pattern_bytes(6, 4));
    let reply = a.events().pop().unwrap();
    assert_eq!((reply.kind, reply.rlength, reply.mlength, reply.unlinked), (Reply, 6, 6, true));
}

#[test]
fn a_get_of_more_than_there_is_has_no_answer() {
    let (network, a, b) = pair();
    b.expect(2, &pattern(6, 4), MdOptions::OP_GET);
    a.get(a.bind(&memory(7), 2), b.id(), 2).unwrap();
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
    assert_eq!((b.events(), b.engine.counters().drop_count), (vec![], 1));
}

#[test]
fn an_acknowledgement_can_be_disabled() {
    let (network, a, b) = pair();
    b.expect(1, &memory(10), MdOptions::OP_PUT | MdOptions::ACK_DISABLE);
    a.put(a.bind(&pattern(10, 3), 2), b.id(), 1, AckRequest::Ack).unwrap();
    network.run();
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false)]);
    assert_eq!(brief(&b.events()), [(Put, Ok(()), true)]);
    assert!(b.is_quiet() && !a.is_quiet());
}

#[test]
fn puts_and_gets_only_match_where_they_are_allowed() {
    let (network, a, b) = pair();
    let (put, get) = (memory(4), pattern(4, 7));
    b.expect(1, &get, MdOptions::OP_GET);
    b.expect(1, &put, MdOptions::OP_PUT);
    put_bytes(&network, &a, &b, 1, 4, 1);
    assert_eq!(content(&put), pattern_bytes(4, 1));
    let sink = memory(4);
    a.get(a.bind(&sink, 2), b.id(), 1).unwrap();
    network.run();
    assert_eq!(content(&sink), pattern_bytes(4, 7));
}

#[test]
fn a_message_into_memory_that_a_program_looks_at_is_dropped() {
    let (network, a, b) = pair();
    let buffer = pattern(10, 1);
    b.expect(1, &buffer, MdOptions::OP_PUT);
    let held = buffer.read(9..10).unwrap();
    put_bytes(&network, &a, &b, 1, 10, 2);
    assert_eq!((b.events(), b.engine.counters().drop_count), (vec![], 1));
    drop(held);
    // A dropped message does not count: the buffer still takes its one message.
    put_bytes(&network, &a, &b, 1, 10, 2);
    assert_eq!(brief(&b.events()), [(Put, Ok(()), true)]);
}

/// Attaches 16 bytes that any node may write and read, four times.
fn board(node: &Node) -> lnet_region::IoVec {
    let memory = pattern(16, 1);
    let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
    attach(node, 1, node.md(&memory, options, 4), Unlink::Auto, Unlink::Auto);
    memory
}

/// A PUT is received into bytes of an answer that the LND has not finalised yet: the peer has
/// received the answer, and its next message is for the same bytes.
#[test]
fn a_put_is_received_where_an_answer_is_still_being_sent() {
    let (network, a, b) = pair();
    let board = board(&b);
    let sink = memory(16);
    a.get(a.bind(&sink, 2), b.id(), 1).unwrap();
    network.step();
    a.put(a.bind(&pattern(16, 2), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    assert!(board.write(0..1).is_err(), "the answer is being sent");
    assert_eq!(board.read(0..16).unwrap().to_vec(), pattern_bytes(16, 1), "which is no reason not to look");
    network.queue.lock().swap(0, 1);
    network.step();
    assert_eq!(brief(&b.events()), [(Put, Ok(()), false)]);
    assert_eq!(content(&board), pattern_bytes(16, 2));
    network.run();
    assert_eq!(
        (brief(&b.events()), b.engine.counters().drop_count),
        (vec![(EventKind::Get, Ok(()), false)], 0)
    );
    assert!(a.is_quiet() && b.is_quiet());
    assert!(board.write(0..16).is_ok());
}

/// Two PUTs and a GET for overlapping bytes are received at the same time, in any order.
#[test]
fn messages_for_the_same_bytes_do_not_keep_each_other_out() {
    let (network, a, b) = pair();
    let board = board(&b);
    for seed in [2, 3] {
        a.put(a.bind(&pattern(12, seed), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    }
    a.get(a.bind(&memory(16), 2), b.id(), 1).unwrap();
    let headers: Vec<_> = network.queue.lock().iter().map(|packet| packet.header).collect();
    let mut sinks = Vec::new();
    for (header, rx) in headers.iter().zip(1000..) {
        let arrival = Arrival { ni: b.nid, from: a.id(), header, host: None, rx: RxContext(rx) };
        match b.engine.parse(&arrival) {
            Verdict::Deliver(PayloadTarget { token, sink }) => sinks.push((token, sink.expect("room"))),
            verdict => assert!(matches!(verdict, Verdict::Done), "{verdict:?}"),
        }
    }
    assert_eq!(sinks.len(), 2);
    assert!(board.read(11..12).is_err(), "a program sees no bytes that are being received");
    assert!(board.read(12..16).is_ok());
    for ((token, mut sink), seed) in sinks.into_iter().rev().zip([3, 2]) {
        assert!(sink.as_slice().is_none() && sink.as_mut_slice().is_none());
        assert_eq!(sink.copy_from(0, &pattern_bytes(12, seed)), 12);
        drop(sink);
        b.engine.finalize_rx(token, Ok(()));
    }
    assert_eq!(content(&board)[..12], pattern_bytes(12, 2));
    (0..3).for_each(|_| network.lose(0));
    network.run();
    assert_eq!(
        brief(&b.events()),
        [(Put, Ok(()), false), (Put, Ok(()), false), (EventKind::Get, Ok(()), false)]
    );
    assert_eq!(b.engine.counters().drop_count, 0);
    assert!(board.write(0..16).is_ok());
}

proptest! {
    // lnet-wire 13: with MANAGE_REMOTE the header's offset is used. A message at an offset beyond
    // the end is too long.
    #[test]
    fn remote_offsets_go_where_they_say_or_nowhere(
        length in 0usize..40, offset in 0u32..50, truncate: bool, size in 1usize..40
    ) {
        let (network, a, b) = pair();
        let buffer = memory(size);
        let mut options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE;
        options.set(MdOptions::TRUNCATE, truncate);
        b.expect(1, &buffer, options);
        a.engine.put(&lnet_api::Put {
            source: None,
            md: a.bind(&pattern(length, 1), 1),
            ack: AckRequest::NoAck,
            target: b.id(),
            portal: portal(),
            match_bits: MatchBits(1),
            offset,
            hdr_data: 0,
        }).unwrap();
        network.run();
        let at = offset as usize;
        let room = size.checked_sub(at);
        let taken = room.filter(|&room| truncate || length <= room).map(|room| room.min(length));
        let events = b.events();
        match taken {
            None => prop_assert_eq!(events.len(), 0),
            Some(taken) => {
                prop_assert_eq!((events[0].offset, events[0].mlength as usize), (u64::from(offset), taken));
                prop_assert_eq!(&content(&buffer)[at..at + taken], &pattern_bytes(length, 1)[..taken]);
                let mut rest = content(&buffer);
                rest.drain(at..at + taken);
                prop_assert!(rest.iter().all(|&byte| byte == 0));
            }
        }
    }
}
