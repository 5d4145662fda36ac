use core::mem::size_of;
use core::ops::Range;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::error::Error;
use crate::layout::{Header, Link, MAGIC, Slot, VERSION};
use crate::memory::{Memory, check_slot_count, format, whole_pages};

/// How the memory shows in `/proc/PID/maps`.
const NAME: &CStr = c"nlx-bev-cqueue";

/// Memory shared with another process: a sealed memfd, mapped.
///
/// The size is fixed and sealed, so no process can take pages away under another's feet. Slots that were never linked
/// in cost no memory, nor do those that [shrinking](crate::Consumer::shrink) has put out of the ring. A clone is another handle to the same mapping.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    /// The parts of the mapping. Kept here, because asking `map` for its address at each access halves the throughput;
    /// and reckoned once by this process, never again from what stands in the shared memory.
    header: NonNull<Header>,
    links: NonNull<[Link]>,
    slots: NonNull<[Slot]>,
    /// Keeps the parts mapped.
    map: Arc<MmapRaw>,
}

// SAFETY: the parts are memory that is mapped as long as any handle lives, at the same addresses for all threads, and they
// consist of atomics, which any thread may access at any time; unmapping is up to the last handle, in whatever thread.
unsafe impl Send for SharedMemory {}

// SAFETY: as above; a shared handle gives out nothing but shared references to atomics.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes memory for a ring that can grow to `max_slots` slots, and the descriptor by which another process
    /// [attaches](SharedMemory::attach) it.
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`] outside of [`MIN_SLOTS`](crate::MIN_SLOTS)..=[`MAX_SLOTS`](crate::MAX_SLOTS);
    /// [`Error::System`] when the system refuses.
    pub fn create(max_slots: u32) -> Result<(Self, OwnedFd), Error> {
        let slots = check_slot_count(max_slots)?;
        let fd = memfd_create(NAME, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(Error::system("memfd_create"))?;
        // At most 132 MiB: `check_slot_count`.
        ftruncate(&fd, Places::of(slots).end as i64).map_err(Error::system("ftruncate"))?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(required_seals())).map_err(Error::system("fcntl"))?;
        let memory = Self::map(&fd, slots)?;
        format(&memory);
        Ok((memory, fd))
    }

    /// Maps memory that another process made, whose descriptor it passed to this one.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealed`] when the memory could still shrink, [`Error::NotAQueue`], [`Error::Version`],
    /// [`Error::SlotCount`] and [`Error::Size`] when it is not what this version of the crate makes, and
    /// [`Error::System`].
    pub fn attach(fd: OwnedFd) -> Result<Self, Error> {
        check_seals(&fd)?;
        let bytes = fstat(&fd).map_err(Error::system("fstat"))?.st_size;
        // Sealed, so the size stays what it is from here on.
        let smallest = Places::of(crate::MIN_SLOTS as usize).end;
        if bytes < smallest as i64 {
            return Err(Error::Size { bytes, expected: smallest });
        }
        let header_only = Self::map(&fd, 0)?;
        let slots = check_slot_count(header_only.checked_max_slots()?)?;
        match Places::of(slots).end {
            expected if expected as i64 != bytes => Err(Error::Size { bytes, expected }),
            _ => Self::map(&fd, slots),
        }
    }

    /// Maps the first bytes of `fd`, as many as `max_slots` slots need. The caller has made sure that the file has them
    /// and cannot shrink.
    fn map(fd: &OwnedFd, max_slots: usize) -> Result<Self, Error> {
        let places = Places::of(max_slots);
        let map = MmapOptions::new().len(places.end).map_raw(fd).map_err(Error::io("mmap"))?;
        let start = NonNull::new(map.as_mut_ptr()).expect("a mapping is never at address zero");
        // SAFETY: both offsets lie within the mapping, which is `places.end` bytes long.
        let (links, slots) = unsafe { (start.add(places.links).cast(), start.add(places.slots).cast()) };
        Ok(SharedMemory {
            header: start.cast(),
            links: NonNull::slice_from_raw_parts(links, max_slots),
            slots: NonNull::slice_from_raw_parts(slots, max_slots),
            map: Arc::new(map),
        })
    }

    fn checked_max_slots(&self) -> Result<u32, Error> {
        let identity = &self.header().identity;
        let magic = identity.magic.load(Relaxed);
        if magic != MAGIC {
            return Err(Error::NotAQueue { magic, expected: MAGIC });
        }
        let version = identity.version.load(Relaxed);
        if version != VERSION {
            return Err(Error::Version { version, expected: VERSION });
        }
        Ok(identity.max_slots.load(Relaxed))
    }
}

impl Memory for SharedMemory {
    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: `map` reckoned the address and the length within a mapping that begins on a page boundary, at a multiple
        // of the alignment (`Places::of`). The mapping lives as long as `self.map`, and the file beneath it, sealed,
        // keeps its size. All of it are atomics, for which every bit pattern is valid, so that other writers, in whatever
        // process, are harmless.
        unsafe { self.header.as_ref() }
    }

    #[inline]
    fn links(&self) -> &[Link] {
        // SAFETY: as for the header.
        unsafe { self.links.as_ref() }
    }

    #[inline]
    fn slots(&self) -> &[Slot] {
        // SAFETY: as for the header.
        unsafe { self.slots.as_ref() }
    }

    #[cold]
    fn discard(&self, slots: Range<u32>) {
        let start = Places::of(self.slots.len()).slots;
        let at = |index: u32| start + self.slots.len().min(index as usize) * size_of::<Slot>();
        // The mapping begins at a page.
        if let Some(pages) = whole_pages(at(slots.start)..at(slots.end)) {
            // SAFETY: these pages hold slots and nothing else. They read as zeros afterwards, and are given anew when they
            // are written; a slot consists of atomics, for which every value is valid, whoever reads them meanwhile.
            let discarded =
                unsafe { self.map.unchecked_advise_range(UncheckedAdvice::Remove, pages.start, pages.len()) };
            // A system that cannot do so keeps them.
            drop(discarded);
        }
    }
}

/// Where the parts of a queue lie: byte offsets from the start of the mapping.
struct Places {
    links: usize,
    slots: usize,
    end: usize,
}

impl Places {
    /// No overflow: `check_slot_count` has limited `slots`.
    const fn of(slots: usize) -> Self {
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

    const SMALLEST: Places = Places::of(MIN_SLOTS as usize);
    const_assert_eq!(SMALLEST.links, 384);
    const_assert_eq!(SMALLEST.slots, 512);
    const_assert_eq!(SMALLEST.end, 768);

    const LARGEST: Places = Places::of(MAX_SLOTS as usize);
    const_assert_eq!(LARGEST.slots, 384 + 4 * MAX_SLOTS as usize);
    const_assert_eq!(LARGEST.end, LARGEST.slots + 128 * MAX_SLOTS as usize);
    const_assert!(LARGEST.end < 133 << 20);
}

/// With these nobody can change the size, or the seals.
fn required_seals() -> SealFlag {
    SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL
}

fn check_seals(fd: &OwnedFd) -> Result<(), Error> {
    let bits = fcntl(fd.as_fd(), FcntlArg::F_GET_SEALS).map_err(Error::system("fcntl"))?;
    let seals = SealFlag::from_bits_retain(bits);
    // Memory sealed against writing could not be mapped as below; the system says so there.
    if seals.contains(required_seals()) {
        Ok(())
    } else {
        Err(Error::Unsealed { seals: seals.bits(), required: required_seals().bits() })
    }
}
