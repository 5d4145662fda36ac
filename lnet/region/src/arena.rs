//! Many regions in one piece of memory that another process has mapped as well.

mod free;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::errno::Errno;
use parking_lot::Mutex;
use static_assertions::assert_impl_all;

use self::free::FreeRanges;
use crate::memory::{Memory, check_length};
use crate::region::Registrations;
use crate::{ForkGuard, Fragment, Region, RegionError};

/// Memory out of which regions are allocated: mapped once, made of one descriptor or of several whose
/// memory lies here in one piece, and registered with a device at once ([`Region::registration`]). Clones are the same arena, which stays mapped as long as any clone or region lives.
///
/// A region of an arena is private memory ([`Region::is_shared`] is false): its leases give slices, and are its own. It
/// cannot be shared by itself, and goes back to the arena when its last clone is dropped.
///
/// Less than a page takes multiples of 64 bytes, so that no two regions meet in one line of a processor's cache. More
/// takes whole pages, and begins at one; so the arena should be whole pages, too, and on huge pages whole huge ones. The
/// smallest range with room is taken; neighbours that are free become one.
///
/// ```
/// use lnet_region::{Arena, Fragment, IoVec, Pages, Region};
///
/// let memory = Region::memfd(1 << 20, Pages::Normal)?;
/// let descriptor = memory.share()?.try_clone_to_owned().expect("there are descriptors left");
/// // SAFETY: nobody writes to the memory by `memory`.
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
pub struct Arena(Arc<Inner>);

struct Inner {
    /// Of all regions together. Devices forget the memory before it goes.
    registrations: Registrations,
    memory: Memory,
    length: usize,
    free: Mutex<FreeRanges>,
}

impl Arena {
    /// An arena over the memory behind descriptors that another process gave: zeros, of fixed size. What the first one has is
    /// followed by what the second one has, and so on; all but the last are whole pages of the next. All of them are sealed
    /// against further writers (`F_SEAL_FUTURE_WRITE`): nobody can map them so as to write after that, or take pages away.
    ///
    /// # Errors
    /// As [`Region::attach`], [`RegionError::Length`] also for no descriptor at all.
    ///
    /// # Safety
    /// Whoever else has the memory mapped writes only to bytes on which this process holds a transport's lease to receive
    /// ([`crate::IoVec::incoming`]) all the while. All else of it is this process's to show as slices.
    pub unsafe fn trusted(fds: Vec<OwnedFd>) -> Result<Arena, RegionError> {
        let (memory, length) = Memory::join(&fds)?;
        let registrations = Registrations::new(*memory.fork_guard());
        let free = Mutex::new(FreeRanges::new(length));
        Ok(Arena(Arc::new(Inner { registrations, memory, length, free })))
    }

    /// A region of zeros. Where it lies is [`Arena::place`]'s to tell.
    ///
    /// # Errors
    /// [`RegionError::Length`] as for [`Region::heap`], [`RegionError::System`] with ENOMEM if no free range is as long,
    /// [`RegionError::Forked`].
    pub fn allocate(&self, bytes: usize) -> Result<Region, RegionError> {
        // Before the lock, which a thread may have held when this process was forked.
        self.0.memory.fork_guard().check()?;
        check_length(bytes)?;
        let taken = self.0.free.lock().take(bytes);
        let taken = taken.ok_or(RegionError::System { bytes, errno: Errno::ENOMEM })?;
        let piece = ArenaPiece { arena: self.clone(), start: taken.start, bytes };
        // SAFETY: the range lies within the arena, and is this piece's alone: nobody has a lease on it yet. Bytes beyond
        // `used` are zeros as the system gave them.
        unsafe { piece.base().write_bytes(0, taken.used) };
        Region::of_arena(Memory::piece(piece), bytes)
    }

    /// Bytes in the arena, used or free.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Bytes that are in no region, though not in one piece perhaps; 0 in a forked child.
    pub fn free_bytes(&self) -> usize {
        if self.fork_guard().in_owner_process() { self.0.free.lock().bytes() } else { 0 }
    }

    /// Whether no region of it is left; false in a forked child.
    pub fn is_unused(&self) -> bool {
        self.free_bytes() == self.len()
    }

    /// The process whose arena it is.
    pub fn fork_guard(&self) -> &ForkGuard {
        self.0.memory.fork_guard()
    }

    /// Where the fragment's first byte lies, counted from the arena's; `None` for memory that is not of this arena.
    pub fn place(&self, fragment: &Fragment) -> Option<u64> {
        let piece = fragment.region().arena_piece().filter(|piece| piece.arena.same(self))?;
        Some((piece.start + fragment.offset()) as u64)
    }

    /// Whether both are one arena.
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

/// The memory of one region of an arena. Its drop is [`ArenaPiece::give_back`], and up to the memory that it is.
pub(crate) struct ArenaPiece {
    arena: Arena,
    start: usize,
    bytes: usize,
}

impl ArenaPiece {
    pub(crate) fn base(&self) -> *mut u8 {
        self.arena.0.memory.base().wrapping_add(self.start)
    }

    /// What LNDs keep with the arena.
    pub(crate) fn registrations(&self) -> &Registrations {
        &self.arena.0.registrations
    }

    /// The memory of the arena: the number of its first byte, and how many there are.
    pub(crate) fn extent(&self) -> (u64, usize) {
        (self.arena.0.memory.base().expose_provenance() as u64, self.arena.len())
    }

    /// In the process whose arena it is, and once.
    pub(crate) fn give_back(&self) {
        self.arena.0.free.lock().give_back(self.start, self.bytes);
    }
}
