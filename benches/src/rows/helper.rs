//! The rows of the helper process.

use super::Goal::{AtLeast, AtMost, Open};
use super::{Row, row};
use crate::anchors::{self, limit, memory, packets};
use crate::error::Result;
use crate::measure::Round;
use crate::meter::Sample;
use crate::ours::helper::{clients, flood, stall, submit, syscalls};
use crate::ours::xo::pair::NetworkPath;
use crate::ours::xo::{bulk, pingpong, rate};

/// Limit of the helper's memory for an idle client: its ring, its tables, its entry among the
/// others.
const CLIENT_BYTES: u32 = 64 << 10;

/// Limit of the helper's memory for a transfer machine before its first operation.
const MACHINE_BYTES: u32 = 5 * 4096;

/// Limit of the helper's memory for a registered buffer.
const BUFFER_BYTES: u32 = 512;

/// Longest time of a message while other large clients leave, or take memory away: milliseconds.
const STALL_MS: u32 = 20;

/// Number of idle clients.
const CROWD: usize = 1_000;

/// A message in-process, and the wake-ups of the helpers: of one by an eventfd, when a client
/// submits; of a client by a futex, when its event is available. Microseconds one way.
fn in_process_and_wakes(round: &Round) -> Result<Sample> {
    let parts = [pingpong::default, anchors::wake::eventfds, anchors::wake::futexes];
    let values = parts.iter().map(|part| part(round).map(|sample| sample.value));
    Ok(Sample::of(values.sum::<Result<f64>>()?))
}

pub(super) static ROWS: &[Row] = &[
    row("helper/submit-1", "M/s", submit::one_by_one)
        .beside("a packet on a socket each", packets::one_by_one)
        .goal(AtLeast(1.0)),
    row("helper/submit-32", "M/s", submit::in_batches)
        .beside("32 in a packet on a socket", packets::in_batches)
        .goal(AtLeast(1.0)),
    row("helper/submit-wake", "µs", submit::there_and_back)
        .beside("a packet there, a packet back", packets::there_and_back)
        .goal(AtMost(1.1)),
    row("helper/pingpong-64", "µs", |round| {
        pingpong::by(round, NetworkPath::Helpers).map(|sample| Sample::of(sample.value))
    })
    .beside("in-process, and two wake-ups: wake/eventfd, wake/futex", in_process_and_wakes)
    .goal(AtMost(1.15))
    .and("in-process", pingpong::default, Open),
    row("helper/pingpong-64-apart", "µs", |round| {
        pingpong::by(round, NetworkPath::HelpersApart).map(|sample| Sample::of(sample.value))
    })
    .beside("in-process", pingpong::default)
    .goal(AtMost(1.3)),
    row("helper/get-1m", "GB/s", |round| bulk::get_by(round, NetworkPath::Helpers))
        .beside("in-process", bulk::get)
        .goal(AtLeast(0.97)),
    row("helper/put-1m", "GB/s", |round| bulk::put_by(round, NetworkPath::Helpers))
        .beside("in-process", bulk::put)
        .goal(AtLeast(0.97)),
    row("helper/rate-64", "M/s", |round| rate::by(round, NetworkPath::Helpers))
        .beside("in-process", rate::answered_messages)
        .goal(AtLeast(0.9)),
    row("helper/two-clients-1m", "GB/s", |round| {
        bulk::get_by(round, NetworkPath::OneHelper).map(|sample| Sample::of(sample.value))
    })
    .beside("the system's copy from another process", memory::from_another_process)
    .goal(AtLeast(0.9))
    .and("memcpy", memory::copy, Open),
    row("helper/clients-1000", "1", clients::in_a_crowd::<CROWD>)
        .beside("a message without 1,000 idle clients, in turn", limit::agreed::<1>)
        .goal(AtMost(1.1)),
    row("helper/stall", "ms", stall::longest)
        .beside("20 ms", limit::agreed::<STALL_MS>)
        .goal(AtMost(1.0))
        .and("the longest beside nothing", stall::longest_in_peace, Open),
    row("helper/honest-beside-flood", "k/s", flood::rate)
        .beside("beside one busy process", flood::rate_beside_busy)
        .goal(AtLeast(0.4)),
    row("helper/honest-beside-flood-p99", "µs", flood::p99)
        .beside("beside one busy process", flood::p99_beside_busy)
        .goal(AtMost(3.0)),
    row("helper/attach", "µs", clients::attach).beside("a connection, a packet, its answer", packets::attach),
    row("helper/memory-client", "B", clients::client::<200>)
        .beside("64 KiB, each of 200 clients", limit::agreed::<CLIENT_BYTES>)
        .goal(AtMost(1.0)),
    row("helper/memory-tm", "B", clients::machine::<200>)
        .beside("five pages, each of 200 transfer machines", limit::agreed::<MACHINE_BYTES>)
        .goal(AtMost(1.0)),
    row("helper/memory-buffer", "B", clients::buffer::<10_000>)
        .beside("512 bytes, each of 10,000 buffers", limit::agreed::<BUFFER_BYTES>)
        .goal(AtMost(1.0)),
    row("helper/syscalls-event", "1", |round| syscalls::events(round, NetworkPath::Helpers))
        .beside("one for each event that is there", limit::agreed::<1>)
        .goal(AtMost(0.0)),
    row("helper/syscalls-submission", "1", |round| syscalls::submissions(round, NetworkPath::Helpers))
        .beside("one for each operation of a batch", limit::agreed::<1>)
        .goal(AtMost(1.0))
        .and("in-process", |round| syscalls::submissions(round, NetworkPath::InProcess), Open),
    row("helper/syscalls-wait", "1", |round| syscalls::waits(round, NetworkPath::Helpers))
        .beside("one for each answer, while no event is there", limit::agreed::<1>)
        .and("in-process", |round| syscalls::waits(round, NetworkPath::InProcess), Open),
    row("helper/syscalls-client", "1", syscalls::client)
        .beside("one for each message and its answer", limit::agreed::<1>)
        .goal(AtMost(1.0))
        .and("in-process", syscalls::in_process, Open),
    row("helper/syscalls-helper", "1", syscalls::helper).beside("in-process", syscalls::in_process),
];
