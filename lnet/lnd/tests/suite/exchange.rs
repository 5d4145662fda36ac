//! Messages of all lengths, in memory of all layouts.

use std::sync::Arc;

use lnet_api::{EventKind, MdOptions, Sleeper};
use lnet_region::IoVec;
use nlx_testkit::buffers::{apart, bytes, cut, filled, gapped, pattern, whole};
use nlx_testkit::lnds::{S, TestBed, exchange};

use super::on_pairs;
use crate::{Bed, Config, Node, connections};

/// Lengths of 0 and 1, lengths just below and above three limits (what leaves with its header over
/// verbs, what goes on a bulk connection over TCP, buffers), and LNet's largest length.
const LENGTHS: [usize; 15] =
    [0, 1, 64, 95, 927, 928, 1023, 3975, 3976, 3977, 4096, 4097, 65_537, (1 << 20) - 1, 1 << 20];

/// Returns memory of `length` bytes, which may be 0.
fn memory(length: usize) -> IoVec {
    whole(length.max(1)).trimmed(length).unwrap()
}

// Covers: S-4, MT-172
#[test]
fn each_length_arrives_by_put_and_by_get() {
    on_pairs(&Config::default(), |bed, [a, b]| {
        for (bits, length) in (0..).zip(LENGTHS) {
            let sink = memory(length);
            b.post(&sink, bits, MdOptions::OP_PUT);
            a.put(b.id, &filled(memory(length), bits), bits);
            bed.until(&[a, b], || a.has(EventKind::Ack) && b.has(EventKind::Put));
            assert!(bytes(&sink) == pattern(bits, length), "a PUT of {length} bytes");
            let put = b.events()[0];
            assert_eq!((put.initiator, put.match_bits.0), (a.id, bits));
            assert_eq!((put.rlength, put.mlength), (length as u32, length as u32));
            [a, b].into_iter().for_each(Node::clear);
            for [from, to] in [[a, b], [b, a]] {
                exchange(bed, [from, to], &filled(memory(length), bits), &memory(length));
            }
        }
    });
}

/// Messages of all sizes queue in both directions at once: none is lost or duplicated, and each
/// arrives as it was sent. Those on the same connection keep their order.
#[test]
fn many_messages_in_both_directions_at_once() {
    const MIXED: [usize; 8] = [64, 4000, 1, 70_000, 3976, 95, 928, 65_537];
    let mixed = (0..300).map(|number| if number % 30 == 7 { 1 << 20 } else { MIXED[number % MIXED.len()] });
    for (lengths, ordered) in [(mixed.collect(), false), (vec![40; 1000], true)] {
        on_pairs(&Config::default(), |bed, [a, b]| {
            if ordered {
                // Messages on two connections have no order, and each side may open one.
                exchange(bed, [a, b], &filled(whole(1), 1), &whole(1));
            }
            let sinks: Vec<[IoVec; 2]> =
                lengths.iter().map(|length| [whole(*length), whole(*length)]).collect();
            for (bits, [at_a, at_b]) in (0..).zip(&sinks) {
                a.post(at_a, bits, MdOptions::OP_PUT);
                b.post(at_b, bits, MdOptions::OP_PUT);
            }
            for (bits, length) in (0..).zip(&lengths) {
                let source = filled(whole(*length), bits);
                a.put(b.id, &source, bits);
                b.put(a.id, &source, bits);
            }
            let count = lengths.len();
            let all =
                |node: &Node| [EventKind::Send, EventKind::Ack, EventKind::Put].map(|kind| node.count(kind));
            bed.until(&[a, b], || [a, b].into_iter().all(|node| all(node) == [(count, count); 3]));
            for (bits, sinks) in (0..).zip(&sinks) {
                assert!(sinks.iter().all(|sink| bytes(sink) == pattern(bits, sink.len())));
            }
            for node in [a, b] {
                let events = node.events();
                let puts = events.iter().filter(|event| event.kind == EventKind::Put);
                assert!(!ordered || puts.map(|event| event.match_bits.0).eq(0..count as u64));
            }
        });
    }
}

/// Memory in LNet's 256 fragments at both ends, cut differently: in one region, and each in a
/// separate region.
// Covers: S-210, S-502, S-504
#[test]
fn scattered_memory_at_both_ends() {
    on_pairs(&Config::default(), |bed, pair| {
        for (from, to) in [(1, 256), (256, 1), (256, 256), (7, 100), (3, 2)] {
            for length in [1000, 65_537, 1 << 20] {
                for make in [gapped, apart] {
                    let source = filled(make(&cut(length, from)), length as u64);
                    exchange(bed, pair, &source, &make(&cut(length, to)));
                }
            }
        }
    });
}

/// A payload longer than the sink is cut to the sink's length and nothing beyond is written; the
/// next message is whole.
// Covers: S-210
#[test]
fn truncation() {
    on_pairs(&Config::default(), |bed, [a, b]| {
        let moved =
            |node: &Node, kind| node.events().iter().find(|event| event.kind == kind).unwrap().mlength;
        for (length, room) in [
            (300, 10),
            (1000, 10),
            (100_000, 99_000),
            (1 << 20, 70_001),
            (1 << 20, 100),
            (1 << 20, 1),
            (5000, 4999),
        ] {
            let (source, sink) = (filled(whole(length), 3), whole(room));
            b.post(&sink, 7, MdOptions::OP_PUT | MdOptions::TRUNCATE);
            a.put(b.id, &source, 7);
            bed.until(&[a, b], || a.has(EventKind::Ack) && b.has(EventKind::Put));
            assert_eq!((moved(a, EventKind::Ack), moved(b, EventKind::Put)), (room as u32, room as u32));
            assert!(bytes(&sink) == pattern(3, room));
            [a, b].into_iter().for_each(Node::clear);
            exchange(bed, [a, b], &source, &whole(length));
            // A GET that requests more than the source has gets the source's length.
            let (source, sink) = (filled(whole(room), 4), whole(length));
            b.post(&source, 7, MdOptions::OP_GET | MdOptions::TRUNCATE);
            a.get(b.id, &sink, 7);
            bed.until(&[a, b], || a.has(EventKind::Reply) && b.has(EventKind::Get));
            assert_eq!((moved(a, EventKind::Reply), moved(b, EventKind::Get)), (room as u32, room as u32));
            let got = bytes(&sink);
            assert!(got[..room] == pattern(4, room) && got[room..].iter().all(|byte| *byte == 0));
            [a, b].into_iter().for_each(Node::clear);
        }
    });
}

/// Each node pings the other (lnet-wire 15).
#[test]
fn pings() {
    on_pairs(&Config::default(), |bed, [a, b]| {
        for [a, b] in [[a, b], [b, a]] {
            let mut ping = a.engine.ping(None, b.id, Arc::new(Sleeper::new().unwrap())).unwrap();
            let mut answer = None;
            bed.until(&[a, b], || {
                answer = answer.take().or_else(|| ping.poll());
                answer.is_some()
            });
            let info = format!("{:?}", answer.unwrap().unwrap());
            assert!(info.contains(&format!("{:?}", b.id.nid)), "{info}");
        }
    });
}

/// The side that connects opens all connections, and messages go over all of them.
// Covers: S-208, S-209, S-312
#[test]
fn connections_per_peer() {
    for conns_per_peer in [1, 3, 4] {
        let wanted = connections(conns_per_peer);
        on_pairs(&Config { conns_per_peer, ..Config::default() }, |bed, [a, b]| {
            exchange(bed, [a, b], &filled(whole(100), 1), &whole(100));
            bed.until(&[a, b], || [a, b].iter().all(|node| node.lnd.conn_stats().connections == wanted));
            for length in [1, 5000, 1 << 20] {
                exchange(bed, [a, b], &filled(whole(length), 1), &whole(length));
                exchange(bed, [b, a], &filled(whole(length), 2), &whole(length));
            }
            let made = [a, b].map(|node| (node.lnd.counters().rx.connects, node.lnd.counters().rx.accepts));
            assert_eq!(made, [(wanted as u64, 0), (0, wanted as u64)]);
            assert!([a, b].iter().all(|node| node.lnd.completing() == 0), "the set is complete");
        });
    }
}

/// A node that requests more connections than its peer allows: they agree on the number, traffic
/// goes on in both directions, and the end of the surplus ones is no failure of the peer.
#[test]
fn surplus_connections() {
    for partitions in [1, 2, 4] {
        let bed = Bed::new();
        let node = |number, conns_per_peer| {
            bed.node(number, Config { conns_per_peer, partitions, ..Config::default() })
        };
        let nodes = [node(1, 4), node(2, 1)];
        let [a, b] = nodes.each_ref();
        for ways in [[a, b], [b, a]] {
            for length in [1, 5000, 1 << 20] {
                exchange(&bed, ways, &filled(whole(length), 1), &whole(length));
            }
            bed.later(&[a, b], 2 * S);
        }
        let count = || [a, b].map(|node| node.lnd.conn_stats().connections);
        bed.until(&[a, b], || {
            count()[0] == count()[1] && [a, b].iter().all(|node| node.lnd.completing() == 0)
        });
        assert!((connections(1)..=connections(4)).contains(&count()[0]), "{:?}", count());
        assert!([a, b].iter().all(|node| node.lnd.counters().rx.peers_lost == 0));
        exchange(&bed, [a, b], &filled(whole(5000), 3), &whole(5000));
        bed.end(nodes);
    }
}
