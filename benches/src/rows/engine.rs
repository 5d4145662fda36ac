//! The rows of the engine.
//!
//! `match/…` is the whole matching step: all work of the engine for an arriving PUT, from its
//! header to its event, with locks and counters, among the number of posted MDs in the row's name;
//! all from one NID or, in the rows `-many`, from 4,096. Both sides do *dependent* look-ups, as
//! messages are matched one after the other (see [`keys::chain`](crate::keys::chain)); the second
//! comparison, which has no goal, is with look-ups that the processor overlaps. Only the rows with
//! 1 M entries have a goal: there memory latency dominates. With few entries the fixed work per
//! message dominates.
//!
//! `smp/…` lets two threads exchange messages, each for a separate partition. `smp/sharing` shows
//! how much of the distance to twice the rate of one thread is due to the engine and not to the
//! machine.
//!
//! In `smp/handlers-…` the number of threads that wait on a node over TCP equals that of its
//! partitions, and handlers block: the rows measure how many run at a time. `smp/xo-…` and
//! `smp/helper-…` do the same with the events of transfer machines. `smp/busy-…` is the curve over
//! cores, with handlers that compute.
//!
//! `cpu/…` is the processor time of waits: how much they take from other threads, and how much
//! almost idle programs use.

use super::Goal::{AtLeast, AtMost, Open};
use super::{Goal, Row, Side, row};
use crate::anchors::{limit, lookup, memory};
use crate::keys::MANY;
use crate::ours::engine::{cost, exchange, local, matching};
use crate::ours::lnet::{beside, handlers, pingpong};
use crate::ours::xo::{resting, several};

/// Largest cost of the whole matching step among 1 M entries, in look-ups.
const MATCHING: Goal = AtMost(4.0);

/// Microseconds of processor time in a second that are 0.0 % of a processor when rounded: an idle
/// node may wake once a second for the engine's clock, as LNet's monitor thread does.
const UNSEEN_US_PER_S: u32 = 500;

/// The anchor of several handlers.
const BLOCKING: &str = "one thread that waits, handlers that block 1 ms";

/// The anchors of matching.
const IN_1K: &str = "hashbrown, dependent look-ups among 1,000, one NID";
const IN_100K: &str = "hashbrown, dependent look-ups among 100,000, one NID";
const IN_1M: &str = "hashbrown, dependent look-ups among 1,000,000, one NID";
const IN_1M_MANY: &str = "hashbrown, dependent look-ups among 1,000,000, 4,096 NIDs";

/// Returns a row of matching among `COUNT` buffers from `SOURCES` NIDs.
const fn among<const COUNT: usize, const SOURCES: usize>(
    name: &'static str,
    ours: Side,
    anchor_name: &'static str,
) -> Row {
    let (side, anchor) = (lookup::independent::<COUNT, SOURCES>, lookup::dependent::<COUNT, SOURCES>);
    row(name, "ns", ours).beside(anchor_name, anchor).and("the same, independent", side, Open)
}

/// Returns a row of matching with one posted buffer.
const fn alone(name: &'static str, ours: Side) -> Row {
    let (anchor_name, anchor) = ("hashbrown, dependent look-ups of one entry", lookup::dependent::<1, 1>);
    row(name, "ns", ours).beside(anchor_name, anchor)
}

/// Returns a row of handlers that compute, with the number of partitions and threads in its name.
const fn busy(name: &'static str, ours: Side, goal: f64) -> Row {
    row(name, "k/s", ours).beside("one busy handler", several::busy::<1>).goal(AtLeast(goal))
}

pub(super) static ROWS: &[Row] = &[
    alone("match/unique-1", matching::unique::<1, 1>),
    among::<1_000, 1>("match/unique-1k", matching::unique::<1_000, 1>, IN_1K),
    among::<100_000, 1>("match/unique-100k", matching::unique::<100_000, 1>, IN_100K),
    among::<1_000_000, 1>("match/unique-1m", matching::unique::<1_000_000, 1>, IN_1M).goal(MATCHING),
    among::<1_000_000, MANY>("match/unique-1m-many", matching::unique::<1_000_000, MANY>, IN_1M_MANY)
        .goal(MATCHING),
    alone("match/wildcard-exact-1", matching::wildcard_exact::<1, 1>),
    among::<1_000, 1>("match/wildcard-exact-1k", matching::wildcard_exact::<1_000, 1>, IN_1K),
    among::<100_000, 1>("match/wildcard-exact-100k", matching::wildcard_exact::<100_000, 1>, IN_100K),
    among::<1_000_000, 1>("match/wildcard-exact-1m", matching::wildcard_exact::<1_000_000, 1>, IN_1M)
        .goal(MATCHING),
    among::<1_000_000, MANY>(
        "match/wildcard-exact-1m-many",
        matching::wildcard_exact::<1_000_000, MANY>,
        IN_1M_MANY,
    )
    .goal(MATCHING),
    row("match/insert-worst", "ms", matching::worst_post::<1_000_000>)
        .beside("longest insert of hashbrown, growing to 1,000,000", lookup::worst_insert::<1_000_000>)
        .goal(AtMost(0.1)),
    row("smp/2-threads", "M/s", exchange::two_threads)
        .beside("one thread, 2 partitions", exchange::one_thread)
        .goal(AtLeast(1.8))
        .and("2 threads, npartitions=1", exchange::two_threads_one_partition, AtLeast(1.0)),
    row("smp/sharing", "M/s", exchange::two_threads)
        .beside("2 threads with a node each, which share nothing", exchange::two_nodes),
    row("smp/handlers-2", "k/s", handlers::several::<2>)
        .beside(BLOCKING, handlers::one)
        .goal(AtLeast(1.8))
        .and("2 threads that wait, npartitions=1", handlers::unpartitioned::<2>, AtLeast(1.0)),
    row("smp/handlers-4", "k/s", handlers::several::<4>)
        .beside(BLOCKING, handlers::one)
        .goal(AtLeast(3.6))
        .and("4 threads that wait, npartitions=1", handlers::unpartitioned::<4>, AtLeast(1.0)),
    row("smp/xo-wait-2", "k/s", several::waiting::<2>)
        .beside(BLOCKING, several::waiting::<1>)
        .goal(AtLeast(1.8))
        .and("2 threads that wait, npartitions=1", several::waiting_unpartitioned::<2>, AtLeast(0.9)),
    row("smp/xo-wait-4", "k/s", several::waiting::<4>)
        .beside(BLOCKING, several::waiting::<1>)
        .goal(AtLeast(3.6))
        .and("4 threads that wait, npartitions=1", several::waiting_unpartitioned::<4>, AtLeast(0.9)),
    row("smp/xo-callbacks-2", "k/s", several::called::<2>)
        .beside("one event thread, handlers that block 1 ms", several::called::<1>)
        .goal(AtLeast(1.8))
        .and("2 event threads, npartitions=1", several::called_unpartitioned::<2>, AtLeast(0.9)),
    row("smp/xo-callbacks-4", "k/s", several::called::<4>)
        .beside("one event thread, handlers that block 1 ms", several::called::<1>)
        .goal(AtLeast(3.6))
        .and("4 event threads, npartitions=1", several::called_unpartitioned::<4>, AtLeast(0.9)),
    row("smp/helper-2", "k/s", several::helped::<2>)
        .beside(BLOCKING, several::helped::<1>)
        .goal(AtLeast(1.8))
        .and("2 threads that wait, npartitions=1", several::helped_unpartitioned::<2>, AtLeast(0.9)),
    row("smp/helper-4", "k/s", several::helped::<4>)
        .beside(BLOCKING, several::helped::<1>)
        .goal(AtLeast(3.6))
        .and("4 threads that wait, npartitions=1", several::helped_unpartitioned::<4>, AtLeast(0.9)),
    row("smp/busy-1", "k/s", several::busy::<1>).beside("one thread that only computes", several::computing),
    busy("smp/busy-2", several::busy::<2>, 1.8),
    busy("smp/busy-4", several::busy::<4>, 3.6),
    busy("smp/busy-8", several::busy::<8>, 7.2),
    busy("smp/busy-16", several::busy::<16>, 14.4),
    row("smp/one-waiter", "µs", pingpong::one_waiter::<4>)
        .beside("npartitions=1", pingpong::one_waiter::<1>)
        .goal(AtMost(1.1)),
    row("cpu/computing", "M/s", beside::computed_by_default)
        .beside("beside messages whose waits sleep at once", beside::computed_sleeping)
        .goal(AtLeast(0.97)),
    row("cpu/beside-computing", "k/s", beside::messages_by_default)
        .beside("with waits that sleep at once", beside::messages_sleeping)
        .goal(AtLeast(0.97)),
    row("cpu/client-100", "%", resting::paced)
        .beside("2 % of a processor", limit::agreed::<2>)
        .goal(AtMost(1.0)),
    row("cpu/idle-node", "µs/s", resting::idle_node)
        .beside("what tools show as 0.0 %", limit::agreed::<UNSEEN_US_PER_S>)
        .goal(AtMost(1.0)),
    row("cpu/idle-helper", "µs/s", resting::idle_helper)
        .beside("what tools show as 0.0 %", limit::agreed::<UNSEEN_US_PER_S>)
        .goal(AtMost(1.0)),
    row("lo/put-64", "ns", local::put_64).beside("memcpy of 64 bytes", memory::copy_64),
    row("lo/get-1m", "GB/s", local::get_1m).beside("memcpy", memory::copy).goal(AtLeast(0.9)),
    row("mem/peer-idle", "B", cost::idle_peer::<100_000>)
        .beside("1 KiB, each of 100,000 peers", limit::agreed::<1024>)
        .goal(AtMost(1.0)),
    row("mem/md-posted", "B", cost::posted_md::<1_000_000>)
        .beside("512 bytes, each of 1,000,000 MDs", limit::agreed::<512>)
        .goal(AtMost(1.0)),
    row("alloc/message", "1", cost::allocations).beside("one box", limit::boxes).goal(AtMost(0.0)),
    row("alloc/message-lo", "1", cost::local_allocations).beside("one box", limit::boxes).goal(AtMost(0.0)),
];
