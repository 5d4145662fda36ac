//! The engine's work for an arriving message, among large numbers of posted MDs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::EqHandle;
use lnet_nid::ProcessId;
use lnet_region::{Fragment, IoVec, Region};
use nlx_testkit::events::on_event;

use super::node::{self, Node};
use crate::error::{BenchError, Result};
use crate::keys;
use crate::measure::Round;
use crate::meter::{Sample, Stopwatch, Timed};

/// Messages between two readings of the clock.
const BATCH: u64 = 256;

/// Bytes of each buffer. Nothing is written to them: the PUTs have no payload.
const BUFFER: usize = 64;

/// A PUT arrives on a unique portal on which `COUNT` MDs are posted for messages from `SOURCES`
/// NIDs: nanoseconds.
pub(crate) fn unique<const COUNT: usize, const SOURCES: usize>(round: &Round) -> Result<Sample> {
    arrivals(round, COUNT, SOURCES, |from| from)
}

/// A PUT arrives as for [`unique`], but on a wildcard portal, where the entries accept messages
/// with certain bits from every sender.
pub(crate) fn wildcard_exact<const COUNT: usize, const SOURCES: usize>(round: &Round) -> Result<Sample> {
    arrivals(round, COUNT, SOURCES, |_| ProcessId::ANY)
}

/// Measures all work of the engine for a message, from its header to its event: the peer, the
/// partition's locks, the search, the lease on the memory, the counters, the event. The MDs stay
/// posted, so that posting is not measured. The event of each message determines the next message;
/// see [`keys::chain`].
fn arrivals(
    round: &Round,
    count: usize,
    sources: usize,
    match_id: fn(ProcessId) -> ProcessId,
) -> Result<Sample> {
    // The `user_ptr` of the last event.
    let (node, last) = (Node::new(1)?, Arc::new(AtomicU64::new(0)));
    let noted = last.clone();
    let eq = node.queue(on_event(move |event| noted.store(event.user_ptr, Ordering::Relaxed)))?;
    introduce_peers(&node, eq, sources)?;
    let from = |number: u32| node::process(keys::address(number, sources));
    let memory = node::memory(count * BUFFER)?;
    for (number, &next) in (0..).zip(&keys::chain(count)) {
        let md = node::open_md(buffer(&memory, number)?, eq, next.into());
        node.post(match_id(from(number)), keys::bits(number), md)?;
    }
    let mut number = 0;
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            node.arrive(from(number), keys::bits(number))?;
            number = last.load(Ordering::Relaxed) as u32;
        }
        Ok(BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// Posts `COUNT` MDs on a unique portal: the processor time of the longest single post, in
/// milliseconds.
pub(crate) fn worst_post<const COUNT: usize>(_: &Round) -> Result<Sample> {
    let node = Node::new(1)?;
    let eq = node.queue(on_event(|_| {}))?;
    let memory = IoVec::whole(node::memory(BUFFER)?);
    let mut stopwatch = Stopwatch::start()?;
    for number in 0..COUNT as u32 {
        let from = node::process(keys::address(number, 1));
        node.post(from, keys::bits(number), node::open_md(memory.clone(), eq, 0))?;
        stopwatch.lap()?;
    }
    Ok(Sample::of(stopwatch.longest_ms()))
}

/// Sends to each peer once, so that the node has a record of it.
fn introduce_peers(node: &Node, eq: EqHandle, sources: usize) -> Result<()> {
    let md = node.bind(node::own_md(IoVec::whole(node::memory(BUFFER)?), eq))?;
    (0..sources as u32).try_for_each(|number| {
        node.put(md, node::process(keys::address(number, sources)), keys::bits(number))
    })
}

/// Returns a buffer of a separate range of the memory.
fn buffer(memory: &Region, number: u32) -> Result<IoVec> {
    let fragment = Fragment::new(memory.clone(), number as usize * BUFFER, BUFFER);
    let fragment = fragment.map_err(BenchError::nlx("cut memory"))?;
    IoVec::new([fragment]).map_err(BenchError::nlx("make a buffer"))
}
