//! The table of rows.

mod engine;
mod helper;
mod kcore;
#[cfg(feature = "verbs")]
mod o2ib;
mod service;
mod xo;

use std::fmt;

use Goal::{AtLeast, AtMost};

use crate::error::{BenchError, Result};
use crate::measure::Side;
use crate::{anchors, ours};

/// The goal for a ratio. Bandwidth and rates have a lower bound, latencies and costs an upper one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// The counted value equals the calculated one.
    #[cfg_attr(not(feature = "verbs"), expect(dead_code, reason = "what is over RDMA is counted so"))]
    Equal,
    /// None: the ratio is only shown.
    Open,
}

impl Goal {
    pub(crate) fn is_met(self, ratio: f64) -> bool {
        match self {
            Goal::AtLeast(bound) => ratio >= bound,
            Goal::AtMost(bound) => ratio <= bound,
            Goal::Equal => ratio == 1.0,
            Goal::Open => true,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::AtLeast(bound) => write!(f, ">= {bound}"),
            Goal::AtMost(bound) => write!(f, "<= {bound}"),
            Goal::Equal => f.write_str("= 1"),
            Goal::Open => f.write_str("none"),
        }
    }
}

/// A measurement.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: Side,
    pub(crate) anchor_name: &'static str,
    pub(crate) anchor: Side,
    pub(crate) goal: Goal,
    /// The goal while a cache line takes less than [`NEAR_NS`] from core to core, if it differs.
    pub(crate) near: Option<Goal>,
    /// A second comparison, measured in the same rounds.
    pub(crate) second: Option<SecondAnchor>,
}

/// Cores between which a cache line takes less than this number of nanoseconds are near: they share
/// a cache.
pub(crate) const NEAR_NS: f64 = 100.0;

/// Another anchor of a row.
#[derive(Debug)]
pub(crate) struct SecondAnchor {
    pub(crate) name: &'static str,
    pub(crate) side: Side,
    pub(crate) goal: Goal,
}

/// nlx's side of a row.
struct Ours {
    name: &'static str,
    unit: &'static str,
    side: Side,
}

/// Begins a row.
const fn row(name: &'static str, unit: &'static str, side: Side) -> Ours {
    Ours { name, unit, side }
}

impl Ours {
    /// Adds the anchor; the row has no goal yet.
    const fn beside(self, anchor_name: &'static str, anchor: Side) -> Row {
        let Ours { name, unit, side } = self;
        Row { name, unit, ours: side, anchor_name, anchor, goal: Goal::Open, near: None, second: None }
    }
}

impl Row {
    /// Sets the goal.
    const fn goal(self, goal: Goal) -> Row {
        Row { goal, ..self }
    }

    /// Sets another goal for cores that are near each other.
    const fn near(self, goal: Goal) -> Row {
        Row { near: Some(goal), ..self }
    }

    /// Returns the goal for this time of a cache line from core to core.
    pub(crate) fn goal_at(&self, flag_ns: f64) -> Goal {
        self.near.filter(|_| flag_ns < NEAR_NS).unwrap_or(self.goal)
    }

    /// Adds a second comparison.
    const fn and(self, name: &'static str, side: Side, goal: Goal) -> Row {
        Row { second: Some(SecondAnchor { name, side, goal }), ..self }
    }
}

/// Returns all rows, in the order in which they are measured.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    ROWS.iter()
        .chain(engine::ROWS)
        .chain(kcore::ROWS)
        .chain(xo::ROWS)
        .chain(service::ROWS)
        .chain(helper::ROWS)
        .chain(OVER_RDMA)
}

/// The rows over RDMA, if they are built.
#[cfg(feature = "verbs")]
static OVER_RDMA: &[Row] = o2ib::ROWS;
#[cfg(not(feature = "verbs"))]
static OVER_RDMA: &[Row] = &[];

/// Limit of the memory of an idle connection in this process: about the memory that the system
/// itself needs for one (the socket, its file and its entry in epoll), so that ten thousand
/// connections are 40 MiB.
const CONNECTION_BYTES: u32 = 4096;

/// The queue, wake-ups, and traffic between processes.
static ROWS: &[Row] = &[
    row("bevq/throughput-1", "M/s", ours::bevq::one_by_one)
        .beside("rtrb between threads, one by one", anchors::ring::one_by_one)
        .goal(AtLeast(1.1))
        .near(AtLeast(1.0)),
    row("bevq/throughput-batch", "M/s", ours::bevq::in_chunks)
        .beside("rtrb between threads, chunks of 32", anchors::ring::in_chunks)
        .goal(AtLeast(1.0)),
    row("bevq/latency", "ns", ours::bevq::latency)
        .beside("one cache line between two cores", anchors::flag::pingpong)
        .goal(AtMost(2.0))
        .and("rtrb between threads", anchors::ring::latency, AtMost(1.1)),
    row("wake/futex", "µs", ours::wake::futex)
        .beside("parked threads", anchors::wake::futexes)
        .goal(AtMost(1.1)),
    row("wake/spin", "µs", ours::wake::spinning)
        .beside("parked threads", anchors::wake::futexes)
        .goal(AtMost(1.1)),
    row("wake/eventfd", "µs", ours::wake::eventfd)
        .beside("bare eventfds and ppoll", anchors::wake::eventfds)
        .goal(AtMost(1.1)),
    row("wake/waiter", "µs", ours::wake::waiter)
        .beside("bare eventfds and ppoll", anchors::wake::eventfds)
        .goal(AtMost(1.1)),
    row("tcp/pingpong-64", "µs", ours::lnet::pingpong::sleeping::<64>)
        .beside("raw epoll loop", anchors::pingpong::sleeping::<64>)
        .goal(AtMost(1.1)),
    row("tcp/pingpong-64-polling", "µs", ours::lnet::pingpong::polling::<64>)
        .beside("raw busy loop", anchors::pingpong::polling::<64>)
        .goal(AtMost(1.12)),
    row("tcp/pingpong-64-default", "µs", ours::lnet::pingpong::default::<64>)
        .beside("the same, polling", ours::lnet::pingpong::polling::<64>)
        .goal(AtMost(1.1)),
    row("tcp/pingpong-4k", "µs", ours::lnet::pingpong::sleeping::<4096>)
        .beside("raw epoll loop", anchors::pingpong::sleeping::<4096>)
        .goal(AtMost(1.1)),
    row("tcp/pingpong-4k-polling", "µs", ours::lnet::pingpong::polling::<4096>)
        .beside("raw busy loop", anchors::pingpong::polling::<4096>)
        .goal(AtMost(1.12)),
    row("tcp/rate-64", "M/s", ours::lnet::rate::puts)
        .beside("raw coalesced loop, window 64", anchors::rate::coalesced)
        .goal(AtLeast(0.8))
        .and("raw loop, one call each", anchors::rate::one_call_each, AtLeast(4.0)),
    row("tcp/get-1m", "GB/s", ours::lnet::bulk::get)
        .beside("raw loop", anchors::bulk::get)
        .goal(AtLeast(0.95))
        .and("raw loop, polling", anchors::bulk::get_polling, AtLeast(0.95)),
    row("tcp/get-1m-polling", "GB/s", ours::lnet::bulk::get_polling)
        .beside("raw loop, polling", anchors::bulk::get_polling)
        .goal(AtLeast(0.95)),
    row("tcp/get-1m-8", "GB/s", ours::lnet::bulk::get_8)
        .beside("raw loop, 8 in flight", anchors::bulk::get_8)
        .goal(AtLeast(0.95))
        .and("raw loop, 8 in flight, polling", anchors::bulk::get_8_polling, AtLeast(0.95)),
    row("tcp/put-1m", "GB/s", ours::lnet::bulk::put)
        .beside("raw loop", anchors::bulk::put)
        .goal(AtLeast(0.95))
        .and("raw loop, polling", anchors::bulk::put_polling, AtLeast(0.95)),
    row("tcp/put-1m-polling", "GB/s", ours::lnet::bulk::put_polling)
        .beside("raw loop, polling", anchors::bulk::put_polling)
        .goal(AtLeast(0.95)),
    row("tcp/put-1m-8", "GB/s", ours::lnet::bulk::put_8)
        .beside("raw loop, 8 in flight", anchors::bulk::put_8)
        .goal(AtLeast(0.95))
        .and("raw loop, 8 in flight, polling", anchors::bulk::put_8_polling, AtLeast(0.95)),
    row("mem/tcp-connection", "B", ours::lnet::cost::connection_heap)
        .beside("4 KiB, each of 600 connections to 200 peers", anchors::limit::agreed::<CONNECTION_BYTES>)
        .goal(AtMost(1.0)),
    row("mem/tcp-connection-resident", "B", ours::lnet::cost::connection_resident)
        .beside("4 KiB, each of 600 connections to 200 peers", anchors::limit::agreed::<CONNECTION_BYTES>)
        .goal(AtMost(1.0)),
    row("alloc/message-tcp", "1", ours::lnet::cost::allocations)
        .beside("one box", anchors::limit::boxes)
        .goal(AtMost(0.0)),
    row("xo/pingpong-64", "µs", ours::xo::pingpong::default)
        .beside("the same on lnet", ours::lnet::pingpong::default::<64>)
        .goal(AtMost(1.05))
        .and("raw busy loop", anchors::pingpong::polling::<64>, AtMost(2.0)),
    row("xo/get-1m", "GB/s", ours::xo::bulk::get)
        .beside("the same on lnet", ours::lnet::bulk::get_as_xo)
        .goal(AtLeast(0.98)),
    row("xo/put-1m", "GB/s", ours::xo::bulk::put)
        .beside("the same on lnet", ours::lnet::bulk::put_as_xo)
        .goal(AtLeast(0.98)),
    row("xo/rate-64", "M/s", ours::xo::rate::answered_messages)
        .beside("the same on lnet", ours::lnet::rate::answered_puts)
        .goal(AtLeast(0.9)),
    row("xo/lo-get-1m", "GB/s", ours::xo::local::get)
        .beside("memcpy", anchors::memory::copy)
        .goal(AtLeast(0.9)),
];

/// Returns the rows with these names, in their order; all rows if none is named.
pub(crate) fn select(names: &[String]) -> Result<Vec<&'static Row>> {
    if names.is_empty() {
        return Ok(all().collect());
    }
    let find = |name: &String| all().find(|row| row.name == name);
    names.iter().map(|name| find(name).ok_or_else(|| BenchError::UnknownRow { name: name.clone() })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_row_is_wrong_usage() {
        assert_eq!(select(&["no/such-row".to_string()]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn cores_that_are_near_have_their_own_goal() {
        let row = |name: &str| all().find(|row| row.name == name).unwrap();
        let goals = |name, ns: [f64; 3]| ns.map(|ns| row(name).goal_at(ns));
        let [near, at, far] = goals("bevq/throughput-1", [99.9, 100.0, 180.0]);
        assert_eq!((near, at, far), (AtLeast(1.0), AtLeast(1.1), AtLeast(1.1)));
        assert_eq!(goals("bevq/latency", [50.0, 100.0, 180.0]), [AtMost(2.0); 3]);
    }

    #[test]
    fn each_row_is_found_by_its_name_which_no_other_has() {
        for row in all() {
            let found = select(&[row.name.to_string()]).unwrap();
            assert!(std::ptr::eq(found[0], row), "there are two rows {}", row.name);
        }
    }
}
