//! A second, simple implementation of the queue's specification, for tests.
//!
//! One set of operations ([`OracleOp`]) drives every test of the queue. The property test and the
//! fuzzer compare the queue with the [`Oracle`], which computes the result of each operation. The
//! models and the tests with two processes give each side its operations and check the invariants
//! of any interleaving ([`Source`], [`Sequence`]). The [`Victim`] checks hostile memory.
//!
//! Everything here panics when the queue violates its specification.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::{Consumer, Error, MIN_SLOTS, PopError, Producer, PushError, QueueMemory};

#[cfg(not(loom))]
mod hostile;
mod sides;

#[cfg(not(loom))]
pub use hostile::{Guarded, Victim};
pub use sides::{Sequence, Source};

/// An event of the maximum size. Every word depends on the event's number, so that a torn or stale
/// event is detected.
pub type Sample = [u64; 15];

/// Returns the event with this number; the first pushed has number 1.
pub fn sample(number: u64) -> Sample {
    std::array::from_fn(|word| mix(number ^ (word as u64) << 56))
}

/// Scrambles the bits of a number (splitmix64), for events and for reproducible random choices.
pub fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// An operation on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OracleOp {
    /// Push an event.
    Push,
    /// Push this number of events in one call.
    PushIter(usize),
    /// Pop an event.
    Pop,
    /// Pop up to this number of events in one call.
    Drain(usize),
    /// Like `Drain`, but the iterator is forgotten instead of dropped.
    Forget(usize),
    /// Link this number of slots into the ring.
    Grow(u32),
    /// Reduce the ring to this number of slots.
    Shrink(u32),
    /// Reduce the ring to this number of slots with both halves ([`Consumer::shrink_with`]).
    ShrinkWith(u32),
    /// Make the producer accept that the ring has become smaller.
    AcceptShrink,
    /// Provision room for this number of events.
    Provision(u32),
    /// Release room for this number of events.
    Release(u32),
}

impl OracleOp {
    /// Returns the operation that a byte encodes: pushes and pops are the most frequent, and
    /// numbers are at most 15.
    pub fn of_byte(byte: u8) -> OracleOp {
        let number = u32::from(byte / 16);
        match byte % 16 {
            0..4 => OracleOp::Push,
            4 | 5 => OracleOp::PushIter(number as usize),
            6..9 => OracleOp::Pop,
            9 => OracleOp::Drain(number as usize),
            10 => OracleOp::Forget(number as usize % 4),
            11 => OracleOp::Grow(number % 4),
            12 if number.is_multiple_of(2) => OracleOp::Shrink(number),
            12 => OracleOp::ShrinkWith(number),
            13 => OracleOp::AcceptShrink,
            14 => OracleOp::Provision(number % 6),
            _ => OracleOp::Release(number % 6),
        }
    }
}

/// A model of the queue without concurrency, links or shared memory; it computes the result of each
/// operation.
#[derive(Debug)]
pub struct Oracle {
    waiting: VecDeque<Sample>,
    /// The number of taken events whose slots have not been reported to the producer as free: those
    /// of a forgotten drain.
    held_back: u32,
    pushed: u64,
    slots: u32,
    needed: u32,
    max_slots: u32,
}

impl Oracle {
    /// Creates the oracle of a new queue.
    pub fn new(max_slots: u32) -> Self {
        Oracle { waiting: VecDeque::new(), held_back: 0, pushed: 0, slots: MIN_SLOTS, needed: 0, max_slots }
    }

    /// Applies `op` to the queue and to the oracle, and compares the results.
    pub fn step<M: QueueMemory>(
        &mut self,
        op: OracleOp,
        producer: &mut Producer<Sample, M>,
        consumer: &mut Consumer<Sample, M>,
    ) {
        match op {
            OracleOp::Push => assert_eq!(producer.push(sample(self.pushed + 1)), self.push()),
            OracleOp::PushIter(count) => {
                let mut numbers = self.pushed + 1..self.pushed + 1 + count as u64;
                assert_eq!(producer.push_iter(numbers.by_ref().map(sample)), self.push_iter(count));
                assert_eq!(numbers.start, self.pushed + 1, "no event was lost with the iterator");
            }
            OracleOp::Pop => assert_eq!(consumer.pop(), self.pop()),
            OracleOp::Drain(max) => assert_eq!(consumer.drain(max).collect::<Vec<_>>(), self.drain(max)),
            OracleOp::Forget(max) => {
                let mut drain = consumer.drain(max);
                let taken: Vec<_> = drain.by_ref().collect();
                std::mem::forget(drain);
                // The cast does not truncate, because fewer events wait than the ring has slots.
                self.held_back += taken.len() as u32;
                let held_back = self.held_back;
                assert_eq!(taken, self.drain(max));
                self.held_back = held_back;
            }
            OracleOp::AcceptShrink => assert_eq!(producer.accept_shrink(), Ok(())),
            OracleOp::ShrinkWith(slots) => {
                assert_eq!(
                    consumer.shrink_with(slots, || &mut *producer),
                    self.shrink(slots, slots <= self.needed)
                )
            }
            OracleOp::Shrink(slots) => {
                assert_eq!(consumer.shrink(slots), self.shrink(slots, self.needed > 0));
                // The producer must accept the smaller ring before its next push.
                assert_eq!(producer.accept_shrink(), Ok(()));
            }
            OracleOp::Grow(more) => assert_eq!(consumer.grow(more), self.grow(more)),
            OracleOp::Provision(events) => assert_eq!(consumer.provision(events), self.provision(events)),
            OracleOp::Release(events) => assert_eq!(consumer.release(events), self.release(events)),
        }
        self.compare(producer, consumer);
    }

    fn compare<M: QueueMemory>(&self, producer: &mut Producer<Sample, M>, consumer: &Consumer<Sample, M>) {
        assert_eq!(consumer.is_empty(), self.waiting.is_empty());
        assert_eq!(consumer.ready() as usize, self.waiting.len());
        assert_eq!(consumer.slots(), self.slots);
        assert_eq!(consumer.capacity(), self.slots - 1);
        assert_eq!(consumer.needed(), self.needed);
        assert_eq!(producer.free(), Ok(self.free()));
    }

    fn free(&self) -> u32 {
        self.slots - 1 - self.waiting.len() as u32 - self.held_back
    }

    fn push(&mut self) -> Result<(), PushError> {
        if self.free() == 0 {
            return Err(PushError::Full { slots: self.slots, capacity: self.slots - 1 });
        }
        self.pushed += 1;
        self.waiting.push_back(sample(self.pushed));
        Ok(())
    }

    fn push_iter(&mut self, count: usize) -> Result<usize, PushError> {
        let pushed = (0..count).map_while(|_| self.push().ok()).count();
        if pushed == 0 && self.free() == 0 { self.push().map(|()| 0) } else { Ok(pushed) }
    }

    fn pop(&mut self) -> Result<Sample, PopError> {
        let event = self.waiting.pop_front().ok_or(PopError::Empty)?;
        self.held_back = 0;
        Ok(event)
    }

    fn drain(&mut self, max: usize) -> Vec<Sample> {
        self.held_back = 0;
        self.waiting.drain(..max.min(self.waiting.len())).collect()
    }

    fn grow(&mut self, more: u32) -> Result<(), Error> {
        if self.slots + more > self.max_slots {
            return Err(Error::NoRoom { slots: self.slots, more, max: self.max_slots });
        }
        self.slots += more;
        Ok(())
    }

    fn shrink(&mut self, slots: u32, in_use: bool) -> Result<(), Error> {
        if slots < MIN_SLOTS {
            return Err(Error::SlotCount { slots, min: MIN_SLOTS, max: self.max_slots });
        }
        // The cast does not truncate, because fewer events wait than the ring has slots.
        let waiting = self.waiting.len() as u32;
        if in_use || waiting > 0 {
            return Err(Error::InUse { needed: self.needed, waiting });
        }
        self.held_back = 0;
        self.slots = self.slots.min(slots);
        Ok(())
    }

    fn provision(&mut self, events: u32) -> Result<(), Error> {
        self.held_back = 0;
        self.grow((self.needed + events + 1).saturating_sub(self.slots))?;
        self.needed += events;
        Ok(())
    }

    fn release(&mut self, events: u32) -> Result<(), Error> {
        if events > self.needed {
            return Err(Error::NotProvisioned { released: events, needed: self.needed });
        }
        self.needed -= events;
        Ok(())
    }
}
