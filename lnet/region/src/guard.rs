//! Repair of faults in memory whose pages other processes can remove.
//!
//! A process with the descriptor of shared memory can punch holes into it until it is
//! [sealed](crate::seal). Ordinary memory gets new pages at the holes. Huge pages may have run out;
//! then access to the hole is a bus error, which ends the process. This module lets a process
//! register ranges that may fault: a fault in one of them replaces the page by zeros, permanently,
//! marks the range as faulted, and continues. A fault anywhere else has its previous effect.
//!
//! The system's accesses raise no signal: [`crate::send`] and [`crate::receive`] get EFAULT
//! instead; then they access the bytes themselves and try again.
//!
//! ```
//! use lnet_region::{Pages, Region, guard};
//!
//! guard::install()?;
//! let region = Region::memfd(1 << 20, Pages::Huge)?;
//! region.share()?;
//! region.watch()?;
//! assert!(!region.has_faulted());
//! # Ok::<(), lnet_region::RegionError>(())
//! ```

mod handler;
mod list;
#[cfg(test)]
mod tests;

pub use self::handler::install;
pub(crate) use self::handler::touch;
use self::list::RangeNode;
use crate::{ForkGuard, RegionError};

/// A range of memory in which faults are healed, until this is dropped.
#[derive(Debug)]
pub struct Watched {
    node: &'static RangeNode,
    fork_guard: ForkGuard,
}

/// Heals faults in `length` bytes from `start` on, which lie in pages of `page_bytes`. Without
/// [`install`] the range is only registered.
///
/// # Errors
/// [`RegionError::System`] with ENOMEM.
///
/// # Panics
/// If `page_bytes` is not a power of two, or `start` not a multiple of it.
///
/// # Safety
/// Until the result is dropped, all pages that hold the range are mapped, readable and writable,
/// and have no other use; they are accessed only by atomics, by this crate's leases on shared
/// memory, or through the system; and no code relies on their content: at any moment it may become
/// zeros, and cease to be the memory that others have mapped.
pub unsafe fn watch(start: *const u8, length: usize, page_bytes: usize) -> Result<Watched, RegionError> {
    assert!(
        page_bytes.is_power_of_two() && start.addr().is_multiple_of(page_bytes),
        "{start:?}: {page_bytes}"
    );
    let range = start.addr()..start.addr() + length.next_multiple_of(page_bytes);
    Ok(Watched { node: list::enter(range, page_bytes)?, fork_guard: ForkGuard::here() })
}

/// Returns the number of faults healed since the process started, in all ranges together. While it
/// is unchanged, no further range has faulted: a caller with many ranges checks each only after a
/// change.
#[must_use]
pub fn faults() -> usize {
    list::faults()
}

impl Watched {
    /// Returns whether a fault in this range has been healed.
    pub fn has_faulted(&self) -> bool {
        self.node.has_faulted()
    }
}

impl Drop for Watched {
    /// Removes the range, except in a forked child: a thread of the parent may have been changing
    /// the list.
    fn drop(&mut self) {
        if self.fork_guard.in_owner_process() {
            list::leave(self.node);
        }
    }
}
