//! The rows of the Core interface, without a network.
//!
//! `kcore/callback-…` is the cost of LNet's event callback with the number of other transfer
//! machines, posted buffers and waiting events in the row's name. The work does not depend on that
//! number; memory latency does, which the anchor shows.

use super::Goal::AtMost;
use super::{Row, Side, row};
use crate::anchors::{limit, memory};
use crate::ours::engine::local as lnet;
use crate::ours::kcore::{callback, cost, local};

/// Limit of the memory of a transfer machine before its first operation: four pages.
const MACHINE_BYTES: u32 = 4 * 4096;

/// Limit of the memory of a registered buffer, without its content.
const BUFFER_BYTES: u32 = 256;

const fn among(name: &'static str, ours: Side, anchor_name: &'static str, anchor: Side) -> Row {
    row(name, "ns", ours).beside(anchor_name, anchor)
}

pub(super) static ROWS: &[Row] = &[
    row("kcore/lo-put", "ns", local::put)
        .beside("the same on lnet: post, PUT that binds, events", lnet::letter)
        .goal(AtMost(1.35)),
    row("kcore/register", "ns", local::register)
        .beside("bind and unlink on lnet", lnet::bind)
        .goal(AtMost(1.0)),
    among("kcore/callback-1", callback::among::<1>, "touching one record", memory::touch::<1>),
    among("kcore/callback-1k", callback::among::<1_000>, "touching one of 1,000", memory::touch::<1_000>),
    among(
        "kcore/callback-100k",
        callback::among::<100_000>,
        "touching one of 100,000",
        memory::touch::<100_000>,
    ),
    row("kcore/memory-tm", "B", cost::machine::<1_000>)
        .beside("four pages, each of 1,000 transfer machines", limit::agreed::<MACHINE_BYTES>)
        .goal(AtMost(1.0)),
    row("kcore/memory-buffer", "B", cost::buffer::<100_000>)
        .beside("256 bytes, each of 100,000 buffers", limit::agreed::<BUFFER_BYTES>)
        .goal(AtMost(1.0)),
    row("alloc/operation", "1", cost::allocations).beside("one box", limit::boxes).goal(AtMost(0.0)),
];
