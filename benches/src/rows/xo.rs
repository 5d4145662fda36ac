//! The rows of the storage client's interface, without a network.

use super::{Goal, Row};
use crate::anchors::limit;
use crate::ours::kcore::local as kcore;
use crate::ours::xo::cost;

/// What a transfer machine may take of memory before its first operation: a page more than one of the Core interface.
const MACHINE_BYTES: u32 = 5 * 4096;

/// What an end point may take: its address, its count, and its place in the table when that has just grown.
const END_POINT_BYTES: u32 = 256;

/// What a registered buffer may take besides its memory.
const BUFFER_BYTES: u32 = 512;

/// Operations with a timeout that are pending.
const PENDING: usize = 100_000;

pub(super) static ROWS: &[Row] = &[
    Row {
        name: "xo/timeouts",
        unit: "ns",
        ours: cost::with_timeouts::<PENDING>,
        anchor_name: "without timeouts, beside the same 100,000 that have one",
        anchor: cost::without_timeouts::<PENDING>,
        goal: Goal::AtMost(1.5),
        second: None,
    },
    Row {
        name: "xo/register",
        unit: "ns",
        ours: cost::register,
        anchor_name: "the same on the Core interface",
        anchor: kcore::register,
        goal: Goal::AtMost(2.0),
        second: None,
    },
    Row {
        name: "xo/memory-tm",
        unit: "B",
        ours: cost::machine::<1_000>,
        anchor_name: "five pages, each of 1,000 transfer machines",
        anchor: limit::agreed::<MACHINE_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "xo/memory-end-point",
        unit: "B",
        ours: cost::end_point::<100_000>,
        anchor_name: "256 bytes, each of 100,000 end points",
        anchor: limit::agreed::<END_POINT_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "xo/memory-buffer",
        unit: "B",
        ours: cost::buffer::<100_000>,
        anchor_name: "512 bytes, each of 100,000 buffers",
        anchor: limit::agreed::<BUFFER_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "alloc/xo-operation",
        unit: "1",
        ours: cost::allocations,
        anchor_name: "one box",
        anchor: limit::boxes,
        goal: Goal::AtMost(0.0),
        second: None,
    },
];
