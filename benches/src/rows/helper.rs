//! The rows of the helper process.

use super::{Goal, Row, SecondAnchor};
use crate::anchors::{self, limit, memory, packets};
use crate::error::Result;
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::helper::{clients, flood, stall, submit, syscalls};
use crate::ours::xo::pair::Way;
use crate::ours::xo::{bulk, pingpong, rate};

/// What a client that does nothing may take of the helper's memory: its ring, its tables, its place among the others.
const CLIENT_BYTES: u32 = 64 << 10;

/// What a transfer machine may take there before its first operation.
const MACHINE_BYTES: u32 = 5 * 4096;

/// What a registered buffer may take there.
const BUFFER_BYTES: u32 = 512;

/// What a message may take at the most while other clients leave with very much, or take memory away: milliseconds.
const STALL_MS: u32 = 20;

/// Clients that do nothing.
const CROWD: usize = 1_000;

/// A message in-process, and what wakes the helpers: one by an eventfd, when a client submits; one a client by a futex, when
/// its event is there. Microseconds one way.
fn in_process_and_wakes(round: &Round) -> Result<Sample> {
    let parts = [pingpong::sleeping, anchors::wake::eventfds, anchors::wake::futexes];
    let values = parts.iter().map(|part| part(round).map(|sample| sample.value));
    Ok(Sample::of(values.sum::<Result<f64>>()?))
}

pub(super) static ROWS: &[Row] = &[
    Row {
        name: "helper/submit-1",
        unit: "M/s",
        ours: submit::one_by_one,
        anchor_name: "a packet on a socket each",
        anchor: packets::one_by_one,
        goal: Goal::AtLeast(1.0),
        second: None,
    },
    Row {
        name: "helper/submit-32",
        unit: "M/s",
        ours: submit::in_batches,
        anchor_name: "32 in a packet on a socket",
        anchor: packets::in_batches,
        goal: Goal::AtLeast(1.0),
        second: None,
    },
    Row {
        name: "helper/submit-wake",
        unit: "µs",
        ours: submit::there_and_back,
        anchor_name: "a packet there, a packet back",
        anchor: packets::there_and_back,
        goal: Goal::AtMost(1.1),
        second: None,
    },
    Row {
        name: "helper/pingpong-64",
        unit: "µs",
        ours: |round| pingpong::by(round, Way::Helpers).map(|sample| Sample::of(sample.value)),
        anchor_name: "in-process, and two wake-ups: wake/eventfd, wake/futex",
        anchor: in_process_and_wakes,
        goal: Goal::AtMost(1.15),
        second: Some(SecondAnchor { name: "in-process", side: pingpong::sleeping, goal: Goal::Open }),
    },
    Row {
        name: "helper/get-1m",
        unit: "GB/s",
        ours: |round| bulk::get_by(round, Way::Helpers),
        anchor_name: "in-process",
        anchor: bulk::get,
        goal: Goal::AtLeast(0.95),
        second: None,
    },
    Row {
        name: "helper/put-1m",
        unit: "GB/s",
        ours: |round| bulk::put_by(round, Way::Helpers),
        anchor_name: "in-process",
        anchor: bulk::put,
        goal: Goal::AtLeast(0.95),
        second: None,
    },
    Row {
        name: "helper/rate-64",
        unit: "M/s",
        ours: |round| rate::by(round, Way::Helpers),
        anchor_name: "in-process",
        anchor: rate::answered_messages,
        goal: Goal::Open,
        second: None,
    },
    Row {
        name: "helper/two-clients-1m",
        unit: "GB/s",
        ours: |round| bulk::get_by(round, Way::OneHelper).map(|sample| Sample::of(sample.value)),
        anchor_name: "the system's copy from another process",
        anchor: memory::from_another_process,
        goal: Goal::Open,
        second: Some(SecondAnchor { name: "memcpy", side: memory::copy, goal: Goal::Open }),
    },
    Row {
        name: "helper/clients-1000",
        unit: "1",
        ours: clients::in_a_crowd::<CROWD>,
        anchor_name: "a message without 1,000 idle clients, in turn",
        anchor: limit::agreed::<1>,
        goal: Goal::AtMost(1.1),
        second: None,
    },
    Row {
        name: "helper/stall",
        unit: "ms",
        ours: stall::longest,
        anchor_name: "20 ms",
        anchor: limit::agreed::<STALL_MS>,
        goal: Goal::AtMost(1.0),
        second: Some(SecondAnchor {
            name: "the longest beside nothing",
            side: stall::longest_in_peace,
            goal: Goal::Open,
        }),
    },
    Row {
        name: "helper/honest-beside-flood",
        unit: "k/s",
        ours: flood::rate,
        anchor_name: "beside one busy process",
        anchor: flood::rate_beside_busy,
        goal: Goal::AtLeast(0.4),
        second: None,
    },
    Row {
        name: "helper/honest-beside-flood-p99",
        unit: "µs",
        ours: flood::p99,
        anchor_name: "beside one busy process",
        anchor: flood::p99_beside_busy,
        goal: Goal::AtMost(3.0),
        second: None,
    },
    Row {
        name: "helper/attach",
        unit: "µs",
        ours: clients::attach,
        anchor_name: "a connection, a packet, its answer",
        anchor: packets::attach,
        goal: Goal::Open,
        second: None,
    },
    Row {
        name: "helper/memory-client",
        unit: "B",
        ours: clients::client::<200>,
        anchor_name: "64 KiB, each of 200 clients",
        anchor: limit::agreed::<CLIENT_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "helper/memory-tm",
        unit: "B",
        ours: clients::machine::<200>,
        anchor_name: "five pages, each of 200 transfer machines",
        anchor: limit::agreed::<MACHINE_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "helper/memory-buffer",
        unit: "B",
        ours: clients::buffer::<10_000>,
        anchor_name: "512 bytes, each of 10,000 buffers",
        anchor: limit::agreed::<BUFFER_BYTES>,
        goal: Goal::AtMost(1.0),
        second: None,
    },
    Row {
        name: "helper/syscalls-event",
        unit: "1",
        ours: |round| syscalls::events(round, Way::Helpers),
        anchor_name: "one for each event that is there",
        anchor: limit::agreed::<1>,
        goal: Goal::AtMost(0.0),
        second: None,
    },
    Row {
        name: "helper/syscalls-submission",
        unit: "1",
        ours: |round| syscalls::submissions(round, Way::Helpers),
        anchor_name: "one for each operation of a batch",
        anchor: limit::agreed::<1>,
        goal: Goal::AtMost(1.0),
        second: Some(SecondAnchor {
            name: "in-process",
            side: |round| syscalls::submissions(round, Way::InProcess),
            goal: Goal::Open,
        }),
    },
    Row {
        name: "helper/syscalls-wait",
        unit: "1",
        ours: |round| syscalls::waits(round, Way::Helpers),
        anchor_name: "one for each answer, while no event is there",
        anchor: limit::agreed::<1>,
        goal: Goal::Open,
        second: Some(SecondAnchor {
            name: "in-process",
            side: |round| syscalls::waits(round, Way::InProcess),
            goal: Goal::Open,
        }),
    },
    Row {
        name: "helper/syscalls-client",
        unit: "1",
        ours: syscalls::client,
        anchor_name: "one for each message and its answer",
        anchor: limit::agreed::<1>,
        goal: Goal::AtMost(1.0),
        second: Some(SecondAnchor { name: "in-process", side: syscalls::in_process, goal: Goal::Open }),
    },
    Row {
        name: "helper/syscalls-helper",
        unit: "1",
        ours: syscalls::helper,
        anchor_name: "in-process",
        anchor: syscalls::in_process,
        goal: Goal::Open,
        second: None,
    },
];
