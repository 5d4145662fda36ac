//! The invariants that hold when the consumer's process writes arbitrary values into the shared
//! memory.

use core::sync::atomic::Ordering::Relaxed;

use super::{OracleOp, Sample, mix, sample};
use crate::layout::{Header, Slot, SlotLink};
use crate::{Corruption, Error, Heap, Producer, PushError, QueueMemory};

/// The number of guard slots on either side of a queue, which must never be touched.
const GUARD: usize = 16;

/// A queue with guard slots around it.
#[derive(Clone, Debug)]
pub struct Guarded(Heap);

impl Guarded {
    /// Creates a queue whose ring can grow to `max_slots` slots.
    ///
    /// # Errors
    ///
    /// As [`Heap::new`].
    pub fn new(max_slots: usize) -> Result<Self, Error> {
        let guarded = Guarded(Heap::new((max_slots + 2 * GUARD) as u32)?);
        for (index, slot) in guarded.guards() {
            slot.payload.write(&sample(index));
            slot.stamp.store(mix(index), Relaxed);
        }
        for (at, to) in [(0, 1), (1, 0)] {
            guarded.links()[at].0.store(to, Relaxed);
        }
        Ok(guarded)
    }

    fn guards(&self) -> impl Iterator<Item = (u64, &Slot)> {
        let all = self.0.slots();
        (0..).zip(all[..GUARD].iter().chain(&all[all.len() - GUARD..]))
    }

    /// Panics if a guard slot was written.
    pub fn check(&self) {
        for (index, slot) in self.guards() {
            assert_eq!((slot.payload.read(), slot.stamp.load(Relaxed)), (sample(index), mix(index)));
        }
    }

    /// Overwrites a word that the peer can reach with `value`: mostly a counter, which has the
    /// greatest effect.
    pub fn scribble(&self, place: usize, value: u64) {
        let line = &self.header().consumer;
        match place % 6 {
            0 => line.consumed.store(value, Relaxed),
            1 => line.nr.store(value as u32, Relaxed),
            2 => self.header().wake.sleeping.scribble(value as u32),
            3 => self.slots()[place % self.slots().len()].stamp.store(value, Relaxed),
            _ => self.links()[place % self.links().len()].0.store(value as u32, Relaxed),
        }
    }
}

impl QueueMemory for Guarded {
    fn header(&self) -> &Header {
        self.0.header()
    }

    fn links(&self) -> &[SlotLink] {
        let all = self.0.links();
        &all[GUARD..all.len() - GUARD]
    }

    fn slots(&self) -> &[Slot] {
        let all = self.0.slots();
        &all[GUARD..all.len() - GUARD]
    }
}

/// A producer whose consumer is hostile: checks that each call ends, and that a corruption is
/// permanent.
#[derive(Debug)]
pub struct Victim {
    producer: Producer<Sample, Guarded>,
    verdict: Option<Corruption>,
}

impl Victim {
    /// Creates the producer of the queue in `memory`.
    ///
    /// # Errors
    ///
    /// [`Error::Taken`] if the queue has a producer already.
    pub fn new(memory: Guarded) -> Result<Self, Error> {
        Ok(Victim { producer: Producer::new(memory)?, verdict: None })
    }

    /// Applies the producer's `op` and checks the result.
    pub fn step(&mut self, op: OracleOp) {
        let found = match op {
            OracleOp::Push => corruption(self.producer.push(sample(1))),
            OracleOp::PushIter(count) => corruption(self.producer.push_iter((0..count as u64).map(sample))),
            OracleOp::AcceptShrink => self.producer.accept_shrink().err(),
            _ => unreachable!("the consumer's"),
        };
        match self.verdict {
            None => self.verdict = found,
            verdict => assert_eq!(found, verdict, "{op:?}"),
        }
        if let Some(corruption) = self.verdict {
            assert_eq!(self.producer.free(), Err(corruption));
        }
    }

    /// Returns the corruption that the producer has found, if any.
    pub fn verdict(&self) -> Option<Corruption> {
        self.verdict
    }
}

fn corruption<T>(result: Result<T, PushError>) -> Option<Corruption> {
    match result {
        Err(PushError::Corrupt(corruption)) => Some(corruption),
        Err(PushError::Full { .. }) | Ok(_) => None,
    }
}
