//! [`Region`]: shared ownership of memory, with its leases and its registrations with LNDs.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use nlx_fallible::{TryArc, WeakArc};
use nlx_sync::plain::Mutex;
use static_assertions::assert_impl_all;

use crate::arena::ArenaPiece;
use crate::guard::Watched;
use crate::lease::{LeaseAccess, Leases};
use crate::memory::OwnedMemory;
use crate::{ForkGuard, RegionError};

/// Number of LNDs that can each keep a registration of a region: TCP, verbs, a simulated network
/// and one spare.
pub const LND_SLOTS: usize = 4;

/// The page size of memory that can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// The system's ordinary pages.
    #[default]
    Normal,
    /// Huge pages of 2 MiB if there are enough, otherwise ordinary ones. Until the memory is
    /// [sealed](crate::seal), a process with the descriptor can punch holes into it; if the system
    /// then has no huge page left, access to a hole is a bus error. A process that gives the
    /// descriptor to untrusted processes must [watch](Region::watch) the memory.
    Huge,
}

/// The index of an LND among those that keep a [`Registration`]; the node numbers its LNDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LndSlot(u8);

impl LndSlot {
    /// Returns slot number `index`, if it is below [`LND_SLOTS`].
    pub const fn new(index: u8) -> Option<LndSlot> {
        if (index as usize) < LND_SLOTS { Some(LndSlot(index)) } else { None }
    }
}

/// Data of an LND for a region, for instance its RDMA keys; dropped with the region.
pub type Registration = Box<dyn Any + Send + Sync>;

/// Reference-counted memory with a stable address. Clones share the memory; it is freed with the
/// last of them.
///
/// A region has no accessors for its bytes; leases on an [`crate::IoVec`] give access. Its memory
/// is *private* to this process, or *shared* with other processes, which may write it at any time;
/// [`Region::share`] makes it shared permanently. Bytes of private memory can be seen as slices.
/// Those of shared memory can only be copied, or passed to the system.
///
/// ```
/// use lnet_region::{IoVec, Pages, Region};
///
/// let region = Region::memfd(4096, Pages::Normal)?;
/// let buffer = IoVec::whole(region.clone());
/// assert!(buffer.read(0..5)?.as_slice().is_some());
/// let descriptor = region.share()?.try_clone_to_owned().expect("there are descriptors left");
/// assert!(buffer.read(0..5)?.as_slice().is_none());
///
/// // In another process:
/// let theirs = IoVec::whole(Region::attach(descriptor)?);
/// theirs.write(0..5)?.copy_from(0, b"hello");
/// assert_eq!(buffer.read(0..5)?.to_vec(), b"hello");
/// # Ok::<(), lnet_region::RegionError>(())
/// ```
#[derive(Clone)]
pub struct Region(TryArc<RegionInner>);

/// A reference that does not keep the region alive, and shows whether the region still exists.
#[derive(Clone)]
pub struct WeakRegion {
    inner: WeakArc<RegionInner>,
    /// The mark of memory of a file, which exists until the memory is unmapped and closed.
    mark: Option<WeakArc<()>>,
}

struct RegionInner {
    /// The registration of the range with the guard. Dropped before the memory.
    watched: OnceLock<Option<Watched>>,
    /// The registrations with LNDs. Dropped before the memory, so that devices release it first.
    registrations: Registrations,
    memory: OwnedMemory,
    length: usize,
    /// True if other processes may write the memory. Set under the lock of the leases and only
    /// while there is none, so that it does not change during a lease.
    shared: AtomicBool,
    leases: Mutex<Leases>,
}

/// The registrations of all LNDs for a region, or for an arena.
pub(crate) struct Registrations {
    slots: [OnceLock<Registration>; LND_SLOTS],
    fork_guard: ForkGuard,
}

impl Registrations {
    pub(crate) fn new(fork_guard: ForkGuard) -> Registrations {
        Registrations { slots: Default::default(), fork_guard }
    }

    fn get(
        &self,
        slot: LndSlot,
        register: impl FnOnce() -> Option<Registration>,
    ) -> Option<&(dyn Any + Send + Sync)> {
        let cell = &self.slots[usize::from(slot.0)];
        if cell.get().is_none()
            && let Some(made) = register()
        {
            // If two threads have registered at the same time, the second registration is dropped.
            let _ = cell.set(made);
        }
        cell.get().map(|registration| &**registration)
    }
}

impl Drop for Registrations {
    /// Drops the registrations; in a forked child leaks them, because a registration with a device
    /// belongs to the parent.
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            self.slots.iter_mut().filter_map(OnceLock::take).for_each(std::mem::forget);
        }
    }
}

impl Region {
    /// Allocates zeroed memory of `bytes` bytes, page aligned. It is always private. Above 1 MiB,
    /// pages are allocated at the first access, and forked children do not inherit the mapping.
    ///
    /// # Errors
    /// [`RegionError::Length`] for 0 or more than [`MAX_REGION_BYTES`](crate::MAX_REGION_BYTES),
    /// [`RegionError::System`] with ENOMEM when there is no memory.
    pub fn heap(bytes: usize) -> Result<Region, RegionError> {
        Region::over(OwnedMemory::private(bytes)?, bytes, false)
    }

    /// Allocates private memory like [`Region::heap`], but in separate pages for any size, which
    /// forked children do not inherit. So a write of this process after a fork cannot separate the
    /// memory from the pages that a device has pinned.
    ///
    /// # Errors
    /// The errors of [`Region::heap`].
    pub fn pages(bytes: usize) -> Result<Region, RegionError> {
        Region::over(OwnedMemory::separate_pages(bytes)?, bytes, false)
    }

    /// Creates a region over a program's vector, without a copy. Its memory is always private.
    ///
    /// ```
    /// use lnet_region::{IoVec, Region};
    ///
    /// let region = Region::from_vec(b"hello".to_vec())?;
    /// IoVec::whole(region.clone()).write(0..1)?.fill(b'j');
    /// assert_eq!(region.into_vec().expect("the region has no other user"), b"jello");
    /// # Ok::<(), lnet_region::RegionError>(())
    /// ```
    ///
    /// # Errors
    /// [`RegionError::Length`] for no bytes, or more than
    /// [`MAX_REGION_BYTES`](crate::MAX_REGION_BYTES).
    pub fn from_vec(bytes: Vec<u8>) -> Result<Region, RegionError> {
        let length = bytes.len();
        Region::over(OwnedMemory::vector(bytes)?, length, false)
    }

    /// Returns the vector of [`Region::from_vec`].
    ///
    /// # Errors
    /// The region, if it has another source, or if it has other users: a buffer, a message, an
    /// operation in flight.
    pub fn into_vec(self) -> Result<Vec<u8>, Region> {
        let inner = TryArc::try_unwrap(self.0).map_err(Region)?;
        let RegionInner { watched, mut registrations, memory, length, shared, leases } = inner;
        // The registrations are dropped first, so that devices release the memory before the
        // program gets it back.
        if memory.is_vector() {
            registrations = Registrations::new(*memory.fork_guard());
        }
        memory.into_vector().map_err(|memory| {
            Region(TryArc::new(RegionInner { watched, registrations, memory, length, shared, leases }))
        })
    }

    /// Allocates zeroed memory of `bytes` bytes that can be shared with other processes; private at
    /// first. Its size is sealed, so it cannot be shortened. Forked children do not inherit it.
    ///
    /// Pages are allocated at the first access. A process that attaches memory on huge pages sees
    /// whole pages of 2 MiB. A process that may trace this one could open even private memory, as
    /// it could write to any other; this crate does not protect against that.
    ///
    /// # Errors
    /// The errors of [`Region::heap`]; [`RegionError::System`] also if there are no descriptors left.
    pub fn memfd(bytes: usize, pages: Pages) -> Result<Region, RegionError> {
        let memory = match pages {
            // If huge pages fail for any reason, ordinary ones are tried.
            Pages::Huge => OwnedMemory::file(bytes, true).or_else(|_| OwnedMemory::file(bytes, false)),
            Pages::Normal => OwnedMemory::file(bytes, false),
        };
        Region::over(memory?, bytes, false)
    }

    /// Maps the memory that another process shares by this descriptor; the region is shared from
    /// the start. If a process attaches the same memory twice, the leases of the two regions are
    /// independent.
    ///
    /// # Errors
    /// [`RegionError::NotRegion`] unless the descriptor is a memfd whose size is sealed,
    /// [`RegionError::Length`] for no bytes or too many, [`RegionError::System`] if it cannot be
    /// mapped.
    pub fn attach(fd: OwnedFd) -> Result<Region, RegionError> {
        let (memory, length) = OwnedMemory::attach(fd)?;
        Region::over(memory, length, true)
    }

    pub(crate) fn of_arena(memory: OwnedMemory, length: usize) -> Result<Region, RegionError> {
        Region::over(memory, length, false)
    }

    pub(crate) fn over(memory: OwnedMemory, length: usize, shared: bool) -> Result<Region, RegionError> {
        Ok(Region(TryArc::try_new(RegionInner {
            watched: OnceLock::new(),
            registrations: Registrations::new(*memory.fork_guard()),
            memory,
            length,
            shared: AtomicBool::new(shared),
            leases: Mutex::new(Leases::new()),
        })?))
    }

    /// Returns the descriptor by which another process [attaches](Region::attach) the memory. The
    /// region is shared from now on, permanently.
    ///
    /// # Errors
    /// [`RegionError::NotShareable`] for memory on the heap or of an [arena](crate::Arena);
    /// [`RegionError::InUse`] while there are leases, whose bytes may be visible as slices;
    /// [`RegionError::Forked`].
    pub fn share(&self) -> Result<BorrowedFd<'_>, RegionError> {
        self.fork_guard().check()?;
        let fd = self.0.memory.fd().ok_or(RegionError::NotShareable { bytes: self.len() })?;
        let leases = self.0.leases.lock();
        if !self.is_shared() && !leases.is_empty() {
            return Err(RegionError::InUse { start: 0, end: self.len() });
        }
        self.0.shared.store(true, Relaxed);
        Ok(fd)
    }

    /// Returns whether other processes may write the memory.
    pub fn is_shared(&self) -> bool {
        // A relaxed load is enough: if the flag was set, every holder of a lease has taken the lock
        // since.
        self.0.shared.load(Relaxed)
    }

    /// Puts the memory under the [guard](crate::guard), which heals faults that processes with its
    /// descriptor can cause. The memory must be shared already: for private memory, and in a forked
    /// child, this does nothing.
    ///
    /// # Errors
    /// [`RegionError::System`] with ENOMEM; faults are not healed then.
    pub fn watch(&self) -> Result<(), RegionError> {
        if self.fork_guard().in_owner_process() && self.is_shared() && self.0.watched.get().is_none() {
            // SAFETY: it is shared permanently, so that there is no slice. The memory outlives the
            // fields beside it.
            let watched = unsafe { self.0.memory.watch() }?;
            // If another thread stored its watch first, there are two for a moment, and this one is
            // dropped.
            let _ = self.0.watched.set(watched);
        }
        Ok(())
    }

    /// Returns whether a fault has been healed: then some of the bytes have become zeros, and other
    /// processes no longer see the same memory.
    pub fn has_faulted(&self) -> bool {
        self.0.watched.get().and_then(Option::as_ref).is_some_and(Watched::has_faulted)
    }

    /// Returns a reference that shows whether the region still exists.
    pub fn weak(&self) -> WeakRegion {
        WeakRegion { inner: TryArc::downgrade(&self.0), mark: self.0.memory.mark() }
    }

    /// Returns the number of bytes of the region; never 0.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Returns the fork guard of the process that owns the memory.
    pub fn fork_guard(&self) -> &ForkGuard {
        self.0.memory.fork_guard()
    }

    /// Returns whether the region has no leases at this moment; false in a forked child.
    pub fn is_idle(&self) -> bool {
        self.fork_guard().in_owner_process() && self.0.leases.lock().is_empty()
    }

    /// Returns whether both handles refer to the same memory.
    pub fn same(&self, other: &Region) -> bool {
        TryArc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the registration of this LND slot; created by `register` at the first call (S-401:
    /// once per region, constant time afterwards). The regions of an [arena](crate::Arena) share
    /// one: it covers all of [`Region::extent`], and is dropped with the arena. `None` if
    /// `register` returns none, and in a forked child.
    pub fn registration(
        &self,
        slot: LndSlot,
        register: impl FnOnce(&Region) -> Option<Registration>,
    ) -> Option<&(dyn Any + Send + Sync)> {
        if !self.fork_guard().in_owner_process() {
            return None;
        }
        let registrations = self.arena_piece().map_or(&self.0.registrations, ArenaPiece::registrations);
        registrations.get(slot, || register(self))
    }

    /// Returns the memory that a [registration](Region::registration) covers, as a device addresses
    /// it: the number of its first byte and its length. It is that of the region, or of the whole
    /// arena to which the region belongs.
    pub fn extent(&self) -> (u64, usize) {
        match self.arena_piece() {
            Some(piece) => piece.extent(),
            None => (self.address_of(0), self.len()),
        }
    }

    /// Returns the number by which a device addresses the byte at this offset: its address in this
    /// process, which does not change. For devices only: programs access bytes by leases.
    ///
    /// # Panics
    /// Beyond the end of the region.
    pub fn address_of(&self, offset: usize) -> u64 {
        assert!(offset < self.len(), "byte {offset} of a region of {}", self.len());
        self.address(offset).expose_provenance() as u64
    }

    /// Returns the start of the region's memory in this process, and its length. The start is a
    /// page boundary unless the memory is a vector's or part of an arena. For system calls about
    /// the mapping itself, which access no byte; programs access bytes by leases.
    pub fn mapping(&self) -> (*const u8, usize) {
        (self.0.memory.base(), self.len())
    }

    pub(crate) fn take(&self, range: Range<usize>, access: LeaseAccess) -> Result<(), RegionError> {
        // The check precedes the lock, which a thread may have held when this process was forked.
        self.fork_guard().check()?;
        self.check_bounds(&range)?;
        self.0.leases.lock().take(range, access)
    }

    /// Checks that a lease would be granted at this moment; does not take it.
    pub(crate) fn check(&self, range: Range<usize>, access: LeaseAccess) -> Result<(), RegionError> {
        self.fork_guard().check()?;
        self.check_bounds(&range)?;
        self.0.leases.lock().check(range, access)
    }

    fn check_bounds(&self, range: &Range<usize>) -> Result<(), RegionError> {
        let length = self.0.length;
        if range.start > range.end || range.end > length {
            return Err(RegionError::OutOfBounds { start: range.start, end: range.end, length });
        }
        Ok(())
    }

    pub(crate) fn give_back(&self, range: Range<usize>, access: LeaseAccess) {
        if self.fork_guard().in_owner_process() {
            self.0.leases.lock().give_back(range, access);
        }
    }

    /// Splits a lease atomically into one of the bytes below `at` and one of the rest.
    pub(crate) fn split(&self, range: Range<usize>, at: usize, access: LeaseAccess) {
        if self.fork_guard().in_owner_process() {
            self.0.leases.lock().split(range, at, access);
        }
    }

    pub(crate) fn arena_piece(&self) -> Option<&ArenaPiece> {
        self.0.memory.arena_piece()
    }

    pub(crate) fn downgrade(&self, range: Range<usize>, access: LeaseAccess) {
        if self.fork_guard().in_owner_process() {
            self.0.leases.lock().downgrade(range, access);
        }
    }

    /// Returns the address of a byte. It is valid while the region exists.
    pub(crate) fn address(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.0.length);
        self.0.memory.base().wrapping_add(offset)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sharing = if self.is_shared() { ", shared" } else { "" };
        write!(f, "Region({} bytes{sharing})", self.len())
    }
}

impl WeakRegion {
    /// Returns whether the last clone of the region has been dropped: no buffer, message or
    /// operation in flight uses its memory any more.
    pub fn is_released(&self) -> bool {
        self.inner.strong_count() == 0
    }

    /// Returns whether the region is [released](Self::is_released) and its memory freed. Memory of
    /// a file counts as freed when it is unmapped and this process's descriptor of it is closed
    /// ([`crate::closer`]).
    pub fn is_gone(&self) -> bool {
        self.is_released() && self.mark.as_ref().is_none_or(|mark| mark.strong_count() == 0)
    }
}

impl fmt::Debug for WeakRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WeakRegion({})", if self.is_gone() { "gone" } else { "there" })
    }
}

assert_impl_all!(Region: Send, Sync);
assert_impl_all!(WeakRegion: Send, Sync);

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::MAX_REGION_BYTES;

    #[test]
    fn lengths_beyond_the_limits_are_refused() {
        for bytes in [0, MAX_REGION_BYTES + 1, usize::MAX] {
            for made in
                [Region::heap(bytes), Region::memfd(bytes, Pages::Normal), Region::memfd(bytes, Pages::Huge)]
            {
                let error = made.expect_err("no such region");
                assert_eq!(error, RegionError::Length { bytes, max: MAX_REGION_BYTES });
                assert_eq!(error.errno(), Errno::EINVAL);
            }
        }
    }

    // Covers: S-401
    #[test]
    fn a_registration_is_made_once_per_slot() {
        let region = Region::heap(1).unwrap();
        let slot = LndSlot::new(1).unwrap();
        let made = |value: u32| move |_: &Region| Some(Box::new(value) as Registration);
        let first = region.registration(slot, made(7)).unwrap().downcast_ref::<u32>();
        let second = region.clone();
        assert_eq!(first, Some(&7));
        assert_eq!(second.registration(slot, made(8)).unwrap().downcast_ref::<u32>(), Some(&7));
        assert!(LndSlot::new(LND_SLOTS as u8).is_none());
    }
}
