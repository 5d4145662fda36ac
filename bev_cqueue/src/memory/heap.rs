//! Memory of one process, for queues between two of its threads. With `std` it is an anonymous
//! mapping (`paged`), without `std` or under loom it is allocated (`boxed`).

#[cfg(all(feature = "std", not(loom)))]
use core::ops::Range;

#[cfg(any(not(feature = "std"), loom))]
mod boxed;
#[cfg(all(feature = "std", not(loom)))]
mod paged;

#[cfg(any(not(feature = "std"), loom))]
use self::boxed::Parts;
#[cfg(all(feature = "std", not(loom)))]
use self::paged::Parts;
use crate::consumer::Consumer;
use crate::error::Error;
use crate::layout::{Event, Header, Slot, SlotLink};
use crate::memory::{Halves, QueueMemory, check_slot_count, format};
use crate::producer::Producer;

/// Creates both halves of a queue between two threads of this process, whose ring can grow to
/// `max_slots` slots.
///
/// # Errors
///
/// As [`Heap::new`].
///
/// # Examples
///
/// ```
/// let (mut producer, mut consumer) = nlx_bev_cqueue::heap(8)?;
/// std::thread::spawn(move || producer.push(10)).join().unwrap()?;
/// assert_eq!(consumer.pop(), Ok(10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn heap<T: Event>(max_slots: u32) -> Result<Halves<T, Heap>, Error> {
    let memory = Heap::new(max_slots)?;
    Ok((Producer::new(memory.clone())?, Consumer::new(memory)?))
}

/// Process-private memory, for a queue between two threads.
///
/// A clone is another handle to the same memory.
#[derive(Clone, Debug)]
pub struct Heap(Parts);

impl Heap {
    /// Creates memory for a ring that can grow to `max_slots` slots.
    ///
    /// Forked children do not inherit the memory, and must not use either half.
    ///
    /// Slots that have not been linked in yet take only address space; the system provides their
    /// pages on first use, small ones whatever its setting for huge pages is, and gets them back
    /// when [shrinking](crate::Consumer::shrink) has removed them from the ring. (Without the
    /// feature `std`, all slots take memory from the start.)
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`] outside of
    /// [`MIN_SLOTS`](crate::MIN_SLOTS)..=[`MAX_SLOTS`](crate::MAX_SLOTS), and [`Error::NoMemory`]
    /// when the allocation fails.
    pub fn new(max_slots: u32) -> Result<Self, Error> {
        let heap = Heap(Parts::zeroed(check_slot_count(max_slots)?)?);
        format(&heap);
        Ok(heap)
    }

    /// Creates the memory in a mapping of the caller, which can place it, for instance on a NUMA
    /// node. The mapping is private and zeroed, and has at least [`Heap::bytes`] bytes.
    ///
    /// # Errors
    ///
    /// As [`Heap::new`]; [`Error::NoMemory`] also for a mapping that is too short.
    #[cfg(all(feature = "std", not(loom)))]
    pub fn mapped(max_slots: u32, map: memmap2::MmapMut) -> Result<Self, Error> {
        let heap = Heap(Parts::mapped(check_slot_count(max_slots)?, map)?);
        format(&heap);
        Ok(heap)
    }

    /// Returns the size in bytes of a mapping for a ring that can grow to `max_slots` slots.
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`], as [`Heap::new`].
    #[cfg(all(feature = "std", not(loom)))]
    pub fn bytes(max_slots: u32) -> Result<usize, Error> {
        check_slot_count(max_slots).map(Parts::bytes)
    }
}

impl QueueMemory for Heap {
    #[inline]
    fn header(&self) -> &Header {
        self.0.header()
    }

    #[inline]
    fn links(&self) -> &[SlotLink] {
        self.0.links()
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        self.0.slots()
    }

    #[cold]
    #[cfg(all(feature = "std", not(loom)))]
    fn discard(&self, slots: Range<u32>) {
        self.0.discard(slots);
    }
}
