//! Lazy portals: messages that wait for a buffer (lnet-semantics 11).

use lnet_api::{EventKind, LNet, MdOptions};
use lnet_lnd::HeldLimits;
use lnet_region::IoVec;
use nlx_testkit::buffers::{bytes, filled, pattern, whole};
use nlx_testkit::lnds::{S, TestBed, exchange, portal};

use super::on_pairs;
use crate::{BEHIND, BEHIND_LENGTH, Bed, Config, FIRST, HELD, Node, PAYLOAD_IN_MEMORY, PEER_KB, connections};

/// Over verbs, the first message comes with its header, and the others are fetched, one of them
/// shorter than a page. Over TCP they use two connections.
const LENGTHS: [usize; 4] = [64, 3980, 5000, 1 << 20];

/// Limits with which no held message is taken into memory.
const NONE: HeldLimits = HeldLimits { peer_kb: 0, all_kb: 0, drop_beyond: false };

/// Returns the numbers of held messages of a node's engine and of its LND.
fn held(node: &Node) -> [usize; 2] {
    [node.engine.waiting(portal()), node.lnd.held()]
}

/// Returns the bytes of held messages that are in memory.
fn in_memory(node: &Node) -> usize {
    node.lnd.held_bytes()
}

/// Runs a test on two connected nodes; the second has a lazy portal.
fn on_lazy_pairs(held: HeldLimits, test: impl Fn(&Bed, [&Node; 2])) {
    on_pairs(&Config { held, ..Config::default() }, |bed, [a, b]| {
        exchange(bed, [a, b], &filled(whole(64), 1), &whole(64));
        bed.until(&[a, b], || [a, b].iter().all(|node| node.lnd.conn_stats().connections == connections(1)));
        b.engine.set_lazy(portal(), true);
        test(bed, [a, b]);
    });
}

/// Sends a message of each length, with its number as match bits.
fn put_all([a, b]: [&Node; 2]) {
    for (bits, length) in (0..).zip(LENGTHS) {
        a.put_unasked(b.id, &filled(whole(length), bits), bits);
    }
}

/// Posts a buffer for each message of [`put_all`].
fn post_all(b: &Node) -> [IoVec; 4] {
    let sinks = LENGTHS.map(whole);
    for (bits, sink) in (0..).zip(&sinks) {
        b.post(sink, bits, MdOptions::OP_PUT);
    }
    sinks
}

fn are_filled(sinks: &[IoVec; 4]) -> bool {
    (0..).zip(sinks).all(|(bits, sink)| bytes(sink) == pattern(bits, sink.len()))
}

/// A message that comes too early waits for its buffer, small or large, in memory or on its
/// connection.
// Covers: S-109
#[test]
fn a_lazy_portal_holds_back() {
    for (limits, at_a_time) in [(HeldLimits::default(), LENGTHS.len()), (NONE, HELD)] {
        on_lazy_pairs(limits, |bed, [a, b]| {
            put_all([a, b]);
            bed.until(&[a, b], || held(b) == [at_a_time; 2]);
            let sinks = post_all(b);
            bed.until(&[a, b], || {
                a.count(EventKind::Send).1 == LENGTHS.len() && b.count(EventKind::Put).1 == LENGTHS.len()
            });
            assert!(are_filled(&sinks));
            assert_eq!((held(b), in_memory(b)), ([0, 0], 0));
            [a, b].into_iter().for_each(Node::clear);
            // Messages that wait when the portal stops being lazy are dropped.
            put_all([a, b]);
            bed.until(&[a, b], || held(b) == [at_a_time; 2]);
            b.engine.set_lazy(portal(), false);
            bed.until(&[a, b], || {
                a.count(EventKind::Send).0 == LENGTHS.len()
                    && b.engine.counters().drop_count == LENGTHS.len() as u64
            });
            bed.until(&[a, b], || held(b) == [0, 0] && in_memory(b) == 0);
            [a, b].into_iter().for_each(Node::clear);
            exchange(bed, [a, b], &filled(whole(9999), 2), &whole(9999));
            exchange(bed, [b, a], &filled(whole(9999), 2), &whole(9999));
        });
    }
}

/// A message in memory blocks no other message of its peer, and waits without a time limit.
// Covers: S-109
#[test]
fn other_messages_go_on_beside_what_is_in_memory() {
    on_lazy_pairs(HeldLimits::default(), |bed, [a, b]| {
        put_all([a, b]);
        bed.until(&[a, b], || {
            b.lnd.counters().rx.held_in_memory == LENGTHS.len() as u64
                && a.count(EventKind::Send).1 == LENGTHS.len()
        });
        for _ in 0..10 {
            bed.later(&[a, b], 60 * S);
            let bits = 1000;
            let sink = whole(70_000);
            b.post(&sink, bits, MdOptions::OP_PUT);
            a.put_unasked(b.id, &filled(whole(70_000), bits), bits);
            bed.until(&[a, b], || b.has(EventKind::Put));
            assert!(bytes(&sink) == pattern(bits, 70_000));
            b.clear();
        }
        assert_eq!((held(b), b.lnd.counters().rx.peers_lost), ([LENGTHS.len(); 2], 0));
        let sinks = post_all(b);
        bed.until(&[a, b], || b.count(EventKind::Put).1 == LENGTHS.len());
        assert!(are_filled(&sinks));
    });
}

/// A message in memory that was reported as sent survives the end of its connection.
// Covers: S-109
#[test]
fn what_is_in_memory_outlives_its_connection() {
    on_lazy_pairs(HeldLimits::default(), |bed, [a, b]| {
        put_all([a, b]);
        bed.until(&[a, b], || {
            b.lnd.counters().rx.held_in_memory == LENGTHS.len() as u64
                && a.count(EventKind::Send).1 == LENGTHS.len()
        });
        a.end();
        bed.until(&[b], || b.lnd.conn_stats().connections == 0);
        assert_eq!(held(b), [LENGTHS.len(); 2]);
        let sinks = post_all(b);
        bed.until(&[b], || b.count(EventKind::Put).1 == LENGTHS.len());
        assert!(are_filled(&sinks));
        assert_eq!((held(b), in_memory(b)), ([0, 0], 0));
        a.start();
    });
}

/// A message in memory ends with its NI; one on a connection ends with its connection or its NI. A
/// later buffer gets neither.
#[test]
fn what_is_held_back_ends_with_its_connection_and_with_its_ni() {
    for (limits, receiver_ends) in [(NONE, false), (NONE, true), (HeldLimits::default(), true)] {
        on_lazy_pairs(limits, |bed, [a, b]| {
            put_all([a, b]);
            bed.until(&[a, b], || held(b)[0] >= HELD && held(b)[0] == held(b)[1]);
            let [ending, other] = if receiver_ends { [b, a] } else { [a, b] };
            ending.end();
            if !receiver_ends {
                // Nothing is read from the connection, so its end is found by a check of the timer.
                bed.later(&[b], 20 * S);
                bed.until(&[b], || b.lnd.conn_stats().connections == 0);
            }
            assert_eq!((held(b), in_memory(b)), ([0, 0], 0));
            // The engine drops waiting messages when its NI ends.
            assert_eq!(b.lnd.counters().rx.held_lost >= HELD as u64, !receiver_ends);
            bed.until(&[other], || other.lnd.conn_stats().connections == 0);
            ending.start();
            bed.later(&[a, b], 60 * S);
            [a, b].into_iter().for_each(|node| drop(node.take()));
            let sink = whole(64);
            b.post(&sink, 0, MdOptions::OP_PUT);
            exchange(bed, [a, b], &filled(whole(5000), 1), &whole(5000));
            assert_eq!(bytes(&sink), [0; 64]);
            a.put(b.id, &filled(whole(64), 9), 0);
            bed.until(&[a, b], || a.has(EventKind::Ack) && b.has(EventKind::Put));
            assert_eq!(bytes(&sink), pattern(9, 64));
        });
    }
}

/// A message that is not in memory has no time limit either: its connection stays open while the
/// peer lives.
// Covers: S-109
#[test]
fn what_is_on_a_connection_waits_for_as_long_as_it_takes() {
    on_lazy_pairs(NONE, |bed, [a, b]| {
        a.put_unasked(b.id, &filled(whole(64), 3), 3);
        bed.until(&[a, b], || held(b) == [1, 1] && a.count(EventKind::Send).1 == 1);
        for _ in 0..10 {
            bed.later(&[a, b], 60 * S);
        }
        assert_eq!((held(b), [a, b].map(|node| node.lnd.counters().rx.peers_lost)), ([1, 1], [0, 0]));
        let sink = whole(64);
        b.post(&sink, 3, MdOptions::OP_PUT);
        bed.until(&[a, b], || b.has(EventKind::Put));
        assert_eq!(bytes(&sink), pattern(3, 64));
    });
}

/// The connection also survives further messages that its sender cannot send: a peer that holds
/// back sends signs of life, and its sender waits.
// Covers: S-109, S-310
#[test]
fn what_waits_behind_it_does_not_end_its_connection() {
    on_lazy_pairs(NONE, |bed, [a, b]| {
        a.put_unasked(b.id, &filled(whole(FIRST), 3), 3);
        bed.until(&[a, b], || held(b) == [1, 1] && a.count(EventKind::Send).1 == 1);
        let behind: Vec<u64> = (10..).take(BEHIND).collect();
        for bits in &behind {
            a.put_unasked(b.id, &filled(whole(BEHIND_LENGTH), *bits), *bits);
        }
        // Time passes in steps shorter than a peer may be silent, as on a host that does not sleep.
        for _ in 0..1000 {
            bed.later(&[a, b], S);
        }
        assert_eq!([a, b].map(|node| node.lnd.counters().rx.peers_lost), [0, 0]);
        assert!(a.count(EventKind::Send).1 < 1 + BEHIND, "all have left: the case does not appear");
        assert!(held(b)[0] >= 1 && b.lnd.counters().rx.held_lost == 0);
        let sink = whole(FIRST);
        b.post(&sink, 3, MdOptions::OP_PUT);
        bed.until(&[a, b], || b.has(EventKind::Put));
        assert!(bytes(&sink) == pattern(3, FIRST));
        // Each of the other messages fails at its sender, or arrives.
        b.engine.set_lazy(portal(), false);
        bed.until(&[a, b], || a.count(EventKind::Send).0 == 1 + BEHIND && held(b) == [0, 0]);
        a.take();
        b.take();
        exchange(bed, [a, b], &filled(whole(9999), 2), &whole(9999));
    });
}

/// `held_full=drop`: a message for which there is no memory is dropped and counted, and blocks
/// nothing.
// Covers: S-109
#[test]
fn what_there_is_no_memory_for_can_be_dropped() {
    on_lazy_pairs(HeldLimits { drop_beyond: true, ..NONE }, |bed, [a, b]| {
        put_all([a, b]);
        bed.until(&[a, b], || {
            b.lnd.counters().rx.held_dropped == LENGTHS.len() as u64
                && a.count(EventKind::Send).0 == LENGTHS.len()
        });
        assert_eq!(held(b), [0, 0]);
        [a, b].into_iter().for_each(Node::clear);
        exchange(bed, [a, b], &filled(whole(9999), 2), &whole(9999));
    });
}

/// The limit of a peer counts payloads and 1 KiB for each message; a message that has left memory
/// makes room.
// Covers: S-109
#[test]
fn the_limit_of_a_peer() {
    // Over verbs, payloads lie in whole pages.
    let most = 2 * (PAYLOAD_IN_MEMORY + 1024);
    on_lazy_pairs(
        HeldLimits { peer_kb: PEER_KB, drop_beyond: true, ..HeldLimits::default() },
        |bed, [a, b]| {
            assert!((most..most + 5000).contains(&(PEER_KB as usize * 1024)));
            let put = |bits| a.put_unasked(b.id, &filled(whole(5000), bits), bits);
            for bits in 0..5 {
                put(bits);
            }
            bed.until(&[a, b], || b.lnd.counters().rx.held_dropped == 3 && held(b) == [2, 2]);
            assert_eq!(in_memory(b), most);
            let sink = whole(5000);
            b.post(&sink, 1, MdOptions::OP_PUT);
            bed.until(&[a, b], || b.has(EventKind::Put));
            assert!(bytes(&sink) == pattern(1, 5000));
            put(7);
            bed.until(&[a, b], || held(b) == [2, 2]);
            assert_eq!((in_memory(b), b.lnd.counters().rx.held_dropped), (most, 3));
            b.engine.set_lazy(portal(), false);
            bed.until(&[a, b], || held(b) == [0, 0] && in_memory(b) == 0);
        },
    );
}

/// The limit for all peers: memory used for one peer is not available for the others, and freed
/// memory is available to all of them.
// Covers: S-109
#[test]
fn the_limit_of_all_peers() {
    for partitions in [1, 2, 4] {
        let bed = Bed::new();
        let most = 2 * (PAYLOAD_IN_MEMORY + 1024);
        let limits = HeldLimits { all_kb: PEER_KB, drop_beyond: true, ..HeldLimits::default() };
        assert!(limits.peer_kb > 3 * PEER_KB, "no peer reaches its own limit");
        let config = Config { held: limits, partitions, ..Config::default() };
        let [a, b, c] = [1, 2, 3].map(|number| bed.node(number, config.clone()));
        let all = [&a, &b, &c];
        b.engine.set_lazy(portal(), true);
        let put = |from: &Node, bits| from.put_unasked(b.id, &filled(whole(5000), bits), bits);
        put(&a, 0);
        bed.until(&all, || held(&b) == [1, 1] && b.lnd.counters().rx.held_in_memory == 1);
        put(&c, 1);
        bed.until(&all, || held(&b) == [2, 2] && b.lnd.counters().rx.held_in_memory == 2);
        assert_eq!(in_memory(&b), most);
        for (dropped, from) in (1..).zip([&a, &c]) {
            put(from, 2);
            bed.until(&all, || b.lnd.counters().rx.held_dropped == dropped);
        }
        assert_eq!((held(&b), in_memory(&b)), ([2, 2], most));
        // When the message of one peer leaves memory, there is room for one of the other.
        let sink = whole(5000);
        b.post(&sink, 0, MdOptions::OP_PUT);
        bed.until(&all, || b.has(EventKind::Put) && in_memory(&b) == most / 2);
        assert!(bytes(&sink) == pattern(0, 5000));
        put(&c, 3);
        bed.until(&all, || held(&b) == [2, 2] && b.lnd.counters().rx.held_in_memory == 3);
        assert_eq!((in_memory(&b), b.lnd.counters().rx.held_dropped), (most, 2));
        b.engine.set_lazy(portal(), false);
        bed.until(&all, || held(&b) == [0, 0] && in_memory(&b) == 0);
        bed.end([a, b, c]);
    }
}
