//! An allocator and a system that refuse memory cause an error, never an abort.

use lnet_region::{MAX_REGION_BYTES, Region, RegionError};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nlx_testkit::heap::WatchedHeap;

/// The length of the longest allocation: the allocator refuses longer ones, as a system without
/// overcommit does.
const MOST_BYTES: usize = 1 << 18;

/// The limit of the address space.
const SPACE_BYTES: u64 = 1 << 34;

#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap { gives: |layout| layout.size() <= MOST_BYTES, takes: |_| {} };

#[test]
fn a_region_that_does_not_fit_is_an_error() {
    for bytes in [MOST_BYTES + 1, 1 << 20] {
        let error = Region::heap(bytes).unwrap_err();
        assert_eq!(error, RegionError::System { bytes, errno: Errno::ENOMEM });
        assert_eq!(error.errno(), Errno::ENOMEM);
        assert!(error.to_string().contains(&bytes.to_string()));
    }
    for bytes in [MOST_BYTES, (1 << 20) + 1] {
        assert_eq!(Region::heap(bytes).unwrap().len(), bytes);
    }
}

/// The largest region does not come from the allocator. (The errno depends on the system: valgrind
/// has another.)
#[test]
fn address_space_that_is_not_there_is_an_error() {
    let (before, most) = getrlimit(Resource::RLIMIT_AS).unwrap();
    setrlimit(Resource::RLIMIT_AS, SPACE_BYTES.min(most), most).unwrap();
    let refused = Region::heap(MAX_REGION_BYTES);
    setrlimit(Resource::RLIMIT_AS, before, most).unwrap();
    assert!(matches!(refused, Err(RegionError::System { bytes: MAX_REGION_BYTES, .. })), "{refused:?}");
}
