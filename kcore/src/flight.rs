//! Operations in flight of one transfer machine: a table of its own, as an operation that is over stays in its slot until the next
//! tenant, so that the event callback frees no memory.

use lnet_api::MdHandle;
use nlx_core::{BufferHandle, CoreError, MatchCounter, Queue};
use nlx_fallible::TryArc;

use crate::buffers::Buffer;
use crate::network::no_memory;
use crate::rules::Outcome;

/// Names an operation in flight: a slot's index, and above it a number that tells the slot's tenants apart. It is the
/// `user_ptr` of the operation's MD. Never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpKey(u64);

impl OpKey {
    pub(crate) fn from_value(value: u64) -> OpKey {
        OpKey(value)
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }

    fn new(tenancy: u32, index: u32) -> OpKey {
        OpKey(u64::from(tenancy) << 32 | u64::from(index))
    }

    fn index(self) -> usize {
        self.0 as u32 as usize
    }

    fn tenancy(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// An operation in flight: everything the event callback needs, so that it looks at nothing else. It is also the slot of the
/// table, in a pair of cache lines of its own: among many operations, finding one is the way to memory, once.
#[repr(align(128))]
pub(crate) struct OpRecord {
    pub(crate) key: OpKey,
    /// Cleared when the operation is over. The rest stays until the next tenant: the event callback frees no memory.
    pub(crate) live: bool,
    pub(crate) queue: Queue,
    pub(crate) buffer: TryArc<Buffer>,
    /// The buffer's, so that the event callback need not look at the buffer for it: another way to memory.
    pub(crate) handle: BufferHandle,
    pub(crate) cookie: u64,
    pub(crate) started_ns: u64,
    /// Event slots reserved.
    pub(crate) events: u32,
    /// Those of them that no event has taken yet: 1 or more, for the last event.
    pub(crate) left: u32,
    /// Of a passive operation the lower part of its match bits.
    pub(crate) counter: MatchCounter,
    /// The MD, once LNet has given its handle. None if the operation has ended inside the call that started it.
    pub(crate) md: Option<MdHandle>,
    /// What an event that was not the last has already said about how the operation ends.
    pub(crate) remembered: Option<Outcome>,
    /// [`nlx_core::CoreTm::cancel`] was called.
    pub(crate) cancelled: bool,
    /// Its MD is to be unlinked as soon as LNet may be called.
    pub(crate) doomed: bool,
    /// The transfer machine has been dropped: its events are swallowed.
    pub(crate) abandoned: bool,
}

/// The operations in flight. Slots are used again; the table grows to the most operations there ever were at once.
#[derive(Default)]
pub(crate) struct Flight {
    slots: Vec<OpRecord>,
    free: Vec<u32>,
}

const _: () = assert!(size_of::<OpRecord>() == 128);

impl Flight {
    /// Enters the operation that `make` makes of its key.
    ///
    /// # Errors
    /// Those of `make`, and ENOMEM.
    pub(crate) fn enter(
        &mut self,
        make: impl FnOnce(OpKey) -> Result<OpRecord, CoreError>,
    ) -> Result<OpKey, CoreError> {
        if let Some(&index) = self.free.last() {
            let slot = &mut self.slots[index as usize];
            // 0 is left out, so that no key is 0.
            let key = OpKey::new(slot.key.tenancy().checked_add(1).unwrap_or(1), index);
            *slot = make(key)?;
            self.free.pop();
            return Ok(key);
        }
        self.slots.try_reserve(1).map_err(no_memory)?;
        // Room for every slot: `leave` must not allocate. None of them is free now.
        self.free.try_reserve(self.slots.len() + 1).map_err(no_memory)?;
        let key = OpKey::new(1, self.slots.len() as u32);
        self.slots.push(make(key)?);
        Ok(key)
    }

    /// The operation with this key, if it is in flight.
    pub(crate) fn find(&mut self, key: OpKey) -> Option<&mut OpRecord> {
        let slot = self.slots.get_mut(key.index())?;
        (slot.live && slot.key == key).then_some(slot)
    }

    /// Ends an operation: its buffer is free again. Gives the events that it had reserved, unless it was over already.
    pub(crate) fn leave(&mut self, key: OpKey) -> Option<u32> {
        let op = self.find(key)?;
        op.buffer.dissociate();
        let events = op.events;
        self.slots[key.index()].live = false;
        self.free.push(key.index() as u32);
        Some(events)
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// The slot that the next operation gets.
    pub(crate) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slots.len() as u32)
    }

    /// The match counters of the passive operations in flight.
    pub(crate) fn counters(&self) -> impl Iterator<Item = MatchCounter> {
        let live = self.slots.iter().filter(|slot| slot.live && slot.queue.is_passive());
        live.map(|slot| slot.counter)
    }

    /// Looks at up to `looks` slots from `at` on, as far as the first operation in flight, which it gives; `at` is then the
    /// slot after the last one that was looked at.
    pub(crate) fn live_from(&mut self, at: &mut usize, looks: usize) -> Option<&mut OpRecord> {
        let first = (*at).min(self.slots.len());
        let end = first.saturating_add(looks).min(self.slots.len());
        let looked_at = &mut self.slots[first..end];
        let found = looked_at.iter().position(|slot| slot.live);
        *at = first + found.map_or(looked_at.len(), |found| found + 1);
        found.map(|found| &mut looked_at[found])
    }

    /// Slots, in use or not.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Frees up to `most` slots that no operation has, from the last one on; gives how many. Once nothing is entered any more.
    pub(crate) fn shed(&mut self, most: usize) -> usize {
        // Nobody takes a free slot again.
        self.free.clear();
        let unused = self.slots.iter().rev().take(most).take_while(|slot| !slot.live).count();
        self.slots.truncate(self.slots.len() - unused);
        unused
    }

    /// Everything in flight.
    pub(crate) fn live(&mut self) -> impl Iterator<Item = &mut OpRecord> {
        self.slots.iter_mut().filter(|slot| slot.live)
    }
}
