//! The messages that a peer may send, and the handling of all others (lnet-wire 9).

use lnet_api::{AckRequest, Arrival, Errno, LNet, MdOptions, RxContext, Upcalls, Verdict};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use proptest::prelude::*;

use super::common::*;

fn put(portal: u32) -> Body {
    Body::Put { ack_wmd: WireHandle::NONE, match_bits: MatchBits(1), hdr_data: 0, portal, offset: 0 }
}

fn get() -> Body {
    Body::Get {
        return_wmd: WireHandle::new(1, 1),
        match_bits: MatchBits(1),
        portal: 34,
        src_offset: 0,
        sink_length: 8,
    }
}

fn ack() -> Body {
    Body::Ack { dst_wmd: WireHandle::new(1, 1), match_bits: MatchBits(1), mlength: 0 }
}

fn reply() -> Body {
    Body::Reply { dst_wmd: WireHandle::new(1, 1) }
}

fn parse(node: &Node, dest: Nid, src: Nid, payload_length: u32, body: Body) -> Verdict {
    parse_from(node, nid(3), dest, src, payload_length, body)
}

/// Delivers a header over the connection of `from`, with `src` as its source.
fn parse_from(node: &Node, from: Nid, dest: Nid, src: Nid, payload_length: u32, body: Body) -> Verdict {
    let header = Header { dest: ProcessId::lnet(dest), src: ProcessId::lnet(src), payload_length, body };
    let from = ProcessId::lnet(from);
    node.engine.parse(&Arrival { ni: node.nid, from, header: &header, host: None, rx: RxContext(1) })
}

fn closes(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Close(Errno::EPROTO))
}

fn discards(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Discard)
}

#[test]
fn messages_that_break_the_protocol_close_the_connection() {
    let (network, node) = one_node();
    node.engine.add_ni(ProcessId::lnet("10.77.0.9@tcp1".parse().unwrap()), network.clone()).unwrap();
    let (here, there) = (node.nid, nid(3));
    // Rows 1 and 2: payload behind a message type that has none, and too much payload.
    assert!(closes(parse(&node, here, there, 1, ack())));
    assert!(closes(parse(&node, here, there, 1, get())));
    assert!(closes(parse(&node, here, there, (1 << 20) + 1, put(34))));
    assert!(closes(parse(&node, here, there, (1 << 20) + 1, reply())));
    // Row 4: the destination is another node of this network, to which the message should have gone
    // directly.
    assert!(closes(parse(&node, nid(4), there, 0, put(34))));
    // Row 5: the destination is another NID of this node, loopback included.
    assert!(closes(parse(&node, "10.77.0.9@tcp1".parse().unwrap(), there, 0, put(34))));
    assert!(closes(parse(&node, Nid::LOOPBACK, there, 0, put(34))));
    assert_eq!(node.engine.counters().drop_count, 0);
}

#[test]
fn unwanted_messages_are_dropped() {
    let (_network, node) = one_node();
    let (here, there) = (node.nid, nid(3));
    // Row 7: the destination is on another network; this node does not route.
    assert!(discards(parse(&node, "10.0.0.1@o2ib".parse().unwrap(), there, 10, put(34))));
    // Messages without an entry, with a portal that does not exist, and with a handle of another
    // node.
    assert!(discards(parse(&node, here, there, 20, put(34))));
    assert!(discards(parse(&node, here, there, 30, put(64))));
    assert!(discards(parse(&node, here, there, 40, put(u32::MAX))));
    assert!(discards(parse(&node, here, there, 0, get())));
    assert!(discards(parse(&node, here, there, 0, ack())));
    assert!(discards(parse(&node, here, there, 50, reply())));
    // Messages with an invalid source.
    assert!(discards(parse(&node, here, Nid::LOOPBACK, 60, put(34))));
    assert!(discards(parse(&node, here, Nid::ANY, 70, put(34))));
    let counters = node.engine.counters();
    assert_eq!((counters.drop_count, counters.drop_length), (9, 10 + 20 + 30 + 40 + 50 + 60 + 70));
    assert!(node.is_quiet());
}

#[test]
fn no_peer_speaks_as_this_node() {
    let (network, node) = one_node();
    let other: Nid = "10.77.0.9@tcp1".parse().unwrap();
    node.engine.add_ni(ProcessId::lnet(other), network.clone()).unwrap();
    let buffer = memory(8);
    node.expect(1, &buffer, MdOptions::OP_PUT);
    for ours in [node.nid, other, Nid::LOOPBACK] {
        assert!(discards(parse(&node, node.nid, ours, 8, put(34))));
    }
    assert_eq!(node.engine.counters().drop_count, 3);
    assert!(matches!(parse(&node, node.nid, nid(3), 8, put(34)), Verdict::Deliver(_)));
}

#[test]
fn only_pushes_are_taken_on_the_nodes_own_portal() {
    let (_network, node) = one_node();
    assert!(discards(parse(&node, node.nid, nid(3), 10, put(0))));
    assert!(discards(parse(&node, node.nid, nid(3), 0, put(0))));
}

#[test]
fn a_peer_that_asks_and_takes_no_answers_is_not_answered_for_ever() {
    let (network, node) = one_node();
    let options = MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
    let threshold = lnet_api::Threshold::Infinite;
    let md = lnet_api::Md { threshold, eq: None, ..node.md(&memory(0), options, 0) };
    node.engine.md_attach(node.post(1), md, lnet_api::Unlink::Retain).unwrap();
    let body = Body::Get {
        return_wmd: WireHandle::new(1, 1),
        match_bits: MatchBits(1),
        portal: 34,
        src_offset: 0,
        sink_length: 0,
    };
    let mut answered = 0;
    while matches!(parse(&node, node.nid, nid(3), 0, body), Verdict::Done) {
        answered += 1;
    }
    assert_eq!((answered, node.engine.counters().drop_count), (2048, 1));
    // Requests of other peers are still answered.
    let header = Header { dest: node.id(), src: ProcessId::lnet(nid(4)), payload_length: 0, body };
    let arrival = Arrival { ni: node.nid, from: header.src, header: &header, host: None, rx: RxContext(1) };
    assert!(matches!(node.engine.parse(&arrival), Verdict::Done));
    network.run();
    assert!(node.is_quiet());
    assert!(matches!(parse(&node, node.nid, nid(3), 0, body), Verdict::Done));
}

#[test]
fn what_this_node_sends_a_peer_takes_no_answer_from_it() {
    let (network, a, b) = two_nodes();
    let threshold = lnet_api::Threshold::Infinite;
    let md = lnet_api::Md { threshold, ..b.md(&memory(0), MdOptions::empty(), 0) };
    let md = b.engine.md_bind(md, lnet_api::Unlink::Retain).unwrap();
    for _ in 0..2000 {
        b.put(md, a.id(), 1, AckRequest::NoAck).unwrap();
    }
    b.expect(1, &pattern(8, 1), MdOptions::OP_GET);
    let sink = memory(8);
    a.get(a.bind(&sink, 2), b.id(), 1).unwrap();
    network.run();
    assert_eq!(content(&sink), pattern_bytes(8, 1));
    assert!(a.is_quiet() && b.is_quiet());
}

#[test]
fn peers_that_take_no_answers_leave_room_for_the_others() {
    let network = Network::new();
    let mut config = lnet::EngineConfig::new(lnet_nid::Pid::LNET, 1);
    config.limits.messages = 600;
    let node = Node::with_config(&network, 2, config);
    let options = MdOptions::OP_GET | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE;
    let threshold = lnet_api::Threshold::Infinite;
    let md = lnet_api::Md { threshold, eq: None, ..node.md(&memory(0), options, 0) };
    node.engine.md_attach(node.post(1), md, lnet_api::Unlink::Retain).unwrap();
    let ask = |last| {
        let header =
            Header { dest: node.id(), src: ProcessId::lnet(nid(last)), payload_length: 0, body: get() };
        let arrival =
            Arrival { ni: node.nid, from: header.src, header: &header, host: None, rx: RxContext(1) };
        matches!(node.engine.parse(&arrival), Verdict::Done)
    };
    // Ten peers of one partition send requests until they are refused.
    for number in 1..11 {
        while ask(neighbour(3, number)) {}
    }
    assert!(node.engine.counters().msgs_alloc < 600 * 3 / 4);
    // A peer with credits is answered.
    for _ in 0..LIMITS.peer_credits {
        assert!(ask(3));
    }
    network.run();
    assert!(node.is_quiet());
}

#[test]
fn an_ni_that_is_not_there_takes_nothing() {
    let (_network, node) = one_node();
    let header = Header {
        dest: ProcessId::lnet(nid(8)),
        src: ProcessId::lnet(nid(3)),
        payload_length: 5,
        body: put(34),
    };
    let arrival =
        Arrival { ni: nid(8), from: ProcessId::lnet(nid(3)), header: &header, host: None, rx: RxContext(1) };
    assert!(discards(node.engine.parse(&arrival)));
}

#[test]
fn answers_need_the_handle_of_this_life_and_an_open_request_of_their_kind() {
    let (network, a, b) = two_nodes();
    b.expect(1, &pattern(8, 1), MdOptions::OP_GET);
    let md = a.bind(&memory(8), 2);
    a.get(md, b.id(), 1).unwrap();
    network.lose(0);
    let ours = WireHandle::new(cookie(2), md.0);
    let before = WireHandle::new(cookie(2) - 1, md.0);
    let never = WireHandle::new(cookie(2), md.0 + (1 << 32));
    for wmd in [before, never, WireHandle::NONE] {
        assert!(discards(parse(&a, a.nid, b.nid, 8, Body::Reply { dst_wmd: wmd })));
    }
    // An ACK does not end a GET.
    assert!(discards(parse(
        &a,
        a.nid,
        b.nid,
        0,
        Body::Ack { dst_wmd: ours, match_bits: MatchBits(1), mlength: 0 }
    )));
    // A REPLY longer than the memory is refused.
    assert!(discards(parse(&a, a.nid, b.nid, 9, Body::Reply { dst_wmd: ours })));
    a.events();
    let verdict = parse(&a, a.nid, b.nid, 8, Body::Reply { dst_wmd: ours });
    let Verdict::Deliver(delivery) = verdict else { panic!("{verdict:?}") };
    let token = delivery.token;
    drop(delivery);
    // A second REPLY is refused while the first is being received.
    assert!(discards(parse(&a, a.nid, b.nid, 8, Body::Reply { dst_wmd: ours })));
    a.engine.finalize_rx(token, Ok(()));
    assert!(discards(parse(&a, a.nid, b.nid, 8, Body::Reply { dst_wmd: ours })));
    assert_eq!(a.events().len(), 1);
    assert!(a.is_quiet());
}

#[test]
fn a_second_ack_is_not_counted() {
    let (network, a, b) = two_nodes();
    let md =
        lnet_api::Md { threshold: lnet_api::Threshold::Infinite, ..a.md(&memory(8), MdOptions::empty(), 0) };
    let md = a.engine.md_bind(md, lnet_api::Unlink::Auto).unwrap();
    a.put(md, b.id(), 1, AckRequest::Ack).unwrap();
    network.lose(0);
    let ack =
        || Body::Ack { dst_wmd: WireHandle::new(cookie(2), md.0), match_bits: MatchBits(1), mlength: 8 };
    assert!(matches!(parse(&a, a.nid, b.nid, 0, ack()), Verdict::Done));
    assert!(discards(parse(&a, a.nid, b.nid, 0, ack())));
}

#[test]
fn an_answer_belongs_to_the_request_that_went_where_it_comes_from() {
    let (network, a) = one_node();
    let md =
        lnet_api::Md { threshold: lnet_api::Threshold::Infinite, ..a.md(&memory(8), MdOptions::empty(), 0) };
    let md = a.engine.md_bind(md, lnet_api::Unlink::Auto).unwrap();
    for last in [3, 4] {
        a.put(md, ProcessId::lnet(nid(last)), 1, AckRequest::Ack).unwrap();
        network.lose(0);
    }
    let body = Body::Ack { dst_wmd: WireHandle::new(cookie(2), md.0), match_bits: MatchBits(1), mlength: 8 };
    // A node cannot answer in the name of another one, even with the right handle.
    assert!(discards(parse_from(&a, nid(3), a.nid, nid(4), 0, body)));
    assert!(discards(parse_from(&a, nid(5), a.nid, nid(4), 0, body)));
    assert!(matches!(parse_from(&a, nid(4), a.nid, nid(4), 0, body), Verdict::Done));
    a.events();
    // The GET still waits for the answer of node 3.
    a.engine.peer_lost(a.nid, ProcessId::lnet(nid(4)), Errno::EIO);
    assert_eq!(a.events(), []);
    a.engine.peer_lost(a.nid, ProcessId::lnet(nid(3)), Errno::EIO);
    assert_eq!(a.events().len(), 1);
}

#[test]
fn only_the_node_that_was_asked_can_answer() {
    let (network, a) = one_node();
    let md = a.bind(&memory(8), 2);
    a.put(md, ProcessId::lnet(nid(3)), 1, AckRequest::Ack).unwrap();
    network.lose(0);
    let put = a.bind(&memory(8), 2);
    a.get(put, ProcessId::lnet(nid(3)), 1).unwrap();
    network.lose(0);
    a.events();
    let ack = Body::Ack { dst_wmd: WireHandle::new(cookie(2), md.0), match_bits: MatchBits(1), mlength: 8 };
    let reply = Body::Reply { dst_wmd: WireHandle::new(cookie(2), put.0) };
    assert!(discards(parse(&a, a.nid, nid(4), 0, ack)));
    assert!(discards(parse(&a, a.nid, nid(4), 8, reply)));
    assert_eq!((a.events(), a.engine.counters().rst_alloc), (vec![], 2));
    // Node 3 announces a second NID, which may then also answer.
    super::ping::push_nids(&network, &a, nid(3), &[nid(3), nid(4)]);
    assert!(matches!(parse(&a, a.nid, nid(4), 0, ack), Verdict::Done));
    assert!(matches!(parse(&a, a.nid, nid(4), 8, reply), Verdict::Deliver(_)));
}

#[test]
fn a_descriptor_may_expect_answers_from_very_many_peers() {
    let (network, node) = one_node();
    let md = lnet_api::Md {
        threshold: lnet_api::Threshold::Infinite,
        ..node.md(&memory(0), MdOptions::empty(), 0)
    };
    let md = node.engine.md_bind(md, lnet_api::Unlink::Auto).unwrap();
    let peers: Vec<Nid> = (0..2000).map(|n| Nid::new_numeric(lnet_nid::Net::TCP, 0x0a58_0000 + n)).collect();
    for &peer in &peers {
        node.put(md, ProcessId::lnet(peer), 1, AckRequest::Ack).unwrap();
        network.lose(0);
    }
    let body = Body::Ack { dst_wmd: WireHandle::new(cookie(2), md.0), match_bits: MatchBits(1), mlength: 0 };
    for &peer in peers.iter().rev() {
        let header = Header { dest: node.id(), src: ProcessId::lnet(peer), payload_length: 0, body };
        let arrival =
            Arrival { ni: node.nid, from: header.src, header: &header, host: None, rx: RxContext(1) };
        assert!(matches!(node.engine.parse(&arrival), Verdict::Done), "{peer}");
    }
    assert!(node.is_quiet());
}

fn bodies() -> impl Strategy<Value = Body> {
    let handle = prop_oneof![
        Just(WireHandle::NONE),
        (0x1000u64..0x1004, any::<u64>()).prop_map(|(a, b)| WireHandle::new(a, b)),
        (0u64..4, 0u64..6)
            .prop_map(|(generation, index)| WireHandle::new(cookie(2), generation << 32 | index))
    ];
    let bits = prop_oneof![0u64..3, Just(MatchBits::PING.0), any::<u64>()].prop_map(MatchBits);
    let portal = || prop_oneof![Just(34u32), Just(0), 0u32..70, any::<u32>()];
    let number = || prop_oneof![0u32..200, any::<u32>()];
    (0u8..4, handle, bits, portal(), number(), number(), any::<u64>()).prop_map(
        |(kind, wmd, match_bits, portal, offset, length, hdr_data)| match kind {
            0 => Body::Ack { dst_wmd: wmd, match_bits, mlength: length },
            1 => Body::Put { ack_wmd: wmd, match_bits, hdr_data, portal, offset },
            2 => Body::Get { return_wmd: wmd, match_bits, portal, src_offset: offset, sink_length: length },
            _ => Body::Reply { dst_wmd: wmd },
        },
    )
}

proptest! {
    // A peer may send any messages in any order: nothing panics, and nothing is left.
    #[test]
    fn a_hostile_peer_breaks_nothing(
        messages in prop::collection::vec((bodies(), prop_oneof![0u32..2000, any::<u32>()], any::<bool>(), 0u8..9), 1..80)
    ) {
        let (network, node) = one_node();
        let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE;
        let md = lnet_api::Md { threshold: lnet_api::Threshold::Infinite, ..node.md(&memory(100), options, 0) };
        node.engine.md_attach(node.post(1), md, lnet_api::Unlink::Retain).unwrap();
        node.get(node.bind(&memory(50), 2), ProcessId::lnet(nid(3)), 1).unwrap();
        let infinite = lnet_api::Md { threshold: lnet_api::Threshold::Infinite, ..node.md(&memory(8), MdOptions::empty(), 0) };
        let infinite = node.engine.md_bind(infinite, lnet_api::Unlink::Retain).unwrap();
        node.put(infinite, ProcessId::lnet(nid(3)), 1, AckRequest::Ack).unwrap();
        let mut receiving = Vec::new();
        for (body, payload_length, finish, source) in messages {
            let src = if source == 0 { node.nid } else { nid(source) };
            match parse(&node, node.nid, src, payload_length, body) {
                Verdict::Deliver(delivery) => {
                    prop_assert!(delivery.sink.as_ref().is_none_or(|sink| sink.len() <= payload_length as usize));
                    receiving.push(delivery);
                }
                Verdict::Close(errno) => prop_assert_eq!(errno, Errno::EPROTO),
                Verdict::Done | Verdict::Discard | Verdict::Delay(_) | Verdict::Stay(_) => {}
            }
            if finish && !receiving.is_empty() {
                let delivery = receiving.swap_remove(0);
                let token = delivery.token;
                drop(delivery);
                node.engine.finalize_rx(token, Ok(()));
                network.queue.lock().truncate(40);
            }
        }
        for delivery in receiving {
            let token = delivery.token;
            drop(delivery);
            node.engine.finalize_rx(token, Err(Errno::EIO));
        }
        node.engine.remove_ni(node.nid).unwrap();
        let counters = node.engine.counters();
        prop_assert_eq!((counters.msgs_alloc, counters.rst_alloc), (0, 0));
    }
}
