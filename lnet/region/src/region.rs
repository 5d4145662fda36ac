use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use parking_lot::Mutex;

use crate::RegionError;
use crate::lease::{Access, Leases};

/// The largest region: far above any buffer pool, far below what would overflow an offset computation.
pub const MAX_REGION_BYTES: usize = 1 << 40;

/// How many LNDs can each keep a registration of a region: TCP, verbs, a simulated network and one to spare.
pub const LND_SLOTS: usize = 4;

/// Heap regions start at page boundaries, so that a buffer of 256 pages is 256 whole pages.
const PAGE_BYTES: usize = 4096;

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
/// A region has no accessors for its bytes: they are reached through leases on an [`crate::IoVec`].
#[derive(Clone)]
pub struct Region(Arc<Inner>);

struct Inner {
    base: NonNull<u8>,
    /// What `base` was allocated with; its size is the region's length.
    layout: Layout,
    leases: Mutex<Leases>,
    registrations: [OnceLock<Registration>; LND_SLOTS],
}

// SAFETY: `base` points to memory that the Inner owns and frees once, in its Drop. Bytes are read and written through
// leases only, whose table (behind a mutex) keeps writers apart from everybody else; so sharing or moving an Inner
// between threads cannot make two of them race on a byte.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Region {
    /// Zeroed memory of `bytes` bytes on the heap, page aligned.
    ///
    /// # Errors
    /// [`RegionError::Length`] for 0 or more than [`MAX_REGION_BYTES`], [`RegionError::System`] when there is no memory.
    pub fn heap(bytes: usize) -> Result<Region, RegionError> {
        check_length(bytes)?;
        let layout = Layout::from_size_align(bytes, PAGE_BYTES)
            .map_err(|_| RegionError::Length { bytes, max: MAX_REGION_BYTES })?;
        // SAFETY: the layout has a non-zero size, as check_length made sure.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).ok_or(RegionError::System { bytes, errno: Errno::ENOMEM })?;
        let leases = Mutex::new(Leases::default());
        Ok(Region(Arc::new(Inner { base, layout, leases, registrations: Default::default() })))
    }

    /// Bytes in the region; never 0.
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.layout.size()
    }

    /// Whether nobody reads or writes any byte of the region at this moment.
    pub fn is_idle(&self) -> bool {
        self.0.leases.lock().is_empty()
    }

    /// Whether both are the same memory.
    pub fn same(&self, other: &Region) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What the LND of this slot keeps with the region; made by `register` the first time (S-401: once per region,
    /// constant time afterwards). `None` if `register` gives none.
    pub fn registration(
        &self,
        slot: LndSlot,
        register: impl FnOnce(&Region) -> Option<Registration>,
    ) -> Option<&(dyn Any + Send + Sync)> {
        let cell = &self.0.registrations[usize::from(slot.0)];
        if cell.get().is_none()
            && let Some(made) = register(self)
        {
            // Two threads may both have registered: the second registration is dropped again.
            let _ = cell.set(made);
        }
        cell.get().map(|registration| &**registration)
    }

    pub(crate) fn take(&self, range: Range<usize>, access: Access) -> Result<(), RegionError> {
        if range.start > range.end || range.end > self.0.layout.size() {
            return Err(RegionError::OutOfBounds {
                start: range.start,
                end: range.end,
                length: self.0.layout.size(),
            });
        }
        self.0.leases.lock().take(range, access)
    }

    pub(crate) fn give_back(&self, range: Range<usize>, access: Access) {
        self.0.leases.lock().give_back(range, access);
    }

    /// The bytes of a range.
    ///
    /// # Safety
    /// The range lies within the region, and the caller holds a lease on it for as long as the slice lives.
    pub(crate) unsafe fn bytes(&self, range: Range<usize>) -> &[u8] {
        debug_assert!(range.start <= range.end && range.end <= self.0.layout.size());
        // SAFETY: the range lies within the allocation, which is initialised (it began zeroed) and lives while `self`
        // does; the caller's lease keeps writers away.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr().add(range.start), range.len()) }
    }

    /// The bytes of a range, to be written.
    ///
    /// # Safety
    /// The range lies within the region, and the caller holds a write lease on it for as long as the slice lives, and
    /// makes no second slice from the same lease meanwhile.
    #[allow(clippy::mut_from_ref, reason = "the lease, not the reference, gives the right to write")]
    pub(crate) unsafe fn bytes_mut(&self, range: Range<usize>) -> &mut [u8] {
        debug_assert!(range.start <= range.end && range.end <= self.0.layout.size());
        // SAFETY: as in `bytes`; the caller's write lease keeps everybody else away.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr().add(range.start), range.len()) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed here only.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len())
    }
}

fn check_length(bytes: usize) -> Result<(), RegionError> {
    if bytes == 0 || bytes > MAX_REGION_BYTES {
        return Err(RegionError::Length { bytes, max: MAX_REGION_BYTES });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_beyond_the_limits_are_refused() {
        for bytes in [0, MAX_REGION_BYTES + 1, usize::MAX] {
            let error = Region::heap(bytes).expect_err("no such region");
            assert_eq!(error, RegionError::Length { bytes, max: MAX_REGION_BYTES });
            assert_eq!(error.errno(), Errno::EINVAL);
        }
    }

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
