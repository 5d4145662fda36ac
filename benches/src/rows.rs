//! The table of rows.

mod engine;
mod helper;
mod kcore;
#[cfg(feature = "verbs")]
mod o2ib;
mod xo;

use std::fmt;

use crate::error::{BenchError, Result};
use crate::measure::Side;
use crate::{anchors, ours};

/// What a ratio should be. Bandwidth and rates have a lower bound, latencies and costs an upper one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// What is counted is what was calculated.
    #[cfg_attr(not(feature = "verbs"), expect(dead_code, reason = "what is over RDMA is counted so"))]
    Equal,
    /// None: the ratio is only to be seen.
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

/// Something that is measured.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) ours: Side,
    pub(crate) anchor_name: &'static str,
    pub(crate) anchor: Side,
    pub(crate) goal: Goal,
    /// A second comparison, taken in the same rounds.
    pub(crate) second: Option<SecondAnchor>,
}

/// Something else that a row is compared with.
#[derive(Debug)]
pub(crate) struct SecondAnchor {
    pub(crate) name: &'static str,
    pub(crate) side: Side,
    pub(crate) goal: Goal,
}

/// All rows, in the order in which they are measured.
pub(crate) fn all() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(engine::ROWS).chain(kcore::ROWS).chain(xo::ROWS).chain(helper::ROWS).chain(OVER_RDMA)
}

/// The rows over RDMA, where they are built.
#[cfg(feature = "verbs")]
static OVER_RDMA: &[Row] = o2ib::ROWS;
#[cfg(not(feature = "verbs"))]
static OVER_RDMA: &[Row] = &[];

/// What a connection without traffic may cost this process: no more than about what the system itself keeps for one (the
/// socket, its file and its place in epoll), so that ten thousand connections are 40 MiB.
const CONNECTION_BYTES: u32 = 4096;

/// The queue, wake-ups, and what goes from process to process.
static ROWS: &[Row] = &[
    Row {
        name: "bevq/throughput-1",
        unit: "M/s",
        ours: ours::bevq::one_by_one,
        anchor_name: "rtrb between threads, one by one",
        anchor: anchors::ring::one_by_one,
        goal: Goal::AtLeast(1.1),
        second: None,
    },
    Row {
        name: "bevq/throughput-batch",
        unit: "M/s",
        ours: ours::bevq::in_chunks,
        anchor_name: "rtrb between threads, chunks of 32",
        anchor: anchors::ring::in_chunks,
        goal: Goal::AtLeast(1.0),
        second: None,
    },
    Row {
        name: "bevq/latency",
        unit: "ns",
        ours: ours::bevq::latency,
        anchor_name: "one cache line between two cores",
        anchor: anchors::flag::pingpong,
        goal: Goal::AtMost(2.0),
        second: Some(SecondAnchor {
            name: "rtrb between threads",
            side: anchors::ring::latency,
            goal: Goal::AtMost(1.1),
        }),
    },
    Row {
        name: "wake/futex",
        unit: "µs",
        ours: ours::wake::futex,
        anchor_name: "parked threads",
        anchor: anchors::wake::futexes,
        goal: Goal::AtMost(1.1),
        second: None,
    },
    Row {
        name: "wake/spin",
        unit: "µs",
        ours: ours::wake::spinning,
        anchor_name: "parked threads",
        anchor: anchors::wake::futexes,
        goal: Goal::AtMost(1.1),
        second: None,
    },
    Row {
        name: "wake/eventfd",
        unit: "µs",
        ours: ours::wake::eventfd,
        anchor_name: "bare eventfds and ppoll",
        anchor: anchors::wake::eventfds,
        goal: Goal::AtMost(1.1),
        second: None,
    },
    Row {
        name: "wake/waiter",
        unit: "µs",
        ours: ours::wake::waiter,
        anchor_name: "bare eventfds and ppoll",
        anchor: anchors::wake::eventfds,
        goal: Goal::AtMost(1.1),
        second: None,
    },
    Row {
        name: "tcp/pingpong-64",
        unit: "µs",
        ours: ours::lnet::pingpong::sleeping::<64>,
        anchor_name: "raw epoll loop",
        anchor: anchors::pingpong::sleeping::<64>,
        goal: Goal::AtMost(1.2),
        second: None,
    },
    Row {
        name: "tcp/pingpong-64-polling",
        unit: "µs",
        ours: ours::lnet::pingpong::polling::<64>,
        anchor_name: "raw busy loop",
        anchor: anchors::pingpong::polling::<64>,
        goal: Goal::AtMost(1.35),
        second: None,
    },
    Row {
        name: "tcp/pingpong-4k",
        unit: "µs",
        ours: ours::lnet::pingpong::sleeping::<4096>,
        anchor_name: "raw epoll loop",
        anchor: anchors::pingpong::sleeping::<4096>,
        goal: Goal::AtMost(1.2),
        second: None,
    },
    Row {
        name: "tcp/rate-64",
        unit: "M/s",
        ours: ours::lnet::rate::puts,
        anchor_name: "raw coalesced loop, window 64",
        anchor: anchors::rate::coalesced,
        goal: Goal::AtLeast(0.4),
        second: Some(SecondAnchor {
            name: "raw loop, one call each",
            side: anchors::rate::one_call_each,
            goal: Goal::AtLeast(4.0),
        }),
    },
    Row {
        name: "tcp/get-1m",
        unit: "GB/s",
        ours: ours::lnet::bulk::get,
        anchor_name: "raw loop",
        anchor: anchors::bulk::get,
        goal: Goal::AtLeast(0.95),
        second: None,
    },
    Row {
        name: "tcp/get-1m-8",
        unit: "GB/s",
        ours: ours::lnet::bulk::get_8,
        anchor_name: "raw loop, 8 in flight",
        anchor: anchors::bulk::get_8,
        goal: Goal::AtLeast(0.95),
        second: None,
    },
    Row {
        name: "tcp/put-1m",
        unit: "GB/s",
        ours: ours::lnet::bulk::put,
        anchor_name: "raw loop",
        anchor: anchors::bulk::put,
        goal: Goal::AtLeast(0.95),
        second: None,
    },
    Row {
        name: "tcp/put-1m-8",
        unit: "GB/s",
        ours: ours::lnet::bulk::put_8,
        anchor_name: "raw loop, 8 in flight",
        anchor: anchors::bulk::put_8,
        goal: Goal::AtLeast(0.95),
        second: None,
    },
    Row {
        name: "mem/tcp-connection",
        unit: "B",
        ours: ours::lnet::cost::connection_heap,
        anchor_name: "4 KiB, each of 600 connections to 200 peers",
        anchor: anchors::limit::agreed::<CONNECTION_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "mem/tcp-connection-resident",
        unit: "B",
        ours: ours::lnet::cost::connection_resident,
        anchor_name: "4 KiB, each of 600 connections to 200 peers",
        anchor: anchors::limit::agreed::<CONNECTION_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "alloc/message-tcp",
        unit: "1",
        ours: ours::lnet::cost::allocations,
        anchor_name: "one box",
        anchor: anchors::limit::boxes,
        goal: Goal::AtMost(0.0),
        second: None,
    },
    Row {
        name: "xo/pingpong-64",
        unit: "µs",
        ours: ours::xo::pingpong::sleeping,
        anchor_name: "the same on lnet",
        anchor: ours::lnet::pingpong::sleeping::<64>,
        goal: Goal::AtMost(1.1),
        second: None,
    },
    Row {
        name: "xo/get-1m",
        unit: "GB/s",
        ours: ours::xo::bulk::get,
        anchor_name: "the same on lnet",
        anchor: ours::lnet::bulk::get_as_xo,
        goal: Goal::AtLeast(0.97),
        second: None,
    },
    Row {
        name: "xo/put-1m",
        unit: "GB/s",
        ours: ours::xo::bulk::put,
        anchor_name: "the same on lnet",
        anchor: ours::lnet::bulk::put_as_xo,
        goal: Goal::AtLeast(0.97),
        second: None,
    },
    Row {
        name: "xo/rate-64",
        unit: "M/s",
        ours: ours::xo::rate::answered_messages,
        anchor_name: "the same on lnet",
        anchor: ours::lnet::rate::answered_puts,
        goal: Goal::AtLeast(0.8),
        second: None,
    },
    Row {
        name: "xo/lo-get-1m",
        unit: "GB/s",
        ours: ours::xo::local::get,
        anchor_name: "memcpy",
        anchor: anchors::memory::copy,
        goal: Goal::AtLeast(0.9),
        second: None,
    },
];

/// The rows of these names, in their order; all rows if none is named.
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
    fn each_row_is_found_by_its_name_which_no_other_has() {
        for row in all() {
            let found = select(&[row.name.to_string()]).unwrap();
            assert!(std::ptr::eq(found[0], row), "there are two rows {}", row.name);
        }
    }
}
