//! Allocators that observe the system's heap.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's heap with callbacks: before an allocation, which may refuse it, and at a
/// deallocation. A test program makes it its `#[global_allocator]`.
#[derive(Debug)]
pub struct WatchedHeap {
    /// Returns whether this allocation may succeed. Must not allocate.
    pub gives: fn(Layout) -> bool,
    /// Called with each deallocation. Must not allocate.
    pub takes: fn(Layout),
}

// SAFETY: every call goes to the system's allocator, or is refused, which an allocator may do at
// any time.
#[allow(unsafe_code, reason = "an allocator cannot be written without")]
unsafe impl GlobalAlloc for WatchedHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !(self.gives)(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !(self.gives)(layout) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        (self.takes)(layout);
        // SAFETY: as above; `pointer` came from one of these calls.
        unsafe { System.dealloc(pointer, layout) }
    }
}

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// A heap that counts the allocations of each thread.
pub const COUNTING: WatchedHeap = WatchedHeap {
    gives: |layout| {
        count(1, layout.size() as isize);
        true
    },
    takes: |layout| count(0, -(layout.size() as isize)),
};

/// Adds to the thread's counters.
fn count(allocations: usize, bytes: isize) {
    // A thread that exits frees memory after its counters are gone.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + allocations));
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

/// Returns the bytes that this thread has allocated, less those that it has freed.
pub fn live_bytes() -> isize {
    LIVE.get()
}

/// Returns whether this program's heap counts.
fn is_counted() -> bool {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1)));
    ALLOCATIONS.get() > before
}

/// Returns the number of this thread's allocations during `work`, including reallocations.
///
/// # Panics
/// If the program's allocator does not count.
pub fn allocations<T>(work: impl FnOnce() -> T) -> (T, usize) {
    assert!(is_counted(), "the program has another heap");
    let before = ALLOCATIONS.get();
    let value = work();
    (value, ALLOCATIONS.get() - before)
}

/// Returns the result of `work` and the maximum number of bytes that it holds at once, counting
/// only this thread's allocations.
///
/// # Panics
/// If the program's heap does not count.
pub fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    assert!(is_counted(), "the program has another heap");
    let before = LIVE.get();
    PEAK.set(before);
    let value = work();
    (value, (PEAK.get() - before) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static HEAP: WatchedHeap = COUNTING;

    #[test]
    fn what_is_allocated_is_counted() {
        assert_eq!(allocations(|| vec![1, 2, 3]).1, 1);
        assert_eq!(peak_bytes(|| drop(vec![0_u8; 1000])).1, 1000);
        let before = live_bytes();
        let kept = std::hint::black_box(Box::new([0_u8; 100]));
        assert_eq!(live_bytes() - before, 100);
        drop(kept);
    }
}
