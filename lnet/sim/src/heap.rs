//! A heap that counts its bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

/// The number of bytes allocated and not freed.
static LIVE: AtomicIsize = AtomicIsize::new(0);

/// The system's heap, with a counter.
pub(crate) struct CountingHeap;

/// Returns the number of bytes allocated now.
pub(crate) fn live_bytes() -> isize {
    LIVE.load(Ordering::Relaxed)
}

// SAFETY: every call is passed on to the system's heap as it is; counting touches no memory of the
// caller's.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc::alloc`'s contract, which is `System`'s.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: `at` came from `System` by way of `alloc`, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}
