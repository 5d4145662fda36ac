//! The submission ring: what it says is copied out once, and only the copy is looked at.

use std::os::fd::OwnedFd;

use lnet_api::corked;
use nlx_bev_cqueue::wake::{Sleeper, Waker, eventfd};
use nlx_bev_cqueue::{Consumer, Error, MIN_SLOTS, SharedMemory};
use nlx_driver_proto::{Entry, Refusal, Submission};

use super::refusing::{no_memory, no_queue};
use super::{Session, Violation};
use crate::driver::watched::WatchedQueue;

/// The helper's half of the ring. It is taken before the memory is shared, and never released: a client that fills its ring
/// waits.
pub(super) struct Ring {
    consumer: Consumer<Submission, SharedMemory>,
    sleeper: Sleeper<SharedMemory>,
    /// For a client that waits until what it has submitted is carried out.
    settled: Waker<SharedMemory>,
    watched: WatchedQueue,
    pub(super) doorbell: OwnedFd,
}

impl Ring {
    /// A ring, and what the client gets of it: its memory and the doorbell.
    pub(super) fn new(slots: u32) -> Result<(Ring, [OwnedFd; 2]), Refusal> {
        let refused = |error: Error| no_queue(&error);
        let (memory, fd) = SharedMemory::create(slots).map_err(refused)?;
        let mut consumer = Consumer::new(memory.clone()).map_err(refused)?;
        // Whole at once: nobody takes note of what a client needs.
        consumer.grow(slots.saturating_sub(MIN_SLOTS)).map_err(refused)?;
        let (theirs, doorbell) = eventfd().map_err(refused)?;
        // On the ring's word alone. The helper sleeps elsewhere, and does not look before: others want its processor.
        let sleeper = Sleeper::futex(memory.clone()).without_spin();
        let settled = Waker::of_consumer(memory.clone());
        let watched = WatchedQueue::new(memory).map_err(|error| no_memory(&error))?;
        Ok((Ring { consumer, sleeper, settled, watched, doorbell }, [fd, theirs]))
    }

    pub(super) fn prepare_sleep(&mut self) -> bool {
        self.sleeper.prepare_sleep();
        if self.consumer.is_empty() {
            return true;
        }
        // A futex has nothing to silence.
        let _ = self.sleeper.cancel_sleep();
        false
    }

    pub(super) fn finish_sleep(&mut self) {
        let _ = self.sleeper.finish_sleep();
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.watched.check("the submission ring")
    }
}

impl Session {
    /// All that stood in the ring when this was called, and no more than it has slots.
    pub(super) fn drain_all(&mut self) -> Result<(), Violation> {
        let slots = self.ring.as_ref().map_or(0, |ring| ring.consumer.slots() as usize);
        self.drain_ring(slots).map(drop)
    }

    pub(super) fn drain_ring(&mut self, budget: usize) -> Result<usize, Violation> {
        // Nothing of it touches the ring.
        let Some(mut ring) = self.ring.take() else { return Ok(0) };
        let drained = self.drain_from(&mut ring, budget);
        self.ring = Some(ring);
        drained
    }

    /// The slots are given back when all is carried out: a client that sees one free again knows that what stood there is
    /// done.
    fn drain_from(&mut self, ring: &mut Ring, budget: usize) -> Result<usize, Violation> {
        if ring.consumer.is_empty() {
            return Ok(0);
        }
        let started_ns = self.host.drive().now_ns();
        let drained = corked(|| {
            let mut drained = 0;
            for submission in ring.consumer.drain(budget) {
                self.enter(submission.read().map_err(Violation::Entry)?, started_ns);
                drained += 1;
            }
            Ok(drained)
        })?;
        // No error: the futex lies in our mapping.
        let _ = ring.settled.wake();
        self.record.tally.submissions.add(drained as u64);
        ring.consumer.corruption().map_or(Ok(drained), |corruption| Err(Violation::Ring(corruption)))
    }

    /// Carries an entry out. Nobody waits for what becomes of it: an operation that is refused ends with an event, and what
    /// else is refused is counted, for the client has made sure before that it would not be.
    fn enter(&mut self, entry: Entry, started_ns: u64) {
        match entry {
            Entry::Operate { tm, operation, counter } => self.operate(tm, &operation, counter, started_ns),
            Entry::Cancel { tm, buffer, cookie } => self.cancel(tm, buffer, cookie),
            Entry::Register { buffer, segment } => {
                let registered = self.register(buffer, &[segment]);
                self.count_refusal(&registered);
            }
            Entry::Deregister { buffer } => {
                let deregistered = self.deregister(buffer);
                self.count_refusal(&deregistered);
            }
        }
    }
}
