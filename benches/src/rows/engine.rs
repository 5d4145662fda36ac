//! The rows of the engine.
//!
//! `match/…` is the whole matching step: what the engine does with an arriving PUT, from its header to its event, locks
//! and counters included, with so many MDs posted; all from one NID or, in the rows `-many`, from 4,096. Both sides do
//! *dependent* look-ups, as messages are matched one after the other (see [`keys::chain`](crate::keys::chain)); the
//! second comparison, which has no goal, is with look-ups that the processor overlaps. Only the rows with 1 M entries have
//! a goal: there the way to memory decides. With few entries the work that every message causes is all there is to see.
//!
//! `smp/…` lets two threads exchange messages, each for a partition of its own. `smp/sharing` shows how much of the
//! distance to twice one thread is the engine's and not the machine's.

use super::{Goal, Row, SecondAnchor, Side};
use crate::anchors::{limit, lookup, memory};
use crate::keys::MANY;
use crate::ours::engine::{cost, exchange, local, matching};

/// What the whole matching step may cost among 1 M entries, in look-ups.
const MATCHING: Goal = Goal::AtMost(4.0);

/// Matching among `COUNT` buffers from `SOURCES` NIDs.
const fn among<const COUNT: usize, const SOURCES: usize>(
    name: &'static str,
    ours: Side,
    anchor_name: &'static str,
    goal: Goal,
) -> Row {
    let (side, anchor) = (lookup::independent::<COUNT, SOURCES>, lookup::dependent::<COUNT, SOURCES>);
    let second = Some(SecondAnchor { name: "the same, independent", side, goal: Goal::Open });
    Row { name, unit: "ns", ours, anchor_name, anchor, goal, second }
}

/// Matching where one buffer is posted.
const fn alone(name: &'static str, ours: Side) -> Row {
    let (anchor_name, anchor) = ("hashbrown, dependent look-ups of one entry", lookup::dependent::<1, 1>);
    Row { name, unit: "ns", ours, anchor_name, anchor, goal: Goal::Open, second: None }
}

pub(super) static ROWS: &[Row] = &[
    alone("match/unique-1", matching::unique::<1, 1>),
    among::<1_000, 1>(
        "match/unique-1k",
        matching::unique::<1_000, 1>,
        "hashbrown, dependent look-ups among 1,000, one NID",
        Goal::Open,
    ),
    among::<100_000, 1>(
        "match/unique-100k",
        matching::unique::<100_000, 1>,
        "hashbrown, dependent look-ups among 100,000, one NID",
        Goal::Open,
    ),
    among::<1_000_000, 1>(
        "match/unique-1m",
        matching::unique::<1_000_000, 1>,
        "hashbrown, dependent look-ups among 1,000,000, one NID",
        MATCHING,
    ),
    among::<1_000_000, MANY>(
        "match/unique-1m-many",
        matching::unique::<1_000_000, MANY>,
        "hashbrown, dependent look-ups among 1,000,000, 4,096 NIDs",
        MATCHING,
    ),
    alone("match/wildcard-exact-1", matching::wildcard_exact::<1, 1>),
    among::<1_000, 1>(
        "match/wildcard-exact-1k",
        matching::wildcard_exact::<1_000, 1>,
        "hashbrown, dependent look-ups among 1,000, one NID",
        Goal::Open,
    ),
    among::<100_000, 1>(
        "match/wildcard-exact-100k",
        matching::wildcard_exact::<100_000, 1>,
        "hashbrown, dependent look-ups among 100,000, one NID",
        Goal::Open,
    ),
    among::<1_000_000, 1>(
        "match/wildcard-exact-1m",
        matching::wildcard_exact::<1_000_000, 1>,
        "hashbrown, dependent look-ups among 1,000,000, one NID",
        MATCHING,
    ),
    among::<1_000_000, MANY>(
        "match/wildcard-exact-1m-many",
        matching::wildcard_exact::<1_000_000, MANY>,
        "hashbrown, dependent look-ups among 1,000,000, 4,096 NIDs",
        MATCHING,
    ),
    Row {
        name: "match/insert-worst",
        unit: "ms",
        ours: matching::worst_post::<1_000_000>,
        anchor_name: "longest insert of hashbrown, growing to 1,000,000",
        anchor: lookup::worst_insert::<1_000_000>,
        goal: Goal::AtMost(0.1),
        second: None,
    },
    Row {
        name: "smp/2-threads",
        unit: "M/s",
        ours: exchange::two_threads,
        anchor_name: "one thread, 2 partitions",
        anchor: exchange::one_thread,
        goal: Goal::AtLeast(1.7),
        second: Some(SecondAnchor {
            name: "2 threads, npartitions=1",
            side: exchange::two_threads_one_partition,
            goal: Goal::AtLeast(1.0),
        }),
    },
    Row {
        name: "smp/sharing",
        unit: "M/s",
        ours: exchange::two_threads,
        anchor_name: "2 threads with a node each, which share nothing",
        anchor: exchange::two_nodes,
        goal: Goal::Open,
        second: None,
    },
    Row {
        name: "lo/put-64",
        unit: "ns",
        ours: local::put_64,
        anchor_name: "memcpy of 64 bytes",
        anchor: memory::copy_64,
        goal: Goal::Open,
        second: None,
    },
    Row {
        name: "lo/get-1m",
        unit: "GB/s",
        ours: local::get_1m,
        anchor_name: "memcpy",
        anchor: memory::copy,
        goal: Goal::AtLeast(0.9),
        second: None,
    },
    Row {
        name: "mem/peer-idle",
        unit: "B",
        ours: cost::idle_peer::<100_000>,
        anchor_name: "1 KiB, each of 100,000 peers",
        anchor: limit::agreed::<1024>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "mem/md-posted",
        unit: "B",
        ours: cost::posted_md::<1_000_000>,
        anchor_name: "512 bytes, each of 1,000,000 MDs",
        anchor: limit::agreed::<512>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "alloc/message",
        unit: "1",
        ours: cost::allocations,
        anchor_name: "one box",
        anchor: limit::boxes,
        goal: Goal::AtMost(0.0),
        second: None,
    },
    Row {
        name: "alloc/message-lo",
        unit: "1",
        ours: cost::local_allocations,
        anchor_name: "one box",
        anchor: limit::boxes,
        goal: Goal::AtMost(0.0),
        second: None,
    },
];
