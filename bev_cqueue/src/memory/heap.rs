#[cfg(not(loom))]
use alloc::sync::Arc;
#[cfg(loom)]
use loom::sync::Arc;

use alloc::boxed::Box;
#[cfg(all(feature = "std", not(loom)))]
use core::{ops::Range, ptr::NonNull};

#[cfg(all(feature = "std", not(loom)))]
use nix::sys::mman::{MmapAdvise, madvise};

use crate::consumer::Consumer;
use crate::error::Error;
use crate::layout::{Event, Header, Link, Slot};
#[cfg(all(feature = "std", not(loom)))]
use crate::memory::whole_pages;
use crate::memory::{Halves, Memory, check_slot_count, format};
use crate::producer::Producer;

/// Both halves of a queue between two threads of this process, whose ring can grow to `max_slots` slots.
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

/// Ordinary memory of this process, for a queue between two of its threads.
///
/// A clone is another handle to the same memory.
#[derive(Clone, Debug)]
pub struct Heap(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    header: Header,
    links: Box<[Link]>,
    slots: Box<[Slot]>,
}

impl Heap {
    /// Memory for a ring that can grow to `max_slots` slots.
    ///
    /// Slots that have not been linked in yet are address space only; the system gives them pages when they are used, and
    /// takes them back when [shrinking](crate::Consumer::shrink) has put them out of the ring.
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`] outside of [`MIN_SLOTS`](crate::MIN_SLOTS)..=[`MAX_SLOTS`](crate::MAX_SLOTS), and
    /// [`Error::NoMemory`] when there is not so much memory.
    pub fn new(max_slots: u32) -> Result<Self, Error> {
        let heap = Heap(Arc::new(Parts::zeroed(check_slot_count(max_slots)?)?));
        format(&heap);
        Ok(heap)
    }
}

impl Memory for Heap {
    #[inline]
    fn header(&self) -> &Header {
        &self.0.header
    }

    #[inline]
    fn links(&self) -> &[Link] {
        &self.0.links
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        &self.0.slots
    }

    #[cold]
    #[cfg(all(feature = "std", not(loom)))]
    fn discard(&self, slots: Range<u32>) {
        let Some(slots) = self.0.slots.get(slots.start as usize..slots.end as usize) else { return };
        let bytes = slots.as_ptr_range();
        let start = bytes.start.addr();
        let Some(pages) = whole_pages(start..bytes.end.addr()) else { return };
        let Some(first) = NonNull::new(bytes.start.cast_mut()) else { return };
        // SAFETY: these pages hold slots and nothing else: they lie within `slots`. They read as zeros afterwards (memory that
        // is not anonymous may read as something else); a slot consists of atomics, for which every value is valid,
        // whoever reads them meanwhile.
        // A system that cannot do so keeps them.
        let _ = unsafe {
            let first = first.cast::<core::ffi::c_void>().byte_add(pages.start - start);
            madvise(first, pages.len(), MmapAdvise::MADV_DONTNEED)
        };
    }
}

impl Parts {
    #[cfg(not(loom))]
    fn zeroed(slots: usize) -> Result<Self, Error> {
        use zerocopy::FromZeros;

        let no_memory = |_| Error::NoMemory { slots };
        Ok(Parts {
            header: Header::new_zeroed(),
            links: <[Link]>::new_box_zeroed_with_elems(slots).map_err(no_memory)?,
            slots: <[Slot]>::new_box_zeroed_with_elems(slots).map_err(no_memory)?,
        })
    }

    #[cfg(loom)]
    fn zeroed(slots: usize) -> Result<Self, Error> {
        Ok(Parts {
            header: Header::zeroed(),
            links: (0..slots).map(|_| Link::zeroed()).collect(),
            slots: (0..slots).map(|_| Slot::zeroed()).collect(),
        })
    }
}
