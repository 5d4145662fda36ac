//! Where the bytes of a region come from.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::RegionError;

/// The largest region: far above any buffer pool, far below what would overflow an offset computation.
pub const MAX_REGION_BYTES: usize = 1 << 40;

/// Heap regions start at page boundaries, so that a buffer of 256 pages is 256 whole pages.
const PAGE_BYTES: usize = 4096;

/// The huge pages that are asked for. With this size given, the system takes no other for its default.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// How a memfd shows in `/proc/PID/maps`.
const NAME: &CStr = c"nlx-region";

/// The size of the file can never change again, and nobody can lift that.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

/// Memory that is freed when this is dropped. At least as long as was asked for, zeroed when made, and at one address
/// all the time.
pub(crate) enum Memory {
    Heap { base: NonNull<u8>, layout: Layout },
    File { map: MmapRaw, fd: OwnedFd },
}

// SAFETY: either kind owns its memory, and nothing in it belongs to a thread. How the bytes are shared is up to the
// region's leases.
unsafe impl Send for Memory {}
// SAFETY: as above; a shared reference gives out the address and the descriptor, and touches no byte.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn heap(bytes: usize) -> Result<Memory, RegionError> {
        check_length(bytes)?;
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| too_long(bytes))?;
        // SAFETY: the layout has a non-zero size, as check_length made sure.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(RegionError::System { bytes, errno: Errno::ENOMEM })?;
        Ok(Memory::Heap { base, layout })
    }

    /// A sealed memfd of this many bytes, on huge pages or not.
    pub(crate) fn file(bytes: usize, huge: bool) -> Result<Memory, RegionError> {
        check_length(bytes)?;
        let (flags, granule) = if huge {
            (MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB, HUGE_PAGE_BYTES)
        } else {
            (MFdFlags::empty(), 1)
        };
        let system = |errno| RegionError::System { bytes, errno };
        let length = bytes.next_multiple_of(granule);
        let fd = memfd_create(NAME, flags | MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
            .map_err(system)?;
        // At most MAX_REGION_BYTES and a huge page.
        ftruncate(&fd, length as i64).map_err(system)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SEALS)).map_err(system)?;
        Memory::map(fd, length)
    }

    /// The memory behind a descriptor that came from elsewhere, and its length.
    pub(crate) fn attach(fd: OwnedFd) -> Result<(Memory, usize), RegionError> {
        let refused = |errno| RegionError::NotRegion { what: "what it is", errno };
        // Only files in memory know of seals: all else is refused here.
        let seals = fcntl(&fd, FcntlArg::F_GET_SEALS).map_err(refused)?;
        if !SealFlag::from_bits_retain(seals).contains(SEALS) {
            return Err(RegionError::NotRegion { what: "its seals", errno: Errno::EINVAL });
        }
        // Sealed, so that the size stays what it is from here on.
        let size = fstat(&fd).map_err(refused)?.st_size;
        let length = usize::try_from(size).map_err(|_| too_long(usize::MAX))?;
        check_length(length)?;
        Ok((Memory::map(fd, length)?, length))
    }

    fn map(fd: OwnedFd, length: usize) -> Result<Memory, RegionError> {
        let system = |error: std::io::Error| RegionError::System {
            bytes: length,
            errno: Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO)),
        };
        let map = MmapOptions::new().len(length).map_raw(&fd).map_err(system)?;
        // A forked child would hold on to pages that a network card writes to, and write to them itself.
        map.advise(Advice::DontFork).map_err(system)?;
        Ok(Memory::File { map, fd })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            Memory::Heap { base, .. } => base.as_ptr(),
            Memory::File { map, .. } => map.as_mut_ptr(),
        }
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Memory::Heap { .. } => None,
            Memory::File { fd, .. } => Some(fd.as_fd()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Heap { base, layout } = self {
            // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed here only.
            unsafe { dealloc(base.as_ptr(), *layout) };
        }
    }
}

fn check_length(bytes: usize) -> Result<(), RegionError> {
    if bytes == 0 || bytes > MAX_REGION_BYTES { Err(too_long(bytes)) } else { Ok(()) }
}

fn too_long(bytes: usize) -> RegionError {
    RegionError::Length { bytes, max: MAX_REGION_BYTES }
}
