use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use memmap2::{MmapOptions, UncheckedAdvice};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::error::Error;
use crate::layout::{Header, MAGIC, Slot, SlotLink, VERSION};
use crate::memory::mapping::{Mapping, Offsets};
use crate::memory::{QueueMemory, check_slot_count, format};

/// The name of the memory in `/proc/PID/maps`.
const NAME: &CStr = c"nlx-bev-cqueue";

/// Memory shared with another process: a sealed memfd, mapped.
///
/// The size is fixed and sealed. The process that attaches the memory also seals it against further
/// writers (`F_SEAL_FUTURE_WRITE`): from then on no process can remove pages that another one uses,
/// nor map it again for writing. Slots that were never linked in take no memory.
/// [Shrinking](crate::Consumer::shrink) returns the pages of removed slots only before the memory
/// is attached, because the seal forbids that too. A clone is another handle to the same mapping,
/// which forked children do not inherit.
#[derive(Clone, Debug)]
pub struct SharedMemory(Mapping);

impl SharedMemory {
    /// Creates memory for a ring that can grow to `max_slots` slots. Also returns the descriptor by
    /// which another process [attaches](SharedMemory::attach) the memory.
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`] outside of
    /// [`MIN_SLOTS`](crate::MIN_SLOTS)..=[`MAX_SLOTS`](crate::MAX_SLOTS); [`Error::System`] when a
    /// system call fails.
    pub fn create(max_slots: u32) -> Result<(Self, OwnedFd), Error> {
        let slots = check_slot_count(max_slots)?;
        let fd = new_memfd().map_err(Error::system("memfd_create"))?;
        // The cast does not truncate: the size is at most 132 MiB (`check_slot_count`).
        ftruncate(&fd, Offsets::of(slots).end as i64).map_err(Error::system("ftruncate"))?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SIZE)).map_err(Error::system("fcntl"))?;
        let memory = Self::map(&fd, slots)?;
        format(&memory);
        Ok((memory, fd))
    }

    /// Returns the size in bytes of the memory of a ring that can grow to `max_slots` slots.
    ///
    /// # Errors
    ///
    /// [`Error::SlotCount`], as [`SharedMemory::create`].
    pub fn size(max_slots: u32) -> Result<usize, Error> {
        Ok(Offsets::of(check_slot_count(max_slots)?).end)
    }

    /// Maps memory that another process made and whose descriptor it passed to this one. The memory
    /// is sealed in the course, so it can be attached only once.
    ///
    /// # Errors
    ///
    /// [`Error::Unsealed`] when the memory could still shrink; [`Error::NotAQueue`],
    /// [`Error::Version`], [`Error::SlotCount`] and [`Error::Size`] when this version of the crate
    /// did not make it; and [`Error::System`].
    pub fn attach(fd: OwnedFd) -> Result<Self, Error> {
        let memory = Self::map_all(&fd)?;
        // The call waits for processes that are removing pages; later attempts to remove pages
        // fail.
        fcntl(&fd, FcntlArg::F_ADD_SEALS(FUTURE_WRITE)).map_err(Error::system("fcntl"))?;
        Ok(memory)
    }

    pub(crate) fn map_all(fd: &OwnedFd) -> Result<Self, Error> {
        check_seals(fd)?;
        let bytes = fstat(fd).map_err(Error::system("fstat"))?.st_size;
        // The size cannot change, because its seals were checked.
        let smallest = Offsets::of(crate::MIN_SLOTS as usize).end;
        if bytes < smallest as i64 {
            return Err(Error::Size { bytes, expected: smallest });
        }
        let header_only = Self::map(fd, 0)?;
        let slots = check_slot_count(header_only.checked_max_slots()?)?;
        match Offsets::of(slots).end {
            expected if expected as i64 != bytes => Err(Error::Size { bytes, expected }),
            _ => Self::map(fd, slots),
        }
    }

    /// Returns the address of this process's mapping and its size in bytes; the mapping begins at a
    /// page boundary. For a process that must survive the removal of pages by another process: the
    /// queue tolerates that pages become zeros at any moment, and then loses events or reports
    /// corruption.
    pub fn bytes(&self) -> (*const u8, usize) {
        self.0.bytes()
    }

    /// Maps the first bytes of `fd` that `max_slots` slots need. The caller has checked that the
    /// file has them and cannot shrink.
    fn map(fd: &OwnedFd, max_slots: usize) -> Result<Self, Error> {
        let bytes = Offsets::of(max_slots).end;
        let map = MmapOptions::new().len(bytes).map_raw(fd).map_err(Error::io("mmap"))?;
        Mapping::of(map, max_slots).map(SharedMemory).map_err(|_| Error::NoMemory { slots: max_slots })
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

impl QueueMemory for SharedMemory {
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
    fn discard(&self, slots: Range<u32>) {
        // The advice punches a hole into the file, so that the pages vanish for all processes that
        // map it.
        self.0.discard(slots, UncheckedAdvice::Remove);
    }
}

/// Creates a memory file that can be sealed, and that cannot be executed if the kernel supports
/// that (since Linux 6.3).
fn new_memfd() -> Result<OwnedFd, Errno> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    match memfd_create(NAME, flags | MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL)) {
        Err(Errno::EINVAL) => memfd_create(NAME, flags),
        made => made,
    }
}

/// The seals that fix the size.
const SIZE: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);

/// `F_SEAL_FUTURE_WRITE`, since Linux 5.1, which nix lacks: existing mappings remain writable, but
/// no other access can write.
const FUTURE_WRITE: SealFlag = SealFlag::from_bits_retain(0x10);

fn check_seals(fd: &OwnedFd) -> Result<(), Error> {
    let bits = fcntl(fd.as_fd(), FcntlArg::F_GET_SEALS).map_err(Error::system("fcntl"))?;
    let seals = SealFlag::from_bits_retain(bits);
    // Memory sealed against writing cannot be mapped as below; then `mmap` returns the error.
    if seals.contains(SIZE) {
        Ok(())
    } else {
        Err(Error::Unsealed { seals: seals.bits(), required: SIZE.bits() })
    }
}
