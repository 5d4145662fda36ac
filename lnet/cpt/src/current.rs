//! The partition for which a thread acts.
//!
//! By default it is that of the thread's CPU. A thread that polls the shard of partition k does the
//! work of partition k on any CPU, and sets that with [`with_partition`]; a thread that drives one
//! shard permanently sets it once with [`set_current`].

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    // Plain cells without destructors, so that reading one is a single load.
    static CURRENT_CPT: Cell<Option<usize>> = const { Cell::new(None) };
    static NUMBER: Cell<usize> = const { Cell::new(UNNUMBERED) };
}

const UNNUMBERED: usize = usize::MAX;

/// Makes the calling thread act for this partition of every table that has it; with `None` for that
/// of its CPU again. Returns the previous setting.
pub fn set_current(cpt: Option<usize>) -> Option<usize> {
    CURRENT_CPT.replace(cpt)
}

/// Runs `work` for a partition, and restores the previous setting afterwards, also on a panic.
///
/// ```
/// use lnet_cpt::{CptTable, with_partition};
///
/// let table = CptTable::virtual_parts(4)?;
/// assert_eq!(with_partition(3, || table.current(true)), Some(3));
/// # Ok::<(), lnet_cpt::CptError>(())
/// ```
pub fn with_partition<R>(cpt: usize, work: impl FnOnce() -> R) -> R {
    struct Restore(Option<usize>);
    impl Drop for Restore {
        fn drop(&mut self) {
            set_current(self.0);
        }
    }
    let _restore = Restore(set_current(Some(cpt)));
    work()
}

/// Returns the calling thread's setting.
#[inline]
pub(crate) fn current_override() -> Option<usize> {
    CURRENT_CPT.get()
}

/// Returns a number of the calling thread: 0 for the first thread that calls this, 1 for the next.
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if NUMBER.get() == UNNUMBERED {
        // The order is relaxed, because the numbers only need to differ.
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}
