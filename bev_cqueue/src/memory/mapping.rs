use core::mem::{ManuallyDrop, size_of};
use core::ops::Range;
use core::ptr::NonNull;
use std::boxed::Box;
use std::sync::OnceLock;

use memmap2::{Advice, MmapRaw, UncheckedAdvice};
use nlx_fallible::{NoMemory, TryArc, try_box};

use crate::layout::{Header, Slot, SlotLink};

/// Ranges returned to the system begin and end at multiples of this: the largest page of any
/// machine that Linux runs on, and large enough to justify a system call.
const DISCARD_BYTES: usize = 64 << 10;

/// A queue's memory as a mapping: the system provides pages on first use. A clone is another handle
/// to the same mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// Pointers to the parts of the mapping. Kept here, because calling `map` for its address at
    /// each access halves the throughput. This process computes them once; they never depend on the
    /// contents of the memory.
    header: NonNull<Header>,
    links: NonNull<[SlotLink]>,
    slots: NonNull<[Slot]>,
    /// The mapping, kept so that the parts stay mapped.
    map: TryArc<Map>,
}

/// The function that unmaps queues; if it is not set, the thread that drops the last handle unmaps
/// the queue.
static UNMAPPER: OnceLock<fn(Box<dyn Send>)> = OnceLock::new();

/// Makes this process pass the mapping of a queue to `unmapper` when its last handle is dropped;
/// dropping the argument unmaps the queue, which takes a millisecond for some MiB. For processes
/// with threads that must not be delayed. Only the first call in the process has an effect.
pub fn unmap_by(unmapper: fn(Box<dyn Send>)) {
    let _ = UNMAPPER.set(unmapper);
}

/// A mapping that forked children do not inherit, as the other half of their queue would be in
/// another process.
#[derive(Debug)]
struct Map {
    /// The mapping, in a box from the start, so that dropping the last handle allocates nothing.
    map: ManuallyDrop<Box<MmapRaw>>,
    /// The process that made the mapping.
    process: u32,
}

impl Map {
    fn new(map: MmapRaw) -> Result<Self, NoMemory> {
        // A failure is ignored: children then inherit pages that they do not use.
        let _ = map.advise(Advice::DontFork);
        Ok(Map { map: ManuallyDrop::new(try_box(map)?), process: std::process::id() })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // In a forked child another mapping may have the addresses of the queue.
        if std::process::id() == self.process {
            // SAFETY: `map` is taken out here only.
            let map = unsafe { ManuallyDrop::take(&mut self.map) };
            match UNMAPPER.get() {
                Some(unmap) => unmap(map),
                None => drop(map),
            }
        }
    }
}

// SAFETY: the parts are memory that is mapped while any handle lives, at the same addresses for all
// threads, and they consist of atomics, which any thread may access at any time; the last handle
// unmaps, in any thread.
unsafe impl Send for Mapping {}

// SAFETY: as above; a shared handle returns only shared references to atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates the parts of a queue of `slots` slots in a readable and writable mapping that is
    /// long enough ([`Offsets`]). If it maps a file, the file cannot become shorter.
    pub(super) fn of(map: MmapRaw, slots: usize) -> Result<Self, NoMemory> {
        let offsets = Offsets::of(slots);
        assert!(map.len() >= offsets.end, "a mapping of {} bytes for {slots} slots", map.len());
        let start = NonNull::new(map.as_mut_ptr()).expect("a mapping is never at address zero");
        // SAFETY: both offsets lie within the mapping, whose length was checked above.
        let (links_at, slots_at) =
            unsafe { (start.add(offsets.links).cast(), start.add(offsets.slots).cast()) };
        Ok(Mapping {
            header: start.cast(),
            links: NonNull::slice_from_raw_parts(links_at, slots),
            slots: NonNull::slice_from_raw_parts(slots_at, slots),
            map: TryArc::try_new(Map::new(map)?)?,
        })
    }

    #[inline]
    pub(super) fn header(&self) -> &Header {
        // SAFETY: `of` computed the address and the length within a mapping that begins at a page
        // boundary, a multiple of the alignment (`Offsets::of`). The mapping lives as long as
        // `self.map`, and a file beneath it keeps its size. It consists of atomics, for which every
        // bit pattern is valid, so that other writers, in any process, are harmless.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    pub(super) fn links(&self) -> &[SlotLink] {
        // SAFETY: as for the header.
        unsafe { self.links.as_ref() }
    }

    #[inline]
    pub(super) fn slots(&self) -> &[Slot] {
        // SAFETY: as for the header.
        unsafe { self.slots.as_ref() }
    }

    /// Returns the address of the mapping and the size of its parts in bytes.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        (self.header.as_ptr().cast_const().cast(), Offsets::of(self.slots.len()).end)
    }

    /// Returns the pages that hold only these slots to the system. `advice` must be one after which
    /// the pages read as zeros.
    pub(super) fn discard(&self, slots: Range<u32>, advice: UncheckedAdvice) {
        let start = Offsets::of(self.slots.len()).slots;
        let at = |index: u32| start + self.slots.len().min(index as usize) * size_of::<Slot>();
        // The mapping begins at a page boundary.
        if let Some(pages) = whole_pages(at(slots.start)..at(slots.end)) {
            // SAFETY: these pages hold only slots. They read as zeros afterwards, and the system
            // provides them again when they are written; a slot consists of atomics, for which
            // every value is valid, even if another thread reads them at the same time.
            let discarded = unsafe { self.map.map.unchecked_advise_range(advice, pages.start, pages.len()) };
            // A failure is ignored: the pages then remain.
            drop(discarded);
        }
    }
}

/// Returns the part of these bytes that is made of whole units of [`DISCARD_BYTES`], which can be
/// returned to the system.
fn whole_pages(bytes: Range<usize>) -> Option<Range<usize>> {
    let pages = bytes.start.next_multiple_of(DISCARD_BYTES)..bytes.end / DISCARD_BYTES * DISCARD_BYTES;
    (!pages.is_empty()).then_some(pages)
}

/// The byte offsets of a queue's parts from the start of the mapping.
pub(super) struct Offsets {
    links: usize,
    slots: usize,
    pub(super) end: usize,
}

impl Offsets {
    /// Computes the offsets. The sums do not overflow, because `check_slot_count` has limited
    /// `slots`.
    pub(super) const fn of(slots: usize) -> Self {
        let links = size_of::<Header>();
        let slots_at = (links + slots * size_of::<SlotLink>()).next_multiple_of(align_of::<Slot>());
        Offsets { links, slots: slots_at, end: slots_at + slots * size_of::<Slot>() }
    }
}

/// MT-220: assertions on the offsets, which both processes must share.
mod assertions {
    use static_assertions::{const_assert, const_assert_eq};

    use super::*;
    use crate::{MAX_SLOTS, MIN_SLOTS};

    const_assert_eq!(Offsets::of(MIN_SLOTS as usize).links, 640);
    const_assert_eq!(Offsets::of(MIN_SLOTS as usize).slots, 768);
    const_assert_eq!(Offsets::of(MIN_SLOTS as usize).end, 1024);

    const_assert_eq!(Offsets::of(MAX_SLOTS as usize).slots, 640 + 4 * MAX_SLOTS as usize);
    const_assert_eq!(
        Offsets::of(MAX_SLOTS as usize).end,
        Offsets::of(MAX_SLOTS as usize).slots + 128 * MAX_SLOTS as usize
    );
    const_assert!(Offsets::of(MAX_SLOTS as usize).end < 133 << 20);
}
