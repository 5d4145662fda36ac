//! The memory of queues that a client shares. It is sealed before it is touched; a fault in it is
//! repaired nevertheless.

use lnet_region::guard::{self, Watched};
use nix::unistd::{SysconfVar, sysconf};
use nlx_bev_cqueue::SharedMemory;
use nlx_core::RegionError;

use super::Violation;

/// A queue's memory, in which faults are repaired and recorded.
pub(super) struct WatchedQueue {
    // Before the memory, so that it is dropped first.
    watched: Watched,
    _memory: SharedMemory,
}

impl WatchedQueue {
    #[allow(unsafe_code)]
    pub(super) fn new(memory: SharedMemory) -> Result<WatchedQueue, RegionError> {
        let (start, length) = memory.bytes();
        // SAFETY: the mapping is that of `memory`: whole pages from its first one on, with nothing
        // else in them. It is readable and writable, and stays mapped until after `watched` is
        // dropped, because `memory` is a handle to it and dropped later. Only the queue's atomics
        // are ever accessed in it, and the queue tolerates that they become zeros at any moment
        // (`SharedMemory::bytes`).
        let watched = unsafe { guard::watch(start, length, page_bytes()) }?;
        Ok(WatchedQueue { watched, _memory: memory })
    }

    pub(super) fn check(&self, what: &'static str) -> Result<(), Violation> {
        if self.watched.has_faulted() { Err(Violation::Fault { what }) } else { Ok(()) }
    }
}

/// Returns the size of an ordinary page. Every system reports it.
fn page_bytes() -> usize {
    let reported = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    reported.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(4096)
}
