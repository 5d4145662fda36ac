//! For which partition a thread acts.
//!
//! Normally the CPU it runs on decides. Whoever polls the shard of partition k does the work of partition k, wherever
//! the scheduler has put it, and says so with [`with_partition`]; a thread that drives one shard for good says it once
//! with [`set_current`].

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    // Plain cells without destructors: reading one is a single load.
    static ACTS_FOR: Cell<Option<usize>> = const { Cell::new(None) };
    static NUMBER: Cell<usize> = const { Cell::new(UNNUMBERED) };
}

const UNNUMBERED: usize = usize::MAX;

/// From now on the calling thread acts for this partition of every table that has it; `None`: for that of its CPU
/// again. Returns what was set before.
pub fn set_current(cpt: Option<usize>) -> Option<usize> {
    ACTS_FOR.replace(cpt)
}

/// Runs `work` for a partition, and restores afterwards, also on a panic, what was set before.
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

/// What the calling thread has said.
#[inline]
pub(crate) fn current_override() -> Option<usize> {
    ACTS_FOR.get()
}

/// A number of the calling thread: 0 for the first that asks, 1 for the next.
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if NUMBER.get() == UNNUMBERED {
        // Relaxed: only that the numbers differ matters.
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}
