//! The rows of the storage client's interface, without a network.

use super::Goal::AtMost;
use super::{Row, row};
use crate::anchors::limit;
use crate::ours::kcore::local as kcore;
use crate::ours::xo::cost;

/// Limit of the memory of a transfer machine before its first operation: a page more than one of
/// the Core interface.
const MACHINE_BYTES: u32 = 5 * 4096;

/// Limit of the memory of an end point: its address, its count, and its entry in a table that has
/// just grown.
const END_POINT_BYTES: u32 = 256;

/// Limit of the memory of a registered buffer, without its content.
const BUFFER_BYTES: u32 = 512;

/// Number of pending operations with a timeout.
const PENDING: usize = 100_000;

pub(super) static ROWS: &[Row] = &[
    row("xo/timeouts", "ns", cost::with_timeouts::<PENDING>)
        .beside("without timeouts, beside the same 100,000 that have one", cost::without_timeouts::<PENDING>)
        .goal(AtMost(1.5)),
    row("xo/register", "ns", cost::register)
        .beside("the same on the Core interface", kcore::register)
        .goal(AtMost(2.0)),
    row("xo/memory-tm", "B", cost::machine::<1_000>)
        .beside("five pages, each of 1,000 transfer machines", limit::agreed::<MACHINE_BYTES>)
        .goal(AtMost(1.0)),
    row("xo/memory-end-point", "B", cost::end_point::<100_000>)
        .beside("256 bytes, each of 100,000 end points", limit::agreed::<END_POINT_BYTES>)
        .goal(AtMost(1.0)),
    row("xo/memory-buffer", "B", cost::buffer::<100_000>)
        .beside("512 bytes, each of 100,000 buffers", limit::agreed::<BUFFER_BYTES>)
        .goal(AtMost(1.0)),
    row("alloc/xo-operation", "1", cost::allocations).beside("one box", limit::boxes).goal(AtMost(0.0)),
];
