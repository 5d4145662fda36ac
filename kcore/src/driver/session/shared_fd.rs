//! Descriptors that the client has, too.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lnet_region::closer;

/// A descriptor that the client may watch. Whoever closes it last wakes all that watch it, and waits for them: so it is closed in another
/// thread.
pub(super) struct SharedFd(Option<OwnedFd>);

impl SharedFd {
    pub(super) fn new(fd: OwnedFd) -> SharedFd {
        SharedFd(Some(fd))
    }

    pub(super) fn get(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for SharedFd {
    fn drop(&mut self) {
        if let Some(fd) = self.0.take() {
            closer::close(fd);
        }
    }
}
