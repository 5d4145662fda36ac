//! PUT and GET between two engines: data, events, and the order of things.

use crate::common::*;
use lnet_api::EventKind::{Ack, Get, Put, Reply, Send};
use lnet_api::{AckRequest, MdOptions};

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
        let network = Network::new();
        let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
        let to = memory(100);
        b.expect(7, &to, MdOptions::OP_PUT);
        a.put(a.bind(&pattern(100, 1), 2), b.id(), 7, AckRequest::Ack).unwrap();
        if arrival_first {
            // The PUT arrives, the ACK leaves and arrives, and only then the PUT's sender is told.
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
        let network = Network::new();
        let (a, b) = (Node::new(&network, 2), Node::new(&network, 3));
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
