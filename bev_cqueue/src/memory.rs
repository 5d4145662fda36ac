//! The memory a queue lives in.
//!
//! The two halves know it only through [`Memory`], so that the same algorithm runs on the heap, in memory shared with
//! another process, and under a model checker.

use core::fmt::Debug;
use core::ops::Range;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::consumer::Consumer;
use crate::error::Error;
use crate::layout::{Header, Link, MAGIC, MAX_SLOTS, MIN_SLOTS, Slot, VERSION};
use crate::producer::Producer;
use crate::rules::GET;

mod heap;
#[cfg(all(feature = "std", not(loom)))]
mod mapping;
#[cfg(all(feature = "std", not(loom)))]
mod shared;

pub use heap::{Heap, heap};
#[cfg(all(feature = "std", not(loom)))]
pub use mapping::unmap_by;
#[cfg(all(feature = "std", not(loom)))]
pub use shared::SharedMemory;

/// Memory that holds one queue.
///
/// Each call returns the same places, and there are as many links as slots. An implementation that does otherwise gets
/// a queue that loses events, reports corruption or panics, but no undefined behaviour: the lengths of the slices bound
/// every index that the halves follow, and all words in them are atomic.
pub trait Memory: Debug {
    /// The header.
    fn header(&self) -> &Header;

    /// The successor of each slot.
    fn links(&self) -> &[Link];

    /// The slots, those outside of the ring included.
    fn slots(&self) -> &[Slot];

    /// Nobody needs what stands in these slots, which have left the ring: the memory may give their pages back to the
    /// system. Their bytes may change, to whatever values.
    fn discard(&self, slots: Range<u32>) {
        let _ = slots;
    }
}

/// Events that the consumer has taken and given back the slots of since the start, as it says: for whoever waits until one has
/// been taken ([`Producer::pushed`]). With [`Consumer::drain`] that is when the iterator is dropped, so what the consumer
/// did before is seen by who sees this.
pub fn taken(memory: &impl Memory) -> u64 {
    // SYNC bevq.get: with Consumer::publish.
    memory.header().consumer.consumed.load(GET.acquire())
}

/// Both halves of one queue.
pub type Halves<T, M> = (Producer<T, M>, Consumer<T, M>);

/// Refuses a number of slots that no queue can have.
pub(crate) fn check_slot_count(slots: u32) -> Result<usize, Error> {
    if (MIN_SLOTS..=MAX_SLOTS).contains(&slots) {
        Ok(slots as usize)
    } else {
        Err(Error::SlotCount { slots, min: MIN_SLOTS, max: MAX_SLOTS })
    }
}

/// Makes an empty ring of [`MIN_SLOTS`] in zeroed memory that nobody else knows yet: slot 0 is the first to be filled,
/// slot 1 is the divider (motr-transport 6.2, `init`).
pub(crate) fn format(memory: &impl Memory) {
    let (header, links) = (memory.header(), memory.links());
    links[0].0.store(1, Relaxed);
    links[1].0.store(0, Relaxed);
    header.consumer.nr.store(MIN_SLOTS, Relaxed);
    // No memory has more slots than fit into 32 bits: `check_slot_count`.
    header.identity.max_slots.store(memory.slots().len() as u32, Relaxed);
    header.identity.version.store(VERSION, Relaxed);
    header.identity.magic.store(MAGIC, Relaxed);
}

/// Makes sure that a queue gets at most one producer in its life.
pub(crate) fn take_producer(memory: &impl Memory) -> Result<(), Error> {
    match memory.header().identity.producer_taken.swap(1, AcqRel) {
        0 => Ok(()),
        _ => Err(Error::Taken { half: "producer" }),
    }
}

/// Makes sure that a queue gets at most one consumer in its life.
pub(crate) fn take_consumer(memory: &impl Memory) -> Result<(), Error> {
    match memory.header().identity.consumer_taken.swap(1, AcqRel) {
        0 => Ok(()),
        _ => Err(Error::Taken { half: "consumer" }),
    }
}
