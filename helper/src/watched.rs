//! The memory of queues that a client shares. It is sealed before anything in it is touched; a fault in it is healed all the same.

use lnet_region::guard::{self, Watched};
use nix::unistd::{SysconfVar, sysconf};
use nlx_bev_cqueue::SharedMemory;
use nlx_core::RegionError;

use super::Violation;

/// A queue's memory, of which a fault is healed and noted.
pub(super) struct WatchedQueue {
    // Before the memory, so that it ends before.
    watched: Watched,
    _memory: SharedMemory,
}

impl WatchedQueue {
    #[allow(unsafe_code)]
    pub(super) fn new(memory: SharedMemory) -> Result<WatchedQueue, RegionError> {
        let (start, length) = memory.bytes();
        // SAFETY: the mapping is that of `memory`, whole pages from the first on, which nothing else is in; it is readable and
        // writable, and stays mapped until after `watched` is dropped, for `memory` is a handle to it and dropped later.
        // All that is ever accessed of it are the queue's atomics, and the queue bears that they become zeros at any moment
        // (`SharedMemory::bytes`).
        let watched = unsafe { guard::watch(start, length, page_bytes()) }?;
        Ok(WatchedQueue { watched, _memory: memory })
    }

    pub(super) fn check(&self, what: &'static str) -> Result<(), Violation> {
        if self.watched.has_faulted() { Err(Violation::Fault { what }) } else { Ok(()) }
    }
}

/// Of ordinary memory. Every system can tell.
fn page_bytes() -> usize {
    let told = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    told.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(4096)
}
