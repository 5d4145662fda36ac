//! Two nodes in two processes: every operation, every size, verified byte by byte at both ends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::peer::{Peer, Stream, address, exchange};

/// Operations of a list: each size in each kind, and the same number of any length.
const COUNT: u32 = 120;

/// Starts two processes with one node each.
fn two(one: &str, other: &str) -> (Peer, Peer) {
    (Peer::start(address(), one), Peer::start(address(), other))
}

/// PUT with and without ACK and GET, in up to 256 fragments at either end, with offsets and
/// truncation, from nothing to 1 MiB, both ways at once; S-307, S-315: with 1, 2 and 4 partitions
/// at either end; S-208: with 1 and 4 connections of each bulk type.
// Covers: S-205, S-206, S-210
#[test]
fn lists_of_operations_both_ways_at_once() {
    let shapes = [(1, 1, 1, 1), (1, 2, 4, 1), (2, 4, 1, 4), (4, 4, 4, 4)];
    for (number, (parts, other_parts, conns, other_conns)) in (0..).zip(shapes) {
        let options = |parts, conns| format!("partitions={parts} conns_per_peer={conns}");
        let (mut one, mut other) = two(&options(parts, conns), &options(other_parts, other_conns));
        exchange(&mut one, &mut other, 100 * number, &format!("count={COUNT} inflight=24"));
        one.answers(&mut other);
        other.answers(&mut one);
    }
}

/// More small operations in flight than there are credits: none is lost or duplicated. (A node
/// drops the requests of a peer that has more than 2048 answers outstanding.)
#[test]
fn many_small_operations_in_flight() {
    let (mut one, mut other) = two("partitions=2", "partitions=4 conns_per_peer=2");
    exchange(&mut one, &mut other, 7, "count=6000 inflight=500 max=4097");
    let counts = one.counts(0);
    assert_eq!((counts.number("dropped"), counts.number("errors")), (0, 0), "{counts:?}");
}

/// A process reads back what it has written into the memory of another, both ways at once.
#[test]
fn what_is_written_is_read_back() {
    let (mut one, mut other) = two("", "partitions=2");
    let streams =
        [Stream::start(&mut one, &mut other, "lanes=16"), Stream::start(&mut other, &mut one, "lanes=16")];
    let [there, back] = streams;
    there.advance(&mut one, 500);
    back.advance(&mut other, 500);
    for done in [there.stop(&mut one), back.stop(&mut other)] {
        assert_eq!((done.number("failed"), done.number("blank")), (0, 0), "{done:?}");
    }
}
