use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd as RawEventFd};

use super::Sleeper;
use crate::Errno;

/// A [`Sleeper`] of one process: an eventfd, written only while its owner has announced sleep.
#[derive(Debug)]
pub struct EventFd {
    fd: RawEventFd,
    asleep: AtomicBool,
}

impl EventFd {
    /// A new one.
    ///
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn new() -> Result<EventFd, Errno> {
        let fd = RawEventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(EventFd { fd, asleep: AtomicBool::new(false) })
    }
}

impl Sleeper for EventFd {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn prepare(&self) {
        self.asleep.store(true, Ordering::Relaxed);
        // SYNC eventfd.sleep: pairs with the fence in `wake`. Either the waker sees the announcement, or the sleeper's
        // next look sees what the waker had written.
        fence(Ordering::SeqCst);
    }

    fn finish(&self) {
        if !self.asleep.swap(false, Ordering::AcqRel) {
            // A waker took the announcement and has written, or is about to. EAGAIN means its write is yet to come: it
            // then ends the next sleep early, once, which does no harm.
            let _ = self.fd.read();
        }
    }

    fn wake(&self) {
        // SYNC eventfd.sleep
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            // The counter cannot overflow: one write per announcement.
            let _ = self.fd.write(1);
        }
    }
}
