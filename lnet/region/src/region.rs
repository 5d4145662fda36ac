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
use crate::lease::{Access, Leases};
use crate::memory::Memory;
use crate::{ForkGuard, RegionError};

/// How many LNDs can each keep a registration of a region: TCP, verbs, a simulated network and one to spare.
pub const LND_SLOTS: usize = 4;

/// The pages of memory that can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// The system's ordinary ones.
    #[default]
    Normal,
    /// Huge ones of 2 MiB if there are enough, else ordinary ones. Until the memory is [sealed](crate::seal), whoever has the
    /// descriptor can punch holes into it, and where the system then has no huge page left, touching a hole is a bus error: who gives it to processes
    /// that he does not trust [watches](Region::watch) it.
    Huge,
}

/// Which LND a [`Registration`] belongs to; the node numbers its LNDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LndSlot(u8);

impl LndSlot {
    /// Slot number `index`, if it is below [`LND_SLOTS`].
    pub const fn new(index: u8) -> Option<LndSlot> {
        if (index as usize) < LND_SLOTS { Some(LndSlot(index)) } else { None }
    }
}

/// What an LND keeps with a region, for instance its RDMA keys; dropped with the region.
pub type Registration = Box<dyn Any + Send + Sync>;

/// Reference-counted memory with a stable address. Clones share the memory; it is freed with the last of them.
///
/// A region has no accessors for its bytes: they are reached through leases on an [`crate::IoVec`]. Its memory is
/// *private*, this process's alone, or *shared* with others who may write to it whenever they like; it becomes shared by
/// [`Region::share`] and stays so. Bytes of private memory can be seen as slices. Those of shared memory are only
/// copied, or named to the system.
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
/// // What another process does with it:
/// let theirs = IoVec::whole(Region::attach(descriptor)?);
/// theirs.write(0..5)?.copy_from(0, b"hello");
/// assert_eq!(buffer.read(0..5)?.to_vec(), b"hello");
/// # Ok::<(), lnet_region::RegionError>(())
/// ```
#[derive(Clone)]
pub struct Region(TryArc<Inner>);

/// Tells whether a region is still there, without keeping it.
#[derive(Clone)]
pub struct WeakRegion {
    inner: WeakArc<Inner>,
    /// Of memory of a file: there until that is unmapped and closed.
    mark: Option<WeakArc<()>>,
}

struct Inner {
    /// Ends before the memory does.
    watched: OnceLock<Option<Watched>>,
    /// Devices forget the memory before it goes.
    registrations: Registrations,
    memory: Memory,
    length: usize,
    /// Whether other processes may write to the memory. It is set behind the lock of the leases and only while there is
    /// none, so that it stays as it is for whoever holds one.
    shared: AtomicBool,
    leases: Mutex<Leases>,
}

/// What each LND keeps with a region, or with an arena.
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
            // Two threads may both have registered: the second registration is dropped again.
            let _ = cell.set(made);
        }
        cell.get().map(|registration| &**registration)
    }
}

impl Drop for Registrations {
    /// What an LND has registered with a device is the parent's: a forked child lets it be.
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            self.slots.iter_mut().filter_map(OnceLock::take).for_each(std::mem::forget);
        }
    }
}

impl Region {
    /// Zeroed memory of `bytes` bytes, page aligned. It is always private. More than 1 MiB takes no memory before it is
    /// touched, and is not there in forked children.
    ///
    /// # Errors
    /// [`RegionError::Length`] for 0 or more than [`MAX_REGION_BYTES`](crate::MAX_REGION_BYTES),
    /// [`RegionError::System`] with ENOMEM when there is no memory.
    pub fn heap(bytes: usize) -> Result<Region, RegionError> {
        Region::over(Memory::private(bytes)?, bytes, false)
    }

    /// The same in pages of its own, which are not there in forked children, however few bytes it is of: no write of this process
    /// after a fork can then part the memory from what a device has pinned.
    ///
    /// # Errors
    /// As [`Region::heap`].
    pub fn pages(bytes: usize) -> Result<Region, RegionError> {
        Region::over(Memory::apart(bytes)?, bytes, false)
    }

    /// A program's own bytes, wherever they lie. They stay where they are, and are always private.
    ///
    /// ```
    /// use lnet_region::{IoVec, Region};
    ///
    /// let region = Region::from_vec(b"hello".to_vec())?;
    /// IoVec::whole(region.clone()).write(0..1)?.fill(b'j');
    /// assert_eq!(region.into_vec().expect("nobody else has it"), b"jello");
    /// # Ok::<(), lnet_region::RegionError>(())
    /// ```
    ///
    /// # Errors
    /// [`RegionError::Length`] for no bytes, or more than [`MAX_REGION_BYTES`](crate::MAX_REGION_BYTES).
    pub fn from_vec(bytes: Vec<u8>) -> Result<Region, RegionError> {
        let length = bytes.len();
        Region::over(Memory::vector(bytes)?, length, false)
    }

    /// The bytes that it was made of by [`Region::from_vec`].
    ///
    /// # Errors
    /// The region again, if it was not, or if anybody else has it: a buffer, a message, an operation in flight.
    pub fn into_vec(self) -> Result<Vec<u8>, Region> {
        let inner = TryArc::try_unwrap(self.0).map_err(Region)?;
        let Inner { watched, mut registrations, memory, length, shared, leases } = inner;
        // Devices forget it before the program has it again.
        if memory.is_vector() {
            registrations = Registrations::new(*memory.fork_guard());
        }
        memory.into_vector().map_err(|memory| {
            Region(TryArc::new(Inner { watched, registrations, memory, length, shared, leases }))
        })
    }

    /// Zeroed memory of `bytes` bytes that can be shared with other processes; private for now. Its size is sealed, so
    /// that nobody can take pages away. Children that are forked do not get it.
    ///
    /// Pages come when they are first touched. Whoever attaches huge ones sees whole pages of 2 MiB. A process that may trace this one could open even private memory, as it
    /// could write to any other; nothing here holds against that.
    ///
    /// # Errors
    /// As for [`Region::heap`]; [`RegionError::System`] also for want of descriptors.
    pub fn memfd(bytes: usize, pages: Pages) -> Result<Region, RegionError> {
        let memory = match pages {
            // Whatever stands against huge pages, ordinary ones will do, or say why not.
            Pages::Huge => Memory::file(bytes, true).or_else(|_| Memory::file(bytes, false)),
            Pages::Normal => Memory::file(bytes, false),
        };
        Region::over(memory?, bytes, false)
    }

    /// The memory that another process shares by this descriptor; it is shared from the start. Within one process the
    /// leases of two such regions know nothing of each other.
    ///
    /// # Errors
    /// [`RegionError::NotRegion`] unless it is a memfd whose size is sealed, [`RegionError::Length`] for no bytes or too
    /// many, [`RegionError::System`] if it cannot be mapped.
    pub fn attach(fd: OwnedFd) -> Result<Region, RegionError> {
        let (memory, length) = Memory::attach(fd)?;
        Region::over(memory, length, true)
    }

    pub(crate) fn of_arena(memory: Memory, length: usize) -> Result<Region, RegionError> {
        Region::over(memory, length, false)
    }

    pub(crate) fn over(memory: Memory, length: usize, shared: bool) -> Result<Region, RegionError> {
        Ok(Region(TryArc::try_new(Inner {
            watched: OnceLock::new(),
            registrations: Registrations::new(*memory.fork_guard()),
            memory,
            length,
            shared: AtomicBool::new(shared),
            leases: Mutex::new(Leases::new()),
        })?))
    }

    /// The descriptor by which another process [attaches](Region::attach) the memory. From now on the region is shared,
    /// for good.
    ///
    /// # Errors
    /// [`RegionError::NotShareable`] for memory on the heap or of an [arena](crate::Arena); [`RegionError::InUse`] while anybody holds a lease, whose
    /// bytes could then be seen as a slice; [`RegionError::Forked`].
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

    /// Whether other processes may write to the memory.
    pub fn is_shared(&self) -> bool {
        // Who holds a lease has taken the lock since it was set, if it was.
        self.0.shared.load(Relaxed)
    }

    /// From now on a fault in the memory is healed ([`crate::guard`]), which others can cause who have its descriptor. For
    /// memory that is shared already: with private memory, or that of a forked child's parent, it does nothing.
    ///
    /// # Errors
    /// [`RegionError::System`] with ENOMEM; faults are not healed then.
    pub fn watch(&self) -> Result<(), RegionError> {
        if self.fork_guard().in_owner_process() && self.is_shared() && self.0.watched.get().is_none() {
            // SAFETY: it is shared for good, so that there is no slice. The memory outlives what is kept beside it.
            let watched = unsafe { self.0.memory.watch() }?;
            // Another thread may have been first: then there are two for a moment.
            let _ = self.0.watched.set(watched);
        }
        Ok(())
    }

    /// Whether a fault has been healed: then some of the bytes have become zeros, and those that others see are no longer
    /// these.
    pub fn has_faulted(&self) -> bool {
        self.0.watched.get().and_then(Option::as_ref).is_some_and(Watched::has_faulted)
    }

    /// What tells when the region is gone.
    pub fn weak(&self) -> WeakRegion {
        WeakRegion { inner: TryArc::downgrade(&self.0), mark: self.0.memory.mark() }
    }

    /// Bytes in the region; never 0.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// The process whose memory it is.
    pub fn fork_guard(&self) -> &ForkGuard {
        self.0.memory.fork_guard()
    }

    /// Whether nobody reads or writes any byte of the region at this moment; false in a forked child.
    pub fn is_idle(&self) -> bool {
        self.fork_guard().in_owner_process() && self.0.leases.lock().is_empty()
    }

    /// Whether both are the same memory.
    pub fn same(&self, other: &Region) -> bool {
        TryArc::ptr_eq(&self.0, &other.0)
    }

    /// What the LND of this slot keeps with the region; made by `register` the first time (S-401: once per region,
    /// constant time afterwards). The regions of an [arena](crate::Arena) have one for all of them: it is for all of
    /// [`Region::extent`], and goes with the arena. `None` if `register` gives none, and in a forked child.
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

    /// The memory that a [registration](Region::registration) is for, as a device counts: the number of its first byte and
    /// how many there are. It is that of the region, or of all of the arena that it is a piece of.
    pub fn extent(&self) -> (u64, usize) {
        match self.arena_piece() {
            Some(piece) => piece.extent(),
            None => (self.address_of(0), self.len()),
        }
    }

    /// The number by which a device knows the byte at this offset, which stays the same: its address in this process. One for
    /// devices to work with, and good for nothing else: bytes are reached by leases.
    ///
    /// # Panics
    /// Beyond the end of the region.
    pub fn address_of(&self, offset: usize) -> u64 {
        assert!(offset < self.len(), "byte {offset} of a region of {}", self.len());
        self.address(offset).expose_provenance() as u64
    }

    pub(crate) fn take(&self, range: Range<usize>, access: Access) -> Result<(), RegionError> {
        // Before the lock, which a thread may have held when this process was forked.
        self.fork_guard().check()?;
        self.check_bounds(&range)?;
        self.0.leases.lock().take(range, access)
    }

    /// Whether a lease would be given at this moment.
    pub(crate) fn check(&self, range: Range<usize>, access: Access) -> Result<(), RegionError> {
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

    pub(crate) fn give_back(&self, range: Range<usize>, access: Access) {
        if self.fork_guard().in_owner_process() {
            self.0.leases.lock().give_back(range, access);
        }
    }

    /// One lease becomes two at once: that of the bytes below `at`, and that of the rest.
    pub(crate) fn split(&self, range: Range<usize>, at: usize, access: Access) {
        if self.fork_guard().in_owner_process() {
            self.0.leases.lock().split(range, at, access);
        }
    }

    pub(crate) fn arena_piece(&self) -> Option<&ArenaPiece> {
        self.0.memory.arena_piece()
    }

    pub(crate) fn downgrade(&self, range: Range<usize>, access: Access) {
        if self.fork_guard().in_owner_process() {
            self.0.leases.lock().downgrade(range, access);
        }
    }

    /// The address of a byte. The memory lives as long as the region does.
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
    /// Whether the last clone of the region has been dropped: no buffer, message or operation in flight has its memory
    /// any more.
    pub fn is_released(&self) -> bool {
        self.inner.strong_count() == 0
    }

    /// Whether it is [released](Self::is_released), and its memory gone: that of a file is unmapped by then, and this process's
    /// descriptor of it is closed ([`crate::closer`]).
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
