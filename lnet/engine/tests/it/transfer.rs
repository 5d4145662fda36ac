//! PUT and GET between two engines: data, events, and their order.

use super::common::*;
use lnet_api::EventKind::{Ack, Get, Put, Reply, Send};
use lnet_api::{AckRequest, Arrival, LNet, Md, MdOptions, RxContext, Threshold, Unlink, Upcalls, Verdict};
use lnet_nid::{MatchBits, Pid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};

const SIZES: [usize; 4] = [0, 1, 4097, 1 << 20];

#[test]
fn a_put_moves_its_bytes_and_ends_both_mds() {
    for (bytes, sending) in SIZES.iter().flat_map(|&bytes| [(bytes, Sending::Now), (bytes, Sending::Later)]) {
        let network = Network::new();
        *network.sending.lock() = sending;
        let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
        let (from, to) = (pattern(bytes, 5), memory(bytes));
        let md = b.expect(7, &to, MdOptions::OP_PUT);
        a.put(a.bind(&from, 1), b.id(), 7, AckRequest::NoAck).unwrap();
        network.run();
        assert_eq!(content(&to), pattern_bytes(bytes, 5));
        assert_eq!(brief(&a.events()), [(Send, Ok(()), true)]);
        let events = b.events();
        assert_eq!(brief(&events), [(Put, Ok(()), true)]);
        let put = events[0];
        assert_eq!((put.rlength, put.mlength, put.offset), (bytes as u32, bytes as u32, 0));
        assert_eq!((put.initiator, put.source, put.target), (a.id(), a.id(), b.id()));
        assert_eq!((put.sender, put.hdr_data, put.md), (a.nid, HDR_DATA, md));
        assert!(a.is_quiet() && b.is_quiet());
    }
}

#[test]
fn an_acknowledged_put_ends_with_send_and_ack_in_either_order() {
    for (arrival_first, order) in [(false, [Send, Ack]), (true, [Ack, Send])] {
        let (network, a, b) = two_nodes();
        let to = memory(100);
        b.expect(7, &to, MdOptions::OP_PUT);
        a.put(a.bind(&pattern(100, 1), 2), b.id(), 7, AckRequest::Ack).unwrap();
        if arrival_first {
            // The PUT is finalised at its sender only after the ACK has been sent and received.
            let mut put = network.take(0).unwrap();
            let tx = put.tx.take().unwrap();
            network.arrive(put);
            network.run();
            a.finalize(tx);
        } else {
            network.run();
        }
        let events = a.events();
        assert_eq!(brief(&events), [(order[0], Ok(()), false), (order[1], Ok(()), true)]);
        let ack = events.iter().find(|event| event.kind == Ack).unwrap();
        assert_eq!((ack.mlength, ack.rlength, ack.match_bits.0), (100, 0, 7));
        assert_eq!((ack.initiator, ack.target, ack.sender), (b.id(), a.id(), b.nid));
        assert_eq!(brief(&b.events()), [(Put, Ok(()), true)]);
        assert!(a.is_quiet() && b.is_quiet());
    }
}

#[test]
fn a_get_fetches_bytes_with_send_and_reply_in_either_order() {
    for (bytes, arrival_first) in SIZES.iter().flat_map(|&bytes| [(bytes, false), (bytes, true)]) {
        let (network, a, b) = two_nodes();
        let (from, to) = (pattern(bytes, 9), memory(bytes));
        b.expect(8, &from, MdOptions::OP_GET);
        a.get(a.bind(&to, 2), b.id(), 8).unwrap();
        if arrival_first {
            let mut get = network.take(0).unwrap();
            let tx = get.tx.take().unwrap();
            network.arrive(get);
            network.run();
            a.finalize(tx);
        } else {
            network.run();
        }
        assert_eq!(content(&to), pattern_bytes(bytes, 9));
        let order = if arrival_first { [Reply, Send] } else { [Send, Reply] };
        let events = a.events();
        assert_eq!(brief(&events), [(order[0], Ok(()), false), (order[1], Ok(()), true)]);
        let reply = events.iter().find(|event| event.kind == Reply).unwrap();
        assert_eq!((reply.mlength, reply.rlength, reply.offset), (bytes as u32, bytes as u32, 0));
        let got = b.events();
        assert_eq!(brief(&got), [(Get, Ok(()), true)]);
        assert_eq!((got[0].rlength, got[0].mlength, got[0].match_bits.0), (0, bytes as u32, 8));
        assert!(a.is_quiet() && b.is_quiet());
    }
}

/// Delivers a message from `src` over `from` to `node`, without payload.
fn receive(node: &Node, from: ProcessId, src: ProcessId, rx: u64, body: Body) -> Verdict {
    let header = Header { dest: node.id(), src, payload_length: 0, body };
    node.engine.parse(&Arrival { ni: node.nid, from, header: &header, host: None, rx: RxContext(rx) })
}

fn get_body(cookie: u64) -> Body {
    Body::Get {
        return_wmd: WireHandle::new(7, cookie),
        match_bits: MatchBits(1),
        portal: portal().get(),
        src_offset: 0,
        sink_length: 8,
    }
}

/// Attaches a buffer for any number of PUTs and GETs.
fn serve_all(node: &Node) {
    let options = MdOptions::OP_GET | MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE;
    let md = Md { threshold: Threshold::Infinite, ..node.md(&pattern(8, 1), options, 0) };
    node.engine.md_attach(node.post(1), md, Unlink::Retain).unwrap();
}

// lnet-wire 27: a process behind an unprivileged port is a separate peer, reached over its own
// connection.
#[test]
fn answers_go_back_over_the_connection_that_asked() {
    let (network, node) = one_node();
    serve_all(&node);
    let credits = LIMITS.peer_credits as usize;
    let askers = [40_000, 40_001].map(|port| ProcessId::new(nid(3), Pid::of_unprivileged_port(port)));
    for rx in 0..credits as u64 + 3 {
        for (number, asker) in askers.into_iter().enumerate() {
            let rx = 2 * rx + number as u64;
            assert!(matches!(receive(&node, asker, asker, rx, get_body(rx)), Verdict::Done));
        }
    }
    // The two processes have separate credits.
    assert_eq!(network.queue.lock().len(), 2 * credits);
    let mut answers = 0;
    while let Some(packet) = network.take(0) {
        let tx = packet.tx.unwrap();
        let asker = tx.header.dest;
        assert_eq!((tx.peer, tx.ni, tx.header.src), (asker, node.nid, node.id()));
        let Body::Reply { dst_wmd } = tx.header.body else { panic!("{:?}", tx.header) };
        assert_eq!(tx.reply_to, Some(RxContext(dst_wmd.object_cookie())));
        assert_eq!(asker, askers[dst_wmd.object_cookie() as usize % 2]);
        node.finalize(tx);
        answers += 1;
    }
    assert_eq!(answers, 2 * (credits + 3));
    assert!(node.is_quiet());
}

// lnet-wire 10 and 11: a message that came through a router is answered through it.
#[test]
fn answers_to_other_networks_go_back_through_the_hop_that_delivered_the_request() {
    let (network, node) = one_node();
    serve_all(&node);
    let (router, far) = (ProcessId::lnet(nid(9)), ProcessId::lnet("10.0.0.1@o2ib".parse().unwrap()));
    let put = Body::Put {
        ack_wmd: WireHandle::new(7, 1),
        match_bits: MatchBits(1),
        hdr_data: 0,
        portal: portal().get(),
        offset: 0,
    };
    for body in [get_body(1), put] {
        assert!(matches!(receive(&node, router, far, 1, body), Verdict::Done));
        let packet = network.take(0).unwrap();
        assert_eq!((packet.to, packet.header.dest), (router, far));
        node.finalize(packet.tx.unwrap());
    }
    let events = node.events();
    assert!(events.iter().all(|event| event.sender == router.nid && event.initiator == far));
}

#[test]
fn a_handler_is_woken_once_for_all_the_events_of_a_call() {
    let (_network, node) = one_node();
    node.expect(1, &memory(0), MdOptions::OP_PUT);
    let md = node.bind(&memory(0), 2);
    node.put(md, node.id(), 1, AckRequest::Ack).unwrap();
    assert_eq!(node.events().len(), 3);
    assert_eq!(node.log.wakes(), 1);
}

#[test]
fn the_counters_tell_what_was_sent_and_received() {
    let (network, a, b) = two_nodes();
    b.expect(1, &memory(100), MdOptions::OP_PUT);
    a.put(a.bind(&memory(100), 2), b.id(), 1, AckRequest::Ack).unwrap();
    b.expect(2, &memory(30), MdOptions::OP_GET);
    a.get(a.bind(&memory(30), 2), b.id(), 2).unwrap();
    network.run();
    let (here, there) = (a.engine.counters(), b.engine.counters());
    assert_eq!((here.send_count, here.recv_count, here.send_length, here.recv_length), (2, 2, 100, 30));
    assert_eq!((there.send_count, there.recv_count, there.send_length, there.recv_length), (2, 2, 30, 100));
    assert_eq!((here.errors, here.drop_count, there.errors, there.drop_count), (0, 0, 0, 0));
    assert!(here.msgs_max >= 2);
}
