//! Memory that a client has mapped as well, and has sealed.
//!
//! A process that can write to a memfd by its descriptor can remove its pages (`fallocate`,
//! `MADV_REMOVE`). A thread that touches such a page meanwhile sleeps in the kernel, where no
//! signal reaches it, until that call is over; a client can make that last for minutes, by a thread
//! of the lowest priority. `F_SEAL_FUTURE_WRITE` (since Linux 5.1) forbids it, and leaves existing
//! mappings writable. So a client maps the memory that it gets and then sets this seal, and the
//! helper does not touch memory that it has given away before it has seen the seal. The client sets
//! it, not the helper: the call waits for one that removes pages. Reading the seals does not block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lnet_region::closer::{self, Unsealed};
use nlx_bev_cqueue::SharedMemory;
use nlx_fallible::{NoMemory, TryArc, try_box};

use super::accounts::Charge;
use super::costs::QueueCharges;

/// A descriptor of memory, for an answer and for [`Seal`].
#[derive(Clone)]
pub(super) struct MemoryFd(TryArc<Closing>);

/// Passes the descriptor to the thread that closes memory: the last close frees the memory, which
/// takes long.
struct Closing(Option<OwnedFd>);

impl MemoryFd {
    pub(super) fn try_new(fd: OwnedFd) -> Result<MemoryFd, NoMemory> {
        TryArc::try_new(Closing(Some(fd))).map(MemoryFd)
    }
}

impl AsFd for MemoryFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_ref().expect("it is taken by its drop alone").as_fd()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(closer::close);
    }
}

/// Tracks whether a client has sealed the memory of a queue that it was given. The descriptor is
/// kept, and charged to the user, until then; if the client is gone, until this process has sealed
/// and unmapped the memory.
pub(super) struct Seal(Option<Box<Awaited>>);

struct Awaited {
    fd: MemoryFd,
    /// The last handle to the memory, if it is not sealed before.
    _queue: (SharedMemory, QueueCharges),
    _charge: Charge,
}

impl Seal {
    /// Tracks memory that the client is to seal.
    pub(super) fn awaited(
        fd: MemoryFd,
        queue: (SharedMemory, QueueCharges),
        charge: Charge,
    ) -> Result<Seal, NoMemory> {
        Ok(Seal(Some(try_box(Awaited { fd, _queue: queue, _charge: charge })?)))
    }

    /// Returns whether the memory may be touched. Costs a system call until it may.
    pub(super) fn is_set(&mut self) -> bool {
        if self.0.as_ref().is_some_and(|awaited| lnet_region::is_sealed(awaited.memory())) {
            self.0 = None;
        }
        self.0.is_none()
    }
}

impl Drop for Seal {
    fn drop(&mut self) {
        if let Some(awaited) = self.0.take() {
            closer::discard_unsealed(awaited);
        }
    }
}

impl Unsealed for Awaited {
    fn memory(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
