//! Sources of the memory of regions.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::stat::fstat;
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};
use nix::unistd::{SysconfVar, ftruncate, sysconf};
use nlx_fallible::{TryArc, WeakArc};

use crate::arena::ArenaPiece;
use crate::closer::{self, Mapped};
use crate::guard::{self, Watched};
use crate::{ForkGuard, RegionError};

/// Length of the largest region: far above any buffer pool, far below what would overflow an offset
/// computation.
pub const MAX_REGION_BYTES: usize = 1 << 40;

/// Alignment of heap regions: a page, so that a buffer of 256 pages is 256 whole pages.
const PAGE_BYTES: usize = 4096;

/// Maximum length of memory from the allocator. Longer memory is mapped by the system, which zeroes
/// pages at their first access, while the allocator would zero all of it at once. Memory up to this
/// length, LNet's largest message included, is reused by the allocator without system calls.
const HEAP_MAX_BYTES: usize = 1 << 20;

/// Requested huge page size. With an explicit size, the system does not substitute its default.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Name of a memfd in `/proc/PID/maps`.
const NAME: &CStr = c"nlx-region";

/// Seals that fix the size of the file.
const SEALS: SealFlag = SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW);

/// `F_SEAL_FUTURE_WRITE`, since Linux 5.1, which nix does not define: existing mappings stay
/// writable, but no other access can write, and no process can remove pages.
const FUTURE_WRITE: SealFlag = SealFlag::from_bits_retain(0x10);

/// Memory that is freed when this is dropped. It has at least the requested length, and its address
/// does not change.
pub(crate) struct OwnedMemory {
    source: Source,
    fork_guard: ForkGuard,
}

/// The source of the memory. Forked children do not inherit mappings.
enum Source {
    /// Memory from the allocator.
    Heap { base: NonNull<u8>, layout: Layout },
    /// The parts of a program's vector.
    Vector { base: NonNull<u8>, length: usize, capacity: usize },
    /// A mapping from the system, used from an offset.
    Pages { map: ManuallyDrop<MmapRaw>, start: usize },
    /// A mapped file in memory.
    File {
        map: ManuallyDrop<MmapRaw>,
        fd: ManuallyDrop<OwnedFd>,
        /// A mark that is dropped once the memory is unmapped and the descriptor closed.
        mark: TryArc<()>,
    },
    /// A part of an arena.
    Piece(ArenaPiece),
}

// SAFETY: every kind owns its memory, and nothing in it belongs to a thread. The region's leases
// control concurrent access to the bytes.
unsafe impl Send for OwnedMemory {}
// SAFETY: as above; a shared reference returns the address and the descriptor, and accesses no
// byte.
unsafe impl Sync for OwnedMemory {}

impl OwnedMemory {
    /// Allocates private zeroed memory.
    pub(crate) fn private(bytes: usize) -> Result<OwnedMemory, RegionError> {
        if bytes > HEAP_MAX_BYTES {
            return OwnedMemory::separate_pages(bytes);
        }
        check_length(bytes)?;
        OwnedMemory::heap(bytes)
    }

    /// Allocates private memory like [`OwnedMemory::private`], but in separate pages for any length.
    pub(crate) fn separate_pages(bytes: usize) -> Result<OwnedMemory, RegionError> {
        check_length(bytes)?;
        // Miri supports only the allocator's memory.
        if cfg!(miri) { OwnedMemory::heap(bytes) } else { OwnedMemory::pages(bytes) }
    }

    fn heap(bytes: usize) -> Result<OwnedMemory, RegionError> {
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| too_long(bytes))?;
        // SAFETY: the layout has a non-zero size, which check_length has ensured.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(RegionError::System { bytes, errno: Errno::ENOMEM })?;
        Ok(OwnedMemory::of(Source::Heap { base, layout }))
    }

    fn pages(bytes: usize) -> Result<OwnedMemory, RegionError> {
        let map = MmapOptions::new().len(bytes).map_anon().map_err(|error| refused(bytes, &error))?;
        Ok(OwnedMemory::of(Source::Pages { map: not_for_children(map.into(), bytes)?, start: 0 }))
    }

    /// Wraps a program's vector; its capacity beyond its length is not used.
    pub(crate) fn vector(bytes: Vec<u8>) -> Result<OwnedMemory, RegionError> {
        check_length(bytes.len())?;
        let mut bytes = ManuallyDrop::new(bytes);
        let (length, capacity) = (bytes.len(), bytes.capacity());
        let base = NonNull::new(bytes.as_mut_ptr()).ok_or(too_long(length))?;
        Ok(OwnedMemory::of(Source::Vector { base, length, capacity }))
    }

    /// Returns the vector from which the memory was made; the memory itself if it has another
    /// source.
    pub(crate) fn into_vector(self) -> Result<Vec<u8>, OwnedMemory> {
        let Source::Vector { base, length, capacity } = self.source else { return Err(self) };
        std::mem::forget(self);
        // SAFETY: they are the parts of a vector that `vector` has decomposed, and only this value
        // owns them.
        Ok(unsafe { Vec::from_raw_parts(base.as_ptr(), length, capacity) })
    }

    /// Returns whether the memory was made from a vector.
    pub(crate) fn is_vector(&self) -> bool {
        matches!(self.source, Source::Vector { .. })
    }

    /// Creates a sealed memfd of this many bytes, on huge pages if `huge`.
    pub(crate) fn file(bytes: usize, huge: bool) -> Result<OwnedMemory, RegionError> {
        check_length(bytes)?;
        let (flags, granule) = if huge {
            (MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB, HUGE_PAGE_BYTES)
        } else {
            (MFdFlags::empty(), 1)
        };
        let system = |errno| RegionError::System { bytes, errno };
        let length = bytes.next_multiple_of(granule);
        let fd = new_memfd(flags).map_err(system)?;
        // The cast does not truncate: the length is at most MAX_REGION_BYTES and a huge page.
        ftruncate(&fd, length as i64).map_err(system)?;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(SEALS)).map_err(system)?;
        OwnedMemory::map(fd, length)
    }

    /// Maps the memory of a descriptor of another process; returns it with its length.
    pub(crate) fn attach(fd: OwnedFd) -> Result<(OwnedMemory, usize), RegionError> {
        let length = sealed_length(fd.as_fd())?;
        Ok((OwnedMemory::map(fd, length)?, length))
    }

    /// Maps the memory of several such descriptors, one after the other in one piece; returns it
    /// with its length.
    pub(crate) fn join(fds: &[OwnedFd]) -> Result<(OwnedMemory, usize), RegionError> {
        let lengths = fds.iter().map(|fd| sealed_length(fd.as_fd())).collect::<Result<Vec<_>, _>>()?;
        // The sum does not overflow: at most one length per descriptor, of at most 2^40 bytes each.
        let length = lengths.iter().sum();
        check_length(length)?;
        let granule = fds.iter().map(|fd| page_bytes(fd.as_fd())).max().unwrap_or(1);
        // Reserves the address space, with room to align to the largest page. None of the reserved
        // space is accessed before files are mapped over it.
        let reserved = MmapOptions::new().len(length + granule).no_reserve_swap().map_anon();
        let map = MmapRaw::from(reserved.map_err(|error| refused(length, &error))?);
        let start = map.as_ptr().align_offset(granule);
        let mut end = start;
        for (fd, &part) in fds.iter().zip(&lengths) {
            if (end - start) % page_bytes(fd.as_fd()) != 0 {
                return Err(RegionError::NotRegion { what: "its length", errno: Errno::EINVAL });
            }
            // SAFETY: these bytes lie within the mapping above, to which only this function has a
            // pointer.
            unsafe { replace(map.as_mut_ptr().wrapping_add(end), part, fd) }
                .map_err(|errno| RegionError::System { bytes: part, errno })?;
            end += part;
        }
        fds.iter().try_for_each(|fd| seal(fd.as_fd()))?;
        Ok((OwnedMemory::of(Source::Pages { map: not_for_children(map, length)?, start }), length))
    }

    /// Wraps the memory of a region of an arena.
    pub(crate) fn piece(piece: ArenaPiece) -> OwnedMemory {
        OwnedMemory::of(Source::Piece(piece))
    }

    pub(crate) fn map(fd: OwnedFd, length: usize) -> Result<OwnedMemory, RegionError> {
        let map = MmapOptions::new().len(length).map_raw(&fd).map_err(|error| refused(length, &error));
        let map = map.and_then(|map| not_for_children(map, length));
        match map.and_then(|map| Ok((map, TryArc::try_new(())?))) {
            Ok((map, mark)) => Ok(OwnedMemory::of(Source::File { map, fd: ManuallyDrop::new(fd), mark })),
            Err(error) => {
                closer::close(fd);
                Err(error)
            }
        }
    }

    fn of(source: Source) -> OwnedMemory {
        OwnedMemory { source, fork_guard: ForkGuard::here() }
    }

    /// Returns the fork guard of the process that owns the memory.
    #[inline]
    pub(crate) fn fork_guard(&self) -> &ForkGuard {
        &self.fork_guard
    }

    pub(crate) fn base(&self) -> *mut u8 {
        match &self.source {
            Source::Heap { base, .. } | Source::Vector { base, .. } => base.as_ptr(),
            Source::Pages { map, start } => map.as_mut_ptr().wrapping_add(*start),
            Source::File { map, .. } => map.as_mut_ptr(),
            Source::Piece(piece) => piece.base(),
        }
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::File { fd, .. } => Some(fd.as_fd()),
            _ => None,
        }
    }

    /// Returns the mark that exists until memory of a file is unmapped and its descriptor closed;
    /// `None` for any other memory.
    pub(crate) fn mark(&self) -> Option<WeakArc<()>> {
        match &self.source {
            Source::File { mark, .. } => Some(TryArc::downgrade(mark)),
            _ => None,
        }
    }

    pub(crate) fn arena_piece(&self) -> Option<&ArenaPiece> {
        match &self.source {
            Source::Piece(piece) => Some(piece),
            _ => None,
        }
    }

    /// Heals faults in memory whose pages other processes may remove; `None` for any other memory.
    ///
    /// # Safety
    /// The memory outlives the result, and none of its bytes is visible as a slice from now on.
    pub(crate) unsafe fn watch(&self) -> Result<Option<Watched>, RegionError> {
        let Source::File { map, fd, .. } = &self.source else { return Ok(None) };
        // SAFETY: the mapping has this length, belongs to this value alone, and begins at a page.
        // The caller guarantees the rest.
        unsafe { guard::watch(map.as_ptr(), map.len(), page_bytes(fd.as_fd())) }.map(Some)
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        let in_owner_process = self.fork_guard.in_owner_process();
        match &mut self.source {
            // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed here only.
            Source::Heap { base, layout } => unsafe { dealloc(base.as_ptr(), *layout) },
            // SAFETY: they are the parts of a vector that `vector` has decomposed, and it is
            // reassembled here only.
            Source::Vector { base, length, capacity } => unsafe {
                drop(Vec::from_raw_parts(base.as_ptr(), *length, *capacity));
            },
            // SAFETY: it is unmapped here only. In a forked child it never was mapped, and its
            // addresses may be in other use.
            Source::Pages { map, .. } if in_owner_process => unsafe {
                closer::retire(Mapped::new(ManuallyDrop::take(map), None, None));
            },
            Source::File { map, fd, mark } if in_owner_process => {
                // SAFETY: both are taken out here only; for the mapping, as above.
                let (map, fd) = unsafe { (ManuallyDrop::take(map), ManuallyDrop::take(fd)) };
                closer::retire(Mapped::new(map, Some(fd), Some(mark.clone())));
            }
            // SAFETY: it is taken out here only.
            Source::File { fd, .. } => drop(unsafe { ManuallyDrop::take(fd) }),
            Source::Piece(piece) if in_owner_process => piece.give_back(),
            Source::Pages { .. } | Source::Piece(_) => {}
        }
    }
}

/// Excludes a mapping from forked children, which would keep pages to which a network card writes,
/// and could write to them.
fn not_for_children(map: MmapRaw, bytes: usize) -> Result<ManuallyDrop<MmapRaw>, RegionError> {
    map.advise(Advice::DontFork).map_err(|error| refused(bytes, &error))?;
    Ok(ManuallyDrop::new(map))
}

/// Creates a memfd that can be sealed, and never executed if the system supports that (since Linux
/// 6.3).
fn new_memfd(flags: MFdFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    match memfd_create(NAME, flags | MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL)) {
        Err(Errno::EINVAL) => memfd_create(NAME, flags),
        made => made,
    }
}

/// Seals memory against further writers: existing mappings stay writable, but no process can create
/// a writable mapping or remove pages any more. Blocks while another process creates such a mapping
/// or removes pages.
///
/// # Errors
/// [`RegionError::NotRegion`] for a descriptor that is not a memfd, or may not be sealed; Linux
/// before 5.1 has no such seal.
pub fn seal(fd: BorrowedFd<'_>) -> Result<(), RegionError> {
    let sealed = fcntl(fd, FcntlArg::F_ADD_SEALS(FUTURE_WRITE));
    sealed.map(drop).map_err(|errno| RegionError::NotRegion { what: "its seals", errno })
}

/// Returns whether the descriptor is a memfd that is [sealed](seal) against further writers. Does
/// not block.
#[must_use]
pub fn is_sealed(fd: BorrowedFd<'_>) -> bool {
    seals(fd).contains(FUTURE_WRITE)
}

/// Returns whether the descriptor is shared memory that is not sealed yet. Memory without a sealed
/// size is never shared.
pub(crate) fn is_unsealed(fd: BorrowedFd<'_>) -> bool {
    let seals = seals(fd);
    seals.contains(SEALS) && !seals.contains(FUTURE_WRITE)
}

/// Returns the seals of a file; none for a file that is not in memory.
fn seals(fd: BorrowedFd<'_>) -> SealFlag {
    fcntl(fd, FcntlArg::F_GET_SEALS).map_or(SealFlag::empty(), SealFlag::from_bits_retain)
}

/// Returns the length of another process's memory, whose size must be sealed so that it cannot
/// change.
fn sealed_length(fd: BorrowedFd<'_>) -> Result<usize, RegionError> {
    let refused = |errno| RegionError::NotRegion { what: "its type", errno };
    // Only memfds have seals, so any other descriptor is refused here.
    let seals = fcntl(fd, FcntlArg::F_GET_SEALS).map_err(refused)?;
    if !SealFlag::from_bits_retain(seals).contains(SEALS) {
        return Err(RegionError::NotRegion { what: "its seals", errno: Errno::EINVAL });
    }
    let size = fstat(fd).map_err(refused)?.st_size;
    let length = usize::try_from(size).map_err(|_| too_long(usize::MAX))?;
    check_length(length)?;
    Ok(length)
}

/// Maps a file over an existing mapping.
///
/// # Safety
/// The bytes from `base` on are a mapping of the caller, to which there is no reference.
unsafe fn replace(base: *mut u8, length: usize, fd: &OwnedFd) -> Result<(), Errno> {
    let address = NonZeroUsize::new(base.expose_provenance()).ok_or(Errno::EINVAL)?;
    let length = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: guaranteed by the caller.
    unsafe { mmap(Some(address), length, access, MapFlags::MAP_SHARED | MapFlags::MAP_FIXED, fd, 0) }
        .map(drop)
}

/// Returns the page size of a memfd.
fn page_bytes(fd: BorrowedFd<'_>) -> usize {
    match fstatfs(fd) {
        Ok(stat) if stat.filesystem_type() == HUGETLBFS_MAGIC => stat.block_size() as usize,
        _ => system_page_bytes(),
    }
}

fn system_page_bytes() -> usize {
    let known = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    known.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(PAGE_BYTES)
}

pub(crate) fn check_length(bytes: usize) -> Result<(), RegionError> {
    if bytes == 0 || bytes > MAX_REGION_BYTES { Err(too_long(bytes)) } else { Ok(()) }
}

fn too_long(bytes: usize) -> RegionError {
    RegionError::Length { bytes, max: MAX_REGION_BYTES }
}

fn refused(bytes: usize, error: &std::io::Error) -> RegionError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO));
    RegionError::System { bytes, errno }
}
