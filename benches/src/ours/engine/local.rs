//! Messages of a node to itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::{EqHandle, MdHandle};
use lnet_nid::{Nid, ProcessId};
use lnet_region::IoVec;

use super::exchange::counting;
use super::node::{self, Node};
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{Sample, Timed};

/// Messages between two readings of the clock.
const BATCH: u64 = 256;

/// The match bits of the one buffer.
const BITS: u64 = 7;

/// 64-byte PUTs of a node to itself, between permanent descriptors: nanoseconds.
pub(crate) fn put_64(round: &Round) -> Result<Sample> {
    let pair = Pair::new(64)?;
    let timed = Timed::warm(round.time, || {
        for _ in 0..BATCH {
            pair.node.put(pair.own, here(), BITS)?;
        }
        Ok(BATCH)
    })?;
    pair.check()?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// 1 MiB GETs of a node from itself, between permanent descriptors: GB/s.
pub(crate) fn get_1m(round: &Round) -> Result<Sample> {
    const LENGTH: usize = 1 << 20;
    let pair = Pair::new(LENGTH)?;
    let timed = Timed::warm(round.time, || pair.node.get(pair.own, here(), BITS).map(|()| 1))?;
    pair.check()?;
    Ok(Sample::of(timed.steps as f64 * LENGTH as f64 / timed.seconds / 1e9))
}

/// 64-byte PUTs of a node to itself, each with a newly posted buffer, and one bound by the call
/// that sends it: nanoseconds.
pub(crate) fn letter(round: &Round) -> Result<Sample> {
    let letter = Letter::new()?;
    let timed = Timed::warm(round.time, || (0..BATCH).try_for_each(|_| letter.send()).map(|()| BATCH))?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// Binding a descriptor and unlinking it: nanoseconds.
pub(crate) fn bind(round: &Round) -> Result<Sample> {
    let node = Node::new(1)?;
    let eq = node.queue(counting(&Arc::default()))?;
    let memory = IoVec::whole(node::memory(64)?);
    let timed = Timed::warm(round.time, || {
        (0..BATCH).try_for_each(|_| node.bind_and_unlink(node::own_md(memory.clone(), eq))).map(|()| BATCH)
    })?;
    Ok(Sample::of(timed.nanoseconds_per_step()))
}

/// A PUT of a node to itself with all actions of its owner: posts a buffer and binds one, both for
/// this PUT alone.
pub(super) struct Letter {
    node: Node,
    memory: [IoVec; 2],
    eq: EqHandle,
}

impl Letter {
    pub(super) fn new() -> Result<Letter> {
        let node = Node::new(1)?;
        let eq = node.queue(counting(&Arc::default()))?;
        Ok(Letter { node, memory: [IoVec::whole(node::memory(64)?), IoVec::whole(node::memory(64)?)], eq })
    }

    pub(super) fn send(&self) -> Result<()> {
        let [from, to] = self.memory.clone();
        self.node.post(ProcessId::ANY, BITS, node::once(node::open_md(to, self.eq, 0)))?;
        self.node.bind_put(node::once(node::own_md(from, self.eq)), here(), BITS)
    }
}

/// A posted and a bound buffer.
struct Pair {
    node: Node,
    posted: IoVec,
    bound: IoVec,
    own: MdHandle,
    events: Arc<AtomicU64>,
}

impl Pair {
    /// Creates buffers of this length, with different content.
    fn new(length: usize) -> Result<Pair> {
        let (node, events) = (Node::new(1)?, Arc::new(AtomicU64::new(0)));
        let eq = node.queue(counting(&events))?;
        let [posted, bound] = [IoVec::whole(node::memory(length)?), IoVec::whole(node::memory(length)?)];
        posted.write(0..length).map_err(BenchError::nlx("fill memory"))?.fill(0xa5);
        node.post(ProcessId::ANY, BITS, node::open_md(posted.clone(), eq, 0))?;
        let own = node.bind(node::own_md(bound.clone(), eq))?;
        Ok(Pair { node, posted, bound, own, events })
    }

    /// Checks that messages have ended, and that both buffers hold the same bytes now.
    fn check(&self) -> Result<()> {
        if self.events.load(Ordering::Relaxed) == 0 {
            return Err(BenchError::Wrong { subject: "the number of events", value: 0, expected: 2 });
        }
        let [posted, bound] = [&self.posted, &self.bound].map(|memory| memory.read(0..memory.len()));
        let read = BenchError::nlx("read memory");
        let (posted, bound) = (posted.map_err(&read)?.to_vec(), bound.map_err(&read)?.to_vec());
        match posted.iter().zip(&bound).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(BenchError::Wrong {
                subject: "a byte that was moved",
                value: bound[at].into(),
                expected: posted[at].into(),
            }),
        }
    }
}

fn here() -> ProcessId {
    ProcessId::lnet(Nid::LOOPBACK)
}
