//! Tunables and their effects; partitions; more than two nodes.

use lnet_api::{EventKind, MdOptions};
use lnet_o2iblnd::O2ibConfig;
use nlx_testkit::buffers::{filled, whole};
use nlx_testkit::lnds::{S, TestBed as _, exchange};

use crate::{Bed, Node};

fn both_ways(bed: &Bed, [a, b]: [&Node; 2]) {
    for length in [1, 5000, 1 << 20] {
        exchange(bed, [a, b], &filled(whole(length), 1), &whole(length));
        exchange(bed, [b, a], &filled(whole(length), 2), &whole(length));
    }
}

/// Nodes that disagree on the depth of queues use the smaller one. The node that requests more is
/// rejected, and then requests the offered depth (lnet-wire 34).
// Covers: S-501
#[test]
fn different_peer_credits() {
    for (asks, grants) in [(32, 4), (4, 32), (256, 8), (8, 256), (20, 10)] {
        let bed = Bed::new();
        let config = |peer_credits| O2ibConfig { peer_credits, ..O2ibConfig::default() };
        let nodes = [bed.node(1, config(asks)), bed.node(2, config(grants))];
        let [a, b] = &nodes;
        both_ways(&bed, [a, b]);
        assert_eq!(b.lnd.counters().rx.refusals, u64::from(asks > grants), "{asks} of {grants}");
        assert_eq!((a.lnd.counters().rx.connects, b.lnd.counters().rx.accepts), (1, 1));
        bed.end(nodes);
    }
}

/// All tunables at their minimum.
#[test]
fn the_smallest_queues() {
    let config =
        O2ibConfig { peer_credits: 1, concurrent_sends: 1, wrq_sge: 1, credits: 8, ..O2ibConfig::default() };
    Bed::on_pair(&config, |bed, [a, b]| {
        both_ways(bed, [a, b]);
        let sinks: Vec<_> = (0..100).map(|_| whole(5000)).collect();
        for (bits, sink) in sinks.iter().enumerate() {
            b.post(sink, bits as u64, MdOptions::OP_PUT);
            a.put(b.id, &filled(whole(5000), bits as u64), bits as u64);
        }
        bed.until(&[a, b], || a.count(EventKind::Ack).1 == sinks.len());
    });
}

/// Checksums as old peers use them: each message carries one, and each is right.
#[test]
fn checksums() {
    Bed::on_pair(&O2ibConfig { cksum: true, ..O2ibConfig::default() }, |bed, [a, b]| {
        both_ways(bed, [a, b]);
        assert_eq!((a.lnd.counters().rx.checksum_errors, b.lnd.counters().rx.checksum_errors), (0, 0));
    });
}

/// An idle connection is kept alive by NOOPs, and stays.
#[test]
fn keepalive() {
    Bed::on_pair(&O2ibConfig { keepalive_s: 30, ..O2ibConfig::default() }, |bed, [a, b]| {
        both_ways(bed, [a, b]);
        let noops = || [a, b].map(|node| (node.lnd.counters().tx.noops, node.lnd.counters().rx.noops));
        let before = noops();
        for _ in 0..4 {
            bed.later(&[a, b], 31 * S);
            bed.until(&[a, b], || true);
        }
        bed.until(&[a, b], || {
            let [now_a, now_b] = noops();
            now_a.0 > before[0].0 && now_b.0 > before[1].0 && now_a.1 > before[0].1 && now_b.1 > before[1].1
        });
        both_ways(bed, [a, b]);
        assert_eq!((a.lnd.counters().rx.closes, a.lnd.counters().rx.connects), (0, 1));
    });
}

/// One node with sixteen others, four connections each.
#[test]
fn sixty_four_connections() {
    const OTHERS: usize = 16;
    let bed = Bed::new();
    let config = O2ibConfig { conns_per_peer: 4, ..O2ibConfig::default() };
    let nodes: [Node; OTHERS + 1] = std::array::from_fn(|number| bed.node(number + 1, config.clone()));
    let all: Vec<&Node> = nodes.iter().collect();
    let (one, others) = all.split_first().unwrap();
    let sinks: Vec<_> = (0..2 * OTHERS).map(|_| whole(9000)).collect();
    for (number, other) in others.iter().enumerate() {
        for bits in [number, OTHERS + number] {
            let source = filled(whole(9000), bits as u64);
            let [from, to] = if bits < OTHERS { [other, one] } else { [one, other] };
            to.post(&sinks[bits], bits as u64, MdOptions::OP_PUT);
            from.put(to.id, &source, bits as u64);
        }
    }
    let arrived = |node: &Node| node.count(EventKind::Put).1;
    bed.until(&all, || arrived(one) == OTHERS && others.iter().all(|other| arrived(other) == 1));
    bed.until(&all, || one.lnd.conn_stats().connections >= 4 * OTHERS);
    assert_eq!(one.lnd.conn_stats().peers, OTHERS);
    drop(sinks);
    bed.end(nodes);
}
