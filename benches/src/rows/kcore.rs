//! The rows of the Core interface, without a network.
//!
//! `kcore/callback-…` is what LNet's event callback costs with so many other transfer machines, posted buffers and events that
//! wait. It does the same work whatever their number; what grows is the way to memory, which the anchor shows.

use super::{Goal, Row, Side};
use crate::anchors::{limit, memory};
use crate::ours::engine::local as lnet;
use crate::ours::kcore::{callback, cost, local};

/// What a transfer machine may take of memory before its first operation: four pages.
const MACHINE_BYTES: u32 = 4 * 4096;

/// What a registered buffer may take besides its memory.
const BUFFER_BYTES: u32 = 256;

const fn among(name: &'static str, ours: Side, anchor_name: &'static str, anchor: Side) -> Row {
    Row { name, unit: "ns", ours, anchor_name, anchor, goal: Goal::Open, second: None }
}

pub(super) static ROWS: &[Row] = &[
    Row {
        name: "kcore/lo-put",
        unit: "ns",
        ours: local::put,
        anchor_name: "the same on lnet: post, bind, PUT, events",
        anchor: lnet::letter,
        goal: Goal::Open,
        second: None,
    },
    Row {
        name: "kcore/register",
        unit: "ns",
        ours: local::register,
        anchor_name: "bind and unlink on lnet",
        anchor: lnet::bind,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    among("kcore/callback-1", callback::among::<1>, "touching one record", memory::touch::<1>),
    among("kcore/callback-1k", callback::among::<1_000>, "touching one of 1,000", memory::touch::<1_000>),
    among(
        "kcore/callback-100k",
        callback::among::<100_000>,
        "touching one of 100,000",
        memory::touch::<100_000>,
    ),
    Row {
        name: "kcore/memory-tm",
        unit: "B",
        ours: cost::machine::<1_000>,
        anchor_name: "four pages, each of 1,000 transfer machines",
        anchor: limit::agreed::<MACHINE_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "kcore/memory-buffer",
        unit: "B",
        ours: cost::buffer::<100_000>,
        anchor_name: "256 bytes, each of 100,000 buffers",
        anchor: limit::agreed::<BUFFER_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "alloc/operation",
        unit: "1",
        ours: cost::allocations,
        anchor_name: "one box",
        anchor: limit::boxes,
        goal: Goal::AtMost(0.0),
        second: None,
    },
];
