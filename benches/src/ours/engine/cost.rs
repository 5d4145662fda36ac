//! Bytes and allocations.

use std::sync::Arc;

use lnet_region::IoVec;

use super::exchange::{Exchange, counting};
use super::local::Letter;
use super::node::{self, Node};
use crate::error::Result;
use crate::heap::Watch;
use crate::keys;
use crate::measure::Round;
use crate::meter::Sample;

/// Steps until the tables have their final size, and steps that are counted.
const STEPS: u64 = 10_000;

/// Bytes of each of `PEERS` idle peers, after a PUT to each.
pub(crate) fn idle_peer<const PEERS: u32>(_: &Round) -> Result<Sample> {
    let node = Node::new(1)?;
    let eq = node.queue(counting(&Arc::default()))?;
    let md = node.bind(node::own_md(IoVec::whole(node::memory(64)?), eq))?;
    let watch = Watch::begin();
    for number in 0..PEERS {
        node.put(md, node::process(keys::address(number, PEERS as usize)), 1)?;
    }
    Ok(Sample::of(watch.bytes() as f64 / f64::from(PEERS)))
}

/// Bytes of each of `MDS` posted MDs with its match entry, without its memory.
pub(crate) fn posted_md<const MDS: u32>(_: &Round) -> Result<Sample> {
    let node = Node::new(1)?;
    let eq = node.queue(counting(&Arc::default()))?;
    let memory = IoVec::whole(node::memory(64)?);
    let watch = Watch::begin();
    for number in 0..MDS {
        let from = node::process(keys::address(number, 1));
        node.post(from, keys::bits(number), node::open_md(memory.clone(), eq, 0))?;
    }
    Ok(Sample::of(watch.bytes() as f64 / f64::from(MDS)))
}

/// Allocations per received or sent message, with posting and binding.
pub(crate) fn allocations(_: &Round) -> Result<Sample> {
    let node = Node::new(1)?;
    let mut exchange = Exchange::new(&node, 0)?;
    allocations_of(2, || exchange.step())
}

/// Allocations per message of a node to itself, with posting and binding.
pub(crate) fn local_allocations(_: &Round) -> Result<Sample> {
    let letter = Letter::new()?;
    allocations_of(1, || letter.send())
}

/// Returns the allocations per message of a step with `messages` messages, once the tables have
/// grown.
pub(crate) fn allocations_of(messages: u64, mut step: impl FnMut() -> Result<()>) -> Result<Sample> {
    (0..STEPS).try_for_each(|_| step())?;
    let watch = Watch::begin();
    (0..STEPS).try_for_each(|_| step())?;
    Ok(Sample::of(watch.allocations() as f64 / (STEPS * messages) as f64))
}
