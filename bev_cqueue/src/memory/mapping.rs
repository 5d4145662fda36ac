use core::mem::{ManuallyDrop, size_of};
use core::ops::Range;
use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::OnceLock;

use memmap2::{Advice, MmapRaw, UncheckedAdvice};
use nlx_fallible::{NoMemory, TryArc, try_box};

use crate::layout::{Header, Link, Slot};

/// What is given back to the system begins and ends at multiples of this: the largest page of any machine that Linux runs
/// on, and enough of them to be worth a system call.
const DISCARD_BYTES: usize = 64 << 10;

/// A queue's memory as the system maps it: pages that are there once they are used. A clone is another handle to the same
/// mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// The parts of the mapping. Kept here, because asking `map` for its address at each access halves the throughput;
    /// and reckoned once by this process, never again from what stands in the memory.
    header: NonNull<Header>,
    links: NonNull<[Link]>,
    slots: NonNull<[Slot]>,
    /// Keeps the parts mapped.
    map: TryArc<Map>,
}

/// What unmaps queues, if not the thread that drops the last handle.
static UNMAPPER: OnceLock<fn(Box<dyn Send>)> = OnceLock::new();

/// From now on the mapping of a queue goes to this function when its last handle is dropped; dropping the argument
/// unmaps it, which takes a millisecond for a queue of some MiB. For a process whose threads have no time for that. The first
/// call counts, in the whole process.
pub fn unmap_by(unmapper: fn(Box<dyn Send>)) {
    let _ = UNMAPPER.set(unmapper);
}

/// A mapping that forked children do not get: they would have a queue of which the other half is somewhere else.
#[derive(Debug)]
struct Map {
    /// On the heap from the start, so that dropping the last handle allocates nothing.
    map: ManuallyDrop<Box<MmapRaw>>,
    /// Whose it is.
    process: u32,
}

impl Map {
    fn new(map: MmapRaw) -> Result<Self, NoMemory> {
        // A system that cannot do so lets children have pages that nobody uses there.
        let _ = map.advise(Advice::DontFork);
        Ok(Map { map: ManuallyDrop::new(try_box(map)?), process: std::process::id() })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // In a child something else may have been mapped where the queue was.
        if std::process::id() == self.process {
            // SAFETY: it is taken out here only.
            let map = unsafe { ManuallyDrop::take(&mut self.map) };
            match UNMAPPER.get() {
                Some(unmap) => unmap(map),
                None => drop(map),
            }
        }
    }
}

// SAFETY: the parts are memory that is mapped as long as any handle lives, at the same addresses for all threads, and they
// consist of atomics, which any thread may access at any time; unmapping is up to the last handle, in whatever thread.
unsafe impl Send for Mapping {}

// SAFETY: as above; a shared handle gives out nothing but shared references to atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The parts of a queue of so many slots in a mapping that is as long as they are ([`Places`]), readable and writable.
    /// If there is a file beneath it, that cannot become shorter.
    pub(super) fn of(map: MmapRaw, slots: usize) -> Result<Self, NoMemory> {
        let places = Places::of(slots);
        assert!(map.len() >= places.end, "a mapping of {} bytes for {slots} slots", map.len());
        let start = NonNull::new(map.as_mut_ptr()).expect("a mapping is never at address zero");
        // SAFETY: both offsets lie within the mapping, whose length has just been looked at.
        let (links_at, slots_at) =
            unsafe { (start.add(places.links).cast(), start.add(places.slots).cast()) };
        Ok(Mapping {
            header: start.cast(),
            links: NonNull::slice_from_raw_parts(links_at, slots),
            slots: NonNull::slice_from_raw_parts(slots_at, slots),
            map: TryArc::try_new(Map::new(map)?)?,
        })
    }

    #[inline]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: `of` reckoned the address and the length within a mapping that begins on a page boundary, at a multiple
        // of the alignment (`Places::of`). The mapping lives as long as `self.map`, and a file beneath it keeps its size.
        // All of it are atomics, for which every bit pattern is valid, so that other writers, in whatever process, are
        // harmless.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    pub(super) fn links(&self) -> &[Link] {
        // SAFETY: as for the header.
        unsafe { self.links.as_ref() }
    }

    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        // SAFETY: as for the header.
        unsafe { self.slots.as_ref() }
    }

    /// Where the parts lie, all together, and how many bytes they are.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        (self.header.as_ptr().cast_const().cast(), Places::of(self.slots.len()).end)
    }

    /// Gives the pages that hold these slots and nothing else back to the system, by this advice: one after which they read
    /// as zeros.
    pub(super) fn discard(&self, slots: Range<u32>, advice: UncheckedAdvice) {
        let start = Places::of(self.slots.len()).slots;
        let at = |index: u32| start + self.slots.len().min(index as usize) * size_of::<Slot>();
        // The mapping begins at a page.
        if let Some(pages) = whole_pages(at(slots.start)..at(slots.end)) {
            // SAFETY: these pages hold slots and nothing else. They read as zeros afterwards, and are given anew when they
            // are written; a slot consists of atomics, for which every value is valid, whoever reads them meanwhile.
            let discarded = unsafe { self.map.map.unchecked_advise_range(advice, pages.start, pages.len()) };
            // A system that cannot do so keeps them.
            drop(discarded);
        }
    }
}

/// The part of these bytes that can be given back to the system, if there is one.
fn whole_pages(bytes: Range<usize>) -> Option<Range<usize>> {
    let pages = bytes.start.next_multiple_of(DISCARD_BYTES)..bytes.end / DISCARD_BYTES * DISCARD_BYTES;
    (!pages.is_empty()).then_some(pages)
}

/// Where the parts of a queue lie: byte offsets from the start of the mapping.
pub(super) struct Places {
    links: usize,
    slots: usize,
    pub(super) end: usize,
}

impl Places {
    /// No overflow: `check_slot_count` has limited `slots`.
    pub(super) const fn of(slots: usize) -> Self {
        let links = size_of::<Header>();
        let slots_at = (links + slots * size_of::<Link>()).next_multiple_of(align_of::<Slot>());
        Places { links, slots: slots_at, end: slots_at + slots * size_of::<Slot>() }
    }
}

/// MT-220: where both processes find the parts.
mod assertions {
    use static_assertions::{const_assert, const_assert_eq};

    use super::*;
    use crate::{MAX_SLOTS, MIN_SLOTS};

    const_assert_eq!(Places::of(MIN_SLOTS as usize).links, 640);
    const_assert_eq!(Places::of(MIN_SLOTS as usize).slots, 768);
    const_assert_eq!(Places::of(MIN_SLOTS as usize).end, 1024);

    const_assert_eq!(Places::of(MAX_SLOTS as usize).slots, 640 + 4 * MAX_SLOTS as usize);
    const_assert_eq!(
        Places::of(MAX_SLOTS as usize).end,
        Places::of(MAX_SLOTS as usize).slots + 128 * MAX_SLOTS as usize
    );
    const_assert!(Places::of(MAX_SLOTS as usize).end < 133 << 20);
}
