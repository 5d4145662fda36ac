//! Lazy portals: messages that wait for a buffer (S-109, lnet-semantics 11).

use lnet_api::EventKind::{Ack, Put, Send};
use lnet_api::{
    AckRequest, Arrival, LNet, Md, MdOptions, RxContext, RxToken, Threshold, Unlink, Upcalls, Verdict,
};
use lnet_nid::{MatchBits, ProcessId};
use lnet_proto::{Body, Header, WireHandle};

use super::common::*;

// Covers: S-109
#[test]
fn puts_wait_for_a_buffer_and_are_taken_in_order() {
    let (network, a, b) = two_nodes();
    b.engine.set_lazy(portal(), true);
    for seed in 0..5 {
        let bits = if seed == 2 { 9 } else { 1 };
        a.put(a.bind(&pattern(10, seed), 2), b.id(), bits, AckRequest::Ack).unwrap();
        network.run();
    }
    assert_eq!((network.verdicts().delayed, b.events().len()), (5, 0));
    // The buffer takes three messages: those with other bits and those beyond three continue to
    // wait.
    let buffer = memory(30);
    b.engine.md_attach(b.post(1), b.md(&buffer, MdOptions::OP_PUT, 3), Unlink::Auto).unwrap();
    let events = b.events();
    assert_eq!(brief(&events), [(Put, Ok(()), false), (Put, Ok(()), false), (Put, Ok(()), true)]);
    let expected = [0, 1, 3].map(|seed| pattern_bytes(10, seed)).concat();
    assert_eq!(content(&buffer), expected);
    network.run();
    let acks = a.events().iter().filter(|event| event.kind == Ack).count();
    assert_eq!(acks, 3);
    let rest = memory(10);
    b.expect(9, &rest, MdOptions::OP_PUT);
    assert_eq!(content(&rest), pattern_bytes(10, 2));
}

// Covers: S-109
#[test]
fn a_waiting_message_that_is_too_long_is_dropped_when_its_buffer_comes() {
    let (network, a, b) = two_nodes();
    b.engine.set_lazy(portal(), true);
    for bytes in [11, 10] {
        a.put(a.bind(&pattern(bytes, 1), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    }
    network.run();
    b.expect(1, &memory(10), MdOptions::OP_PUT);
    assert_eq!(brief(&b.events()), [(Put, Ok(()), true)]);
    assert_eq!((b.engine.counters().drop_count, b.engine.counters().drop_length), (1, 11));
}

#[test]
fn empty_and_local_messages_wait_too() {
    let (network, a, b) = two_nodes();
    b.engine.set_lazy(portal(), true);
    a.put(a.bind(&memory(0), 2), b.id(), 1, AckRequest::Ack).unwrap();
    network.run();
    b.put(b.bind(&pattern(10, 3), 1), b.id(), 2, AckRequest::NoAck).unwrap();
    assert_eq!(b.events(), []);
    b.expect(1, &memory(10), MdOptions::OP_PUT);
    network.run();
    assert_eq!(brief(&b.events()), [(Put, Ok(()), true)]);
    assert_eq!(brief(&a.events()), [(Send, Ok(()), false), (Ack, Ok(()), true)]);
    let buffer = memory(10);
    b.expect(2, &buffer, MdOptions::OP_PUT);
    assert_eq!(brief(&b.events()), [(Send, Ok(()), true), (Put, Ok(()), true)]);
    assert_eq!(content(&buffer), pattern_bytes(10, 3));
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn gets_never_wait() {
    let (network, a, b) = two_nodes();
    b.engine.set_lazy(portal(), true);
    a.get(a.bind(&memory(4), 2), b.id(), 1).unwrap();
    network.run();
    assert_eq!((network.verdicts().discarded, network.verdicts().delayed), (1, 0));
}

// Covers: S-109
#[test]
fn clearing_a_lazy_portal_drops_what_waits() {
    let (network, a, b) = two_nodes();
    b.engine.set_lazy(portal(), true);
    for _ in 0..3 {
        a.put(a.bind(&memory(4), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    }
    b.put(b.bind(&memory(4), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    network.run();
    b.engine.set_lazy(portal(), false);
    assert_eq!(brief(&b.events()), [(Send, Ok(()), true)]);
    let md = Md { threshold: Threshold::Infinite, ..b.md(&memory(4), MdOptions::OP_PUT, 0) };
    b.engine.md_attach(b.post(1), md, Unlink::Auto).unwrap();
    assert_eq!((b.events(), b.engine.counters().drop_count), (vec![], 4));
    assert!(b.is_quiet());
}

// Covers: S-109
#[test]
fn a_hostile_peer_fills_only_so_many_places() {
    let network = Network::new();
    let mut config = lnet::EngineConfig::new(lnet_nid::Pid::LNET, 1);
    config.limits.delayed = 3;
    let (a, b) = (Node::new(&network, 2), Node::with_config(&network, 3, config));
    b.engine.set_lazy(portal(), true);
    for _ in 0..5 {
        a.put(a.bind(&memory(4), 1), b.id(), 1, AckRequest::NoAck).unwrap();
    }
    network.run();
    assert_eq!((network.verdicts().delayed, network.verdicts().discarded), (3, 2));
}

// Covers: S-109
#[test]
fn a_waiting_message_whose_connection_is_lost_leaves_its_place() {
    let network = Network::new();
    let mut config = lnet::EngineConfig::new(lnet_nid::Pid::LNET, 1);
    config.limits.delayed = 4;
    let b = Node::with_config(&network, 3, config);
    b.engine.set_lazy(portal(), true);
    let body = Body::Put {
        ack_wmd: WireHandle::NONE,
        match_bits: MatchBits(1),
        hdr_data: 0,
        portal: portal().get(),
        offset: 0,
    };
    let (dest, src) = (b.id(), ProcessId::lnet(nid(2)));
    let header = Header { dest, src, payload_length: 4, body };
    let arrive =
        || b.engine.parse(&Arrival { ni: b.nid, from: src, header: &header, host: None, rx: RxContext(9) });
    for _ in 0..100 {
        let tokens: Vec<RxToken> = (0..4)
            .map(|_| match arrive() {
                Verdict::Delay(token) => token,
                other => panic!("there is room, so it waits: {other:?}"),
            })
            .collect();
        assert!(matches!(arrive(), Verdict::Discard));
        for token in tokens {
            // The token of a delayed message is not that of a receive.
            b.engine.finalize_rx(token, Ok(()));
            assert!(b.engine.forget_delayed(token));
            assert!(!b.engine.forget_delayed(token));
        }
    }
    assert!(b.is_quiet());
}
