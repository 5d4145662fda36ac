//! The submission ring. Its entries are copied out once, and only the copy is used.

use std::os::fd::OwnedFd;
use std::time::Duration;

use lnet_api::corked;
use nlx_bev_cqueue::{Consumer, Error, MIN_SLOTS, QueueWord, SharedMemory};
use nlx_core::{Limits, OperationKind};
use nlx_driver_proto::{Entry, Refusal, Submission};
use nlx_sync::{Bell, Waker};

use super::refusing::{no_descriptor, no_memory, no_queue};
use super::{Session, Violation};
use crate::seal::Seal;
use crate::shared_fds::SharedFd;
use crate::wakeups::gathered;
use crate::watched::WatchedQueue;

/// Bytes whose copying takes roughly as long as carrying out an entry.
pub const BULK_BYTES_PER_UNIT: u64 = 32 << 10;

/// Units of the longest buffer, beside the unit of its entry.
pub const BULK_UNITS_MAX: usize = (Limits::LNET.buffer_bytes_max as u64 / BULK_BYTES_PER_UNIT) as usize;

/// Time after which a client's turn ends, whatever is left of its share. No counted work takes that
/// long, but the system may make the helper wait for memory, as while a page of an arena is moved.
pub const SLICE: Duration = Duration::from_millis(1);

/// The helper's half of the ring. All slots are provisioned before the memory is shared, and never
/// released: a client that fills its ring waits.
pub(super) struct SubmissionRing {
    consumer: Consumer<Submission, SharedMemory>,
    /// The word that announces the helper's sleep; the doorbell is watched elsewhere.
    word: QueueWord<SharedMemory>,
    /// Wakes a client that waits until its submissions are carried out.
    settled: Waker<QueueWord<SharedMemory>>,
    watched: WatchedQueue,
    doorbell: SharedFd,
    seal: Seal,
    is_open: bool,
}

impl SubmissionRing {
    /// Creates a ring. The client gets its memory and its doorbell.
    pub(super) fn new(
        slots: u32,
        share: impl FnOnce(OwnedFd) -> Result<SharedFd, Refusal>,
        give: impl FnOnce(OwnedFd, SharedMemory) -> Result<Seal, Refusal>,
    ) -> Result<SubmissionRing, Refusal> {
        let refused = |error: Error| no_queue(&error);
        let (memory, fd) = SharedMemory::create(slots).map_err(refused)?;
        let mut consumer = Consumer::new(memory.clone()).map_err(refused)?;
        // Provisioned at once to its full size: the helper does not count what a client needs.
        consumer.grow(slots.saturating_sub(MIN_SLOTS)).map_err(refused)?;
        let doorbell = Bell::new().map_err(no_descriptor)?;
        let word = QueueWord::consumer(memory.clone());
        // The helper does not take entries before the ring is sealed.
        word.as_ref().announce();
        let settled = Waker::futex(QueueWord::producer(memory.clone()));
        let watched = WatchedQueue::new(memory.clone()).map_err(|error| no_memory(&error))?;
        let doorbell = share(doorbell.into())?;
        Ok(SubmissionRing {
            consumer,
            word,
            settled,
            watched,
            doorbell,
            seal: give(fd, memory)?,
            is_open: false,
        })
    }

    /// Returns whether the client has sealed the memory. Before that nothing of it is touched.
    pub(super) fn is_open(&mut self) -> bool {
        if !self.is_open && self.seal.is_set() {
            self.is_open = true;
            self.word.as_ref().withdraw();
        }
        self.is_open
    }

    pub(super) fn prepare_sleep(&mut self) -> bool {
        // The announcement is set from the start.
        if !self.is_open() {
            return true;
        }
        self.word.as_ref().announce();
        if self.consumer.is_empty() {
            return true;
        }
        self.word.as_ref().withdraw();
        false
    }

    pub(super) fn doorbell(&self) -> &SharedFd {
        &self.doorbell
    }

    pub(super) fn finish_sleep(&mut self) {
        if self.is_open() {
            self.word.as_ref().withdraw();
        }
    }

    pub(super) fn check(&self) -> Result<(), Violation> {
        self.watched.check("the submission ring")
    }
}

/// The result of a slice of a ring's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Entries carried out.
    pub entries: usize,
    /// Units of work used, at most [`BULK_UNITS_MAX`] more than requested.
    pub units: usize,
    /// Set if the ring was empty before the budget was used up.
    pub is_over: bool,
}

/// Returns the bytes that an entry moves, if its operation moves some at once: between clients of
/// one helper they are copied while the entry is carried out.
fn moved_bytes(entry: &Entry) -> Option<u64> {
    let Entry::Operate { operation, .. } = entry else { return None };
    match &operation.kind {
        OperationKind::Send { length, .. } | OperationKind::ActiveSend { length, .. } => Some(*length),
        // An invalid descriptor moves nothing.
        OperationKind::ActiveReceive { descriptor } => {
            Some(descriptor.for_active_receive(u64::MAX).map_or(0, |passive| passive.length))
        }
        _ => None,
    }
}

/// Returns the units of work for moved bytes. Anything longer than the longest buffer is refused.
fn bulk_units(bytes: u64) -> usize {
    usize::try_from(bytes / BULK_BYTES_PER_UNIT).map_or(BULK_UNITS_MAX, |units| units.min(BULK_UNITS_MAX))
}

impl Session {
    /// Carries out all entries that were in the ring at the call, and no more than it has slots.
    pub(super) fn drain_all(&mut self) -> Result<(), Violation> {
        let slots = self.ring.as_ref().map_or(0, |ring| ring.consumer.slots() as usize);
        self.drain_ring(slots).map(drop)
    }

    pub(super) fn drain_ring(&mut self, entries: usize) -> Result<usize, Violation> {
        self.drain_while(entries, |_| true)
    }

    /// Carries out entries until `budget` units of work are done, or [`SLICE`] has passed.
    pub(super) fn drain_units(&mut self, budget: usize) -> Result<Drained, Violation> {
        if self.ring.as_mut().is_none_or(|ring| !ring.is_open() || ring.consumer.is_empty()) {
            return Ok(Drained { entries: 0, units: 0, is_over: true });
        }
        let host = self.host.clone();
        let began_ns = host.drive().now_ns();
        let (mut units, mut is_over) = (0, true);
        let entries = self.drain_while(budget, |bulk| {
            units += bulk.map_or(1, |bytes| 1 + bulk_units(bytes));
            // An entry that moves no bytes touches no memory whose pages its client could remove.
            if bulk.is_some() && host.drive().now_ns().saturating_sub(began_ns) >= SLICE.as_nanos() as u64 {
                units = units.max(budget);
            }
            is_over = units < budget;
            is_over
        })?;
        Ok(Drained { entries, units, is_over })
    }

    /// Carries out entries while `goes_on` returns true. It is called after each entry, with
    /// the bytes moved if the entry is of a kind that moves some.
    fn drain_while(
        &mut self,
        most: usize,
        goes_on: impl FnMut(Option<u64>) -> bool,
    ) -> Result<usize, Violation> {
        // Carrying out entries does not use `self.ring`.
        let Some(mut ring) = self.ring.take() else { return Ok(0) };
        let drained = self.drain_from(&mut ring, most, goes_on);
        self.ring = Some(ring);
        drained
    }

    /// Carries out entries of the ring. Their slots are released together at the end: to a client a
    /// slot that is free again means that its entry is done.
    fn drain_from(
        &mut self,
        ring: &mut SubmissionRing,
        most: usize,
        mut goes_on: impl FnMut(Option<u64>) -> bool,
    ) -> Result<usize, Violation> {
        if !ring.is_open() || ring.consumer.is_empty() {
            return Ok(0);
        }
        let started_ns = self.host.drive().now_ns();
        // Messages are sent before their clients are woken for the events.
        let drained = gathered(|| {
            corked(|| {
                let mut drained = 0;
                for submission in ring.consumer.drain(most) {
                    let entry = submission.read().map_err(Violation::Entry)?;
                    let bulk = moved_bytes(&entry);
                    self.enter(entry, started_ns);
                    drained += 1;
                    if !goes_on(bulk) {
                        break;
                    }
                }
                Ok(drained)
            })
        })?;
        // Cannot fail: the futex lies in this process's mapping.
        let _ = ring.settled.wake();
        self.record.counters.submissions.add(drained as u64);
        ring.consumer.corruption().map_or(Ok(drained), |corruption| Err(Violation::Ring(corruption)))
    }

    /// Carries out an entry, which has no reply: a refused operation ends with an event, and other
    /// refusals are only counted, because the client has checked the same conditions before.
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
