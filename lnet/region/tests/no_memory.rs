//! An allocator that says no: an error, never an abort.

use std::alloc::{GlobalAlloc, Layout, System};

use lnet_region::{MAX_REGION_BYTES, Region, RegionError};
use nix::errno::Errno;

/// Refuses what is longer than this, as a system without overcommit does.
const MOST_BYTES: usize = 1 << 20;

struct Stingy;

// SAFETY: it is the system's allocator, except that some allocations fail, as any may.
unsafe impl GlobalAlloc for Stingy {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST_BYTES {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, base: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(base, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Stingy = Stingy;

#[test]
fn a_region_that_does_not_fit_is_an_error() {
    for bytes in [MOST_BYTES + 1, 1 << 36, MAX_REGION_BYTES] {
        let error = Region::heap(bytes).unwrap_err();
        assert_eq!(error, RegionError::System { bytes, errno: Errno::ENOMEM });
        assert_eq!(error.errno(), Errno::ENOMEM);
        assert!(error.to_string().contains(&bytes.to_string()));
    }
    assert_eq!(Region::heap(MOST_BYTES).unwrap().len(), MOST_BYTES);
}
