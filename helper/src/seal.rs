//! Memory that a client has mapped as well, and has sealed.
//!
//! Whoever can write to a memfd by its descriptor can take its pages away (`fallocate`, `MADV_REMOVE`). A thread that touches such a
//! page meanwhile sleeps in the kernel, where no signal reaches it, until that call is over; a client can make that last for
//! minutes, by a thread of the lowest priority. `F_SEAL_FUTURE_WRITE` (since Linux 5.1) forbids it, and leaves writable what is
//! mapped already. So a client maps what it gets and then sets this seal, and the helper touches nothing that it has given
//! away before it has seen the seal. The client sets it, not the helper: the call waits for one that takes pages away. To look at
//! seals waits for nobody.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lnet_region::closer::{self, Unsealed};
use nlx_bev_cqueue::SharedMemory;
use nlx_fallible::{NoMemory, TryArc, try_box};

use super::accounts::Charge;
use super::costs::QueueCharges;

/// A descriptor of memory, for an answer and for [`Seal`].
#[derive(Clone)]
pub(super) struct MemoryFd(TryArc<Closing>);

/// To close the last descriptor of memory frees it: that is done where memory is closed.
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

/// Whether a client has sealed a queue's memory that it was given. The descriptor is kept until then, and its user pays for it: also
/// when the client is gone, until the memory is sealed by this process and unmapped.
pub(super) struct Seal(Option<Box<Awaited>>);

struct Awaited {
    fd: MemoryFd,
    /// The last handle to the memory is this one, if it is not sealed before.
    _queue: (SharedMemory, QueueCharges),
    _charge: Charge,
}

impl Seal {
    /// Of memory that the client is to seal.
    pub(super) fn awaited(
        fd: MemoryFd,
        queue: (SharedMemory, QueueCharges),
        charge: Charge,
    ) -> Result<Seal, NoMemory> {
        Ok(Seal(Some(try_box(Awaited { fd, _queue: queue, _charge: charge })?)))
    }

    /// Whether the memory may be touched. Costs a system call as long as it may not.
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
