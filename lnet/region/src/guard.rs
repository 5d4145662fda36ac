//! Faults in memory that somebody else can take away.
//!
//! Who has the descriptor of shared memory can punch holes into it until it is [sealed](crate::seal). Ordinary memory grows new pages where there are holes;
//! huge pages may have run out, and touching the hole is then a bus error, which ends the process. Here a process says
//! which ranges may fault: a fault in one of them puts zeros in the place of the page, for good, notes that the range has
//! faulted, and goes on. A fault anywhere else does what it did before.
//!
//! The system's own accesses raise no signal: [`crate::send`] and [`crate::receive`] fail with EFAULT instead, whereupon
//! they touch what they were given and try again.
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
use self::list::Node;
use crate::{ForkGuard, RegionError};

/// A range of memory in which faults are healed, until this is dropped.
#[derive(Debug)]
pub struct Watched {
    node: &'static Node,
    fork_guard: ForkGuard,
}

/// Heals faults in `length` bytes from `start` on, which lie in pages of `page_bytes`. Without [`install`] it only
/// remembers them.
///
/// # Errors
/// [`RegionError::System`] with ENOMEM.
///
/// # Panics
/// Unless `page_bytes` is a power of two, and `start` a multiple of it.
///
/// # Safety
/// Until the result is dropped, all pages that hold the range are mapped, readable and writable, and belong to nothing else;
/// nobody accesses them but by atomics, by this crate's leases on shared memory, or through the system; and nobody relies
/// on what stands there: at any moment it may become zeros, and cease to be the memory that others have mapped.
pub unsafe fn watch(start: *const u8, length: usize, page_bytes: usize) -> Result<Watched, RegionError> {
    assert!(
        page_bytes.is_power_of_two() && start.addr().is_multiple_of(page_bytes),
        "{start:?}: {page_bytes}"
    );
    let range = start.addr()..start.addr() + length.next_multiple_of(page_bytes);
    Ok(Watched { node: list::enter(range, page_bytes)?, fork_guard: ForkGuard::here() })
}

/// Faults that were healed since the process began, in all ranges together. While it stays the same, no range has faulted
/// that had not before: whoever watches many looks at each only when it has changed.
#[must_use]
pub fn faults() -> usize {
    list::faults()
}

impl Watched {
    /// Whether a fault has been healed here.
    pub fn has_faulted(&self) -> bool {
        self.node.has_faulted()
    }
}

impl Drop for Watched {
    /// A forked child leaves alone what a thread of its parent may have been changing.
    fn drop(&mut self) {
        if self.fork_guard.in_owner_process() {
            list::leave(self.node);
        }
    }
}
