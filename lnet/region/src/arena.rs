//! Regions in one piece of memory that another process has also mapped.

mod free;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;
use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use self::free::FreeRanges;
use crate::memory::{OwnedMemory, check_length};
use crate::region::Registrations;
use crate::{ForkGuard, Fragment, Region, RegionError};

/// Memory from which regions are allocated. It is mapped once, from one descriptor or from several
/// whose memory lies here in one piece, and registered with a device at once
/// ([`Region::registration`]). Clones are the same arena, which stays mapped until the last clone
/// and the last region are dropped.
///
/// A region of an arena is private memory ([`Region::is_shared`] is false): its leases give slices,
/// and are independent of those of other regions. It cannot be shared separately, and returns to
/// the arena when its last clone is dropped.
///
/// An allocation below a page takes a multiple of 64 bytes, so that no two regions share a line of
/// a processor's cache. A larger one takes whole pages, and begins at one; so the arena's length
/// should be whole pages, and on huge pages whole huge ones. The smallest free range with room is
/// used; adjacent free ranges are merged.
///
/// ```
/// use lnet_region::{Arena, Fragment, IoVec, Pages, Region};
///
/// let memory = Region::memfd(1 << 20, Pages::Normal)?;
/// let descriptor = memory.share()?.try_clone_to_owned().expect("there are descriptors left");
/// // SAFETY: the memory is never written through `memory`.
/// let arena = unsafe { Arena::trusted(vec![descriptor])? };
/// let region = arena.allocate(5000)?;
/// assert_eq!((region.len(), arena.free_bytes()), (5000, arena.len() - 8192));
///
/// let buffer = IoVec::whole(region.clone());
/// assert_eq!(buffer.read(0..5)?.as_slice(), Some(&[0; 5][..]));
/// assert_eq!(arena.place(&Fragment::new(region, 100, 1)?), Some(100));
///
/// drop(buffer);
/// assert!(arena.is_unused());
/// # Ok::<(), lnet_region::RegionError>(())
/// ```
#[derive(Clone)]
pub struct Arena(Arc<ArenaInner>);

struct ArenaInner {
    /// The registrations of all regions together. Dropped before the memory, so that devices
    /// release it first.
    registrations: Registrations,
    memory: OwnedMemory,
    length: usize,
    free: Mutex<FreeRanges>,
}

impl Arena {
    /// Creates an arena over memory to which another process has descriptors: the memory is all
    /// zeros, and its size is fixed. The memory of the first one is followed by that of the second
    /// one, and so on; all but the last must be whole pages of the next. All of them are sealed
    /// against further writers (`F_SEAL_FUTURE_WRITE`): after that no process can create a writable
    /// mapping, or remove pages.
    ///
    /// # Errors
    /// The errors of [`Region::attach`], [`RegionError::Length`] also for an empty list.
    ///
    /// # Safety
    /// Any other mapping of the memory is written only at bytes on which this process holds a
    /// transport's lease to receive ([`crate::IoVec::incoming`]) throughout. This process may
    /// expose all other bytes as slices.
    pub unsafe fn trusted(fds: Vec<OwnedFd>) -> Result<Arena, RegionError> {
        let (memory, length) = OwnedMemory::join(&fds)?;
        let registrations = Registrations::new(*memory.fork_guard());
        let free = Mutex::new(FreeRanges::new(length));
        Ok(Arena(Arc::new(ArenaInner { registrations, memory, length, free })))
    }

    /// Allocates a region of zeros. [`Arena::place`] returns its position.
    ///
    /// # Errors
    /// [`RegionError::Length`] as for [`Region::heap`], [`RegionError::System`] with ENOMEM if no
    /// free range is long enough, [`RegionError::Forked`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, RegionError> {
        // The check precedes the lock, which a thread may have held when this process was forked.
        self.0.memory.fork_guard().check()?;
        check_length(bytes)?;
        let taken = self.0.free.lock().take(bytes);
        let taken = taken.ok_or(RegionError::System { bytes, errno: Errno::ENOMEM })?;
        let piece = ArenaPiece { arena: self.clone(), start: taken.start, bytes };
        // SAFETY: the range lies within the arena, and belongs to this piece alone: there is no
        // lease on it yet. Bytes beyond `used` are zeros from the system.
        unsafe { piece.base().write_bytes(0, taken.used) };
        Region::of_arena(OwnedMemory::piece(piece), bytes)
    }

    /// Returns the number of bytes in the arena, used or free.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Returns the number of bytes that belong to no region; they may not be contiguous; 0 in a
    /// forked child.
    pub fn free_bytes(&self) -> usize {
        if self.fork_guard().in_owner_process() { self.0.free.lock().bytes() } else { 0 }
    }

    /// Returns whether the arena has no regions; false in a forked child.
    pub fn is_unused(&self) -> bool {
        self.free_bytes() == self.len()
    }

    /// Returns the fork guard of the process that owns the arena.
    pub fn fork_guard(&self) -> &ForkGuard {
        self.0.memory.fork_guard()
    }

    /// Returns the offset of the fragment's first byte in the arena; `None` for memory that is not
    /// of this arena.
    pub fn place(&self, fragment: &Fragment) -> Option<u64> {
        let piece = fragment.region().arena_piece().filter(|piece| piece.arena.same(self))?;
        Some((piece.start + fragment.offset()) as u64)
    }

    /// Returns whether both handles refer to the same arena.
    pub fn same(&self, other: &Arena) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} bytes)", self.len())
    }
}

assert_impl_all!(Arena: Send, Sync);

/// The memory of one region of an arena. Its owner calls [`ArenaPiece::give_back`] in its drop.
pub(crate) struct ArenaPiece {
    arena: Arena,
    start: usize,
    bytes: usize,
}

impl ArenaPiece {
    pub(crate) fn base(&self) -> *mut u8 {
        self.arena.0.memory.base().wrapping_add(self.start)
    }

    /// Returns the arena's registrations.
    pub(crate) fn registrations(&self) -> &Registrations {
        &self.arena.0.registrations
    }

    /// Returns the memory of the arena: the number of its first byte, and its length.
    pub(crate) fn extent(&self) -> (u64, usize) {
        (self.arena.0.memory.base().expose_provenance() as u64, self.arena.len())
    }

    /// Returns the memory to the arena. Must be called once, in the process that owns the arena.
    pub(crate) fn give_back(&self) {
        self.arena.0.free.lock().give_back(self.start, self.bytes);
    }
}
