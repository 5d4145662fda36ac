//! Descriptors that a client hands over.

use std::os::fd::OwnedFd;

use lnet_region::closer;

/// The descriptors that came with a request: one that may be memory, or a number of others. The last close of memory frees it, whatever its
/// size, so what is not taken is closed in the thread for that, on whatever way it is dropped.
#[derive(Debug, Default)]
pub struct Handed {
    memory: Option<OwnedFd>,
    count: usize,
}

impl Handed {
    /// Memory.
    pub(super) fn memory(fd: OwnedFd) -> Handed {
        Handed { memory: Some(fd), count: 1 }
    }

    /// So many that are no memory, and are closed already.
    pub(super) fn others(count: usize) -> Handed {
        Handed { memory: None, count }
    }

    /// How many came.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes the memory. `None` if what came is none.
    pub(super) fn take(&mut self) -> Option<OwnedFd> {
        self.memory.take()
    }
}

impl From<Vec<OwnedFd>> for Handed {
    fn from(mut fds: Vec<OwnedFd>) -> Handed {
        let count = fds.len();
        let memory = fds.pop().filter(|_| count == 1);
        fds.into_iter().for_each(closer::close);
        Handed { memory, count }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        self.memory.take().into_iter().for_each(closer::close);
    }
}
