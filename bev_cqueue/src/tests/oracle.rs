//! What a queue must do, said a second time and plainly.

use std::collections::VecDeque;

use crate::{Consumer, Error, Memory, PopError, Producer, PushError};

/// An event as large as a slot allows, every word of which tells its number: a torn or stale one is noticed.
pub(super) type Sample = [u64; 15];

/// The event with this number; the first pushed has number 1.
pub(super) fn sample(number: u64) -> Sample {
    std::array::from_fn(|word| mix(number ^ (word as u64) << 56))
}

/// Scatters the bits of a number (splitmix64), for events and for reproducible disorder.
pub(super) fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Everything that can be done with a queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    Push,
    /// Pushes so many events in one go.
    PushIter(usize),
    Pop,
    /// Takes up to so many events in one go.
    Drain(usize),
    /// The same, but the iterator is forgotten instead of dropped.
    Forget(usize),
    Grow(u32),
    Provision(u32),
    Release(u32),
}

/// A queue without concurrency, links or shared memory; knows the result of each operation.
#[derive(Debug)]
pub(super) struct Oracle {
    waiting: VecDeque<Sample>,
    /// Events taken whose slots the producer does not know to be free: a forgotten drain.
    held_back: u32,
    pushed: u64,
    slots: u32,
    needed: u32,
    max_slots: u32,
}

impl Oracle {
    /// A fresh queue.
    pub(super) fn new(max_slots: u32) -> Self {
        Oracle {
            waiting: VecDeque::new(),
            held_back: 0,
            pushed: 0,
            slots: crate::MIN_SLOTS,
            needed: 0,
            max_slots,
        }
    }

    /// Does `op` to the queue and to the oracle, and compares.
    pub(super) fn step<M: Memory>(
        &mut self,
        op: Op,
        producer: &mut Producer<Sample, M>,
        consumer: &mut Consumer<Sample, M>,
    ) {
        match op {
            Op::Push => assert_eq!(producer.push(sample(self.pushed + 1)), self.push()),
            Op::PushIter(count) => {
                let mut numbers = self.pushed + 1..self.pushed + 1 + count as u64;
                assert_eq!(producer.push_iter(numbers.by_ref().map(sample)), self.push_iter(count));
                assert_eq!(numbers.start, self.pushed + 1, "no event was lost with the iterator");
            }
            Op::Pop => assert_eq!(consumer.pop(), self.pop()),
            Op::Drain(max) => assert_eq!(consumer.drain(max).collect::<Vec<_>>(), self.drain(max)),
            Op::Forget(max) => {
                let mut drain = consumer.drain(max);
                let taken: Vec<_> = drain.by_ref().collect();
                std::mem::forget(drain);
                // The oracle's count of them is at most `max`, a handful.
                self.held_back += taken.len() as u32;
                let held_back = self.held_back;
                assert_eq!(taken, self.drain(max));
                self.held_back = held_back;
            }
            Op::Grow(more) => assert_eq!(consumer.grow(more), self.grow(more)),
            Op::Provision(events) => assert_eq!(consumer.provision(events), self.provision(events)),
            Op::Release(events) => assert_eq!(consumer.release(events), self.release(events)),
        }
        self.compare(producer, consumer);
    }

    fn compare<M: Memory>(&self, producer: &mut Producer<Sample, M>, consumer: &Consumer<Sample, M>) {
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

/// What a consumer must see while a producer runs beside it: whole events, each once, in order.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// Events seen so far.
    pub(super) seen: u64,
}

impl Sequence {
    /// Does the consumer's `op` and checks the events it takes.
    pub(super) fn step<M: Memory>(&mut self, op: Op, consumer: &mut Consumer<Sample, M>) {
        match op {
            Op::Push | Op::PushIter(_) => unreachable!("the producer's"),
            Op::Pop => match consumer.pop() {
                Ok(event) => self.see(event),
                Err(error) => assert_eq!(error, PopError::Empty),
            },
            Op::Drain(max) => consumer.drain(max).for_each(|event| self.see(event)),
            Op::Forget(max) => {
                let mut drain = consumer.drain(max);
                drain.by_ref().for_each(|event| self.see(event));
                std::mem::forget(drain);
            }
            Op::Grow(more) => consumer.grow(more).expect("the test stays within the memory"),
            Op::Provision(events) => consumer.provision(events).expect("the test stays within the memory"),
            Op::Release(events) => consumer.release(events).expect("the test has provisioned them"),
        }
    }

    fn see(&mut self, event: Sample) {
        self.seen += 1;
        assert_eq!(event, sample(self.seen), "event {}", self.seen);
    }
}
