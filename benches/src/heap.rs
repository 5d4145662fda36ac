//! The program's heap, counted while a row measures it.

// A global allocator needs unsafe code.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};

#[global_allocator]
static HEAP: Counted = Counted;

/// Set while a row counts. Otherwise each heap call costs an additional load and branch, which is
/// too little to measure.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Bytes allocated less bytes freed while watched.
static BYTES: AtomicIsize = AtomicIsize::new(0);

/// Number of calls that allocated, or changed a size, while watched.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Counts the heap calls of all threads while it exists. Only one at a time: rows are measured one
/// after the other.
#[derive(Debug)]
pub(crate) struct Watch(());

impl Watch {
    /// Starts counting at 0.
    pub(crate) fn begin() -> Watch {
        BYTES.store(0, Ordering::Relaxed);
        ALLOCATIONS.store(0, Ordering::Relaxed);
        WATCHED.store(true, Ordering::Relaxed);
        Watch(())
    }

    /// Returns the bytes allocated since the start and still in use, as requested (without the
    /// heap's own overhead).
    pub(crate) fn bytes(&self) -> isize {
        BYTES.load(Ordering::Relaxed)
    }

    /// Returns the number of calls since the start that allocated, or changed a size.
    pub(crate) fn allocations(&self) -> u64 {
        ALLOCATIONS.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED.store(false, Ordering::Relaxed);
    }
}

/// The system's heap.
struct Counted;

#[inline]
fn count(bytes: isize, allocations: u64) {
    if WATCHED.load(Ordering::Relaxed) {
        BYTES.fetch_add(bytes, Ordering::Relaxed);
        ALLOCATIONS.fetch_add(allocations, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's heap unchanged; counting touches no memory of the
// caller's, and does not allocate.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        // SAFETY: the caller keeps the contract of `alloc`, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize, 1);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is `System`'s.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize, 1);
        // SAFETY: `at` came from `System` with this layout; the caller keeps the rest of the
        // contract.
        unsafe { System.realloc(at, layout, size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize), 0);
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests may use the heap at the same time, so the count may be higher than expected, but
    /// not lower.
    #[test]
    fn what_is_allocated_is_counted() {
        let watch = Watch::begin();
        let before = watch.allocations();
        for number in 0..100 {
            drop(std::hint::black_box(Box::new(number)));
        }
        assert!(watch.allocations() - before >= 100);
    }
}
