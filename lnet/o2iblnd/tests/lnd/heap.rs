//! A heap that counts the bytes that a thread has of it, the simulated network's apart.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lnet_sim::ib::is_inside;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

/// Bytes that this thread has allocated, and nobody freed.
pub(crate) fn live_bytes() -> isize {
    LIVE.get()
}

fn count(bytes: isize) {
    if !is_inside() {
        // A thread that ends frees what it has when its counter is gone.
        let _ = LIVE.try_with(|live| live.set(live.get() + bytes));
    }
}

// SAFETY: everything is left to the system's allocator; counting touches a thread-local number alone.
#[allow(unsafe_code, reason = "as above")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above; `pointer` came from `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
