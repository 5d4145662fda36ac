//! Operations in flight of one transfer machine. The table is not `nlx_sync::Slots`: a finished
//! operation stays in its slot until the slot is reused, so that the event callback frees no
//! memory.

use lnet_api::MdHandle;
use nlx_core::{BufferHandle, CoreError, MatchCounter, Queue};
use nlx_fallible::TryArc;

use crate::buffers::RegisteredBuffer;
use crate::network::no_memory;
use crate::rules::OpOutcome;

/// Identifies an operation in flight: a slot's index in the low bits, and the slot's generation
/// above it. It is the `user_ptr` of the operation's MD. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlightKey(u64);

impl FlightKey {
    pub(crate) fn from_value(value: u64) -> FlightKey {
        FlightKey(value)
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }

    fn new(generation: u32, index: u32) -> FlightKey {
        FlightKey(u64::from(generation) << 32 | u64::from(index))
    }

    fn index(self) -> usize {
        self.0 as u32 as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// An operation in flight: everything that the event callback needs, so that it reads nothing else.
/// It is also the slot of the table, aligned to a pair of cache lines: with many operations,
/// finding one costs a single access to memory.
#[repr(align(128))]
pub(crate) struct OpRecord {
    pub(crate) key: FlightKey,
    /// Cleared when the operation is over. The other fields stay until the slot is reused: the
    /// event callback frees no memory.
    pub(crate) live: bool,
    pub(crate) queue: Queue,
    pub(crate) buffer: TryArc<RegisteredBuffer>,
    /// The buffer's handle, copied so that the event callback does not read the buffer, which would
    /// be another access to memory.
    pub(crate) handle: BufferHandle,
    pub(crate) cookie: u64,
    pub(crate) started_ns: u64,
    /// Event slots reserved.
    pub(crate) events: u32,
    /// Reserved event slots that no event has used yet: at least 1, for the last event.
    pub(crate) left: u32,
    /// The lower part of the match bits of a passive operation.
    pub(crate) counter: MatchCounter,
    /// The MD, once LNet has returned its handle. None if the operation has ended inside the call
    /// that started it.
    pub(crate) md: Option<MdHandle>,
    /// The outcome from an event that was not the last one.
    pub(crate) remembered: Option<OpOutcome>,
    /// Set by [`nlx_core::CoreTm::cancel`].
    pub(crate) cancelled: bool,
    /// Set if the MD is to be unlinked as soon as LNet may be called.
    pub(crate) unlink_due: bool,
    /// The transfer machine has been dropped: events of this operation are discarded.
    pub(crate) abandoned: bool,
}

/// The table of operations in flight. Slots are reused; the table grows to the largest number of
/// operations at one time, and shrinks only at teardown ([`Flight::free_unused`]).
#[derive(Default)]
pub(crate) struct Flight {
    slots: Vec<OpRecord>,
    free: Vec<u32>,
}

const _: () = assert!(size_of::<OpRecord>() == 128);

impl Flight {
    /// Enters the operation that `make` builds from its key.
    ///
    /// # Errors
    /// Those of `make`, and ENOMEM.
    pub(crate) fn enter(
        &mut self,
        make: impl FnOnce(FlightKey) -> Result<OpRecord, CoreError>,
    ) -> Result<FlightKey, CoreError> {
        if let Some(&index) = self.free.last() {
            let slot = &mut self.slots[index as usize];
            // Generation 0 is skipped, so that no key is 0.
            let key = FlightKey::new(slot.key.generation().checked_add(1).unwrap_or(1), index);
            *slot = make(key)?;
            self.free.pop();
            return Ok(key);
        }
        self.slots.try_reserve(1).map_err(no_memory)?;
        // One free-list entry for each slot, because `leave` must not allocate. No slot is free
        // now.
        self.free.try_reserve(self.slots.len() + 1).map_err(no_memory)?;
        let key = FlightKey::new(1, self.slots.len() as u32);
        self.slots.push(make(key)?);
        Ok(key)
    }

    /// Returns the operation with this key, if it is in flight.
    pub(crate) fn find(&mut self, key: FlightKey) -> Option<&mut OpRecord> {
        let slot = self.slots.get_mut(key.index())?;
        (slot.live && slot.key == key).then_some(slot)
    }

    /// Ends an operation and releases its buffer. Returns the number of events that it had
    /// reserved, or `None` if it was over already.
    pub(crate) fn leave(&mut self, key: FlightKey) -> Option<u32> {
        let op = self.find(key)?;
        op.buffer.dissociate();
        let events = op.events;
        self.slots[key.index()].live = false;
        self.free.push(key.index() as u32);
        Some(events)
    }

    /// Returns whether nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// Returns the slot that the next operation gets.
    pub(crate) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slots.len() as u32)
    }

    /// Returns the match counters of the passive operations in flight.
    pub(crate) fn counters(&self) -> impl Iterator<Item = MatchCounter> {
        let live = self.slots.iter().filter(|slot| slot.live && slot.queue.is_passive());
        live.map(|slot| slot.counter)
    }

    /// Searches up to `most` slots from `at` for an operation in flight, and returns the first
    /// one. Sets `at` to the slot after the last one that was searched.
    pub(crate) fn live_from(&mut self, at: &mut usize, most: usize) -> Option<&mut OpRecord> {
        let first = (*at).min(self.slots.len());
        let end = first.saturating_add(most).min(self.slots.len());
        let searched = &mut self.slots[first..end];
        let found = searched.iter().position(|slot| slot.live);
        *at = first + found.map_or(searched.len(), |found| found + 1);
        found.map(|found| &mut searched[found])
    }

    /// Returns the number of slots, in use or not.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Frees up to `most` unused slots from the end of the table and returns their number. Only
    /// valid once no operation is entered any more.
    pub(crate) fn free_unused(&mut self, most: usize) -> usize {
        // No operation takes a free slot again.
        self.free.clear();
        let unused = self.slots.iter().rev().take(most).take_while(|slot| !slot.live).count();
        self.slots.truncate(self.slots.len() - unused);
        unused
    }

    /// Returns all operations in flight.
    pub(crate) fn live(&mut self) -> impl Iterator<Item = &mut OpRecord> {
        self.slots.iter_mut().filter(|slot| slot.live)
    }
}
