use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd as RawEventFd};

use super::Sleeper;
use crate::Errno;

/// A [`Sleeper`] of one process: an eventfd, written only while its owner has announced sleep.
#[derive(Debug)]
pub struct EventFd {
    fd: RawEventFd,
    asleep: AtomicBool,
    /// Announcements that wakers took and whose writes have not been read yet; the owner's alone.
    owed: AtomicU64,
}

impl EventFd {
    /// A new one.
    ///
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn new() -> Result<EventFd, Errno> {
        let fd = RawEventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(EventFd { fd, asleep: AtomicBool::new(false), owed: AtomicU64::new(0) })
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
        let taken = !self.asleep.swap(false, Ordering::AcqRel);
        let owed = self.owed.load(Ordering::Relaxed) + u64::from(taken);
        // A waker that took the announcement may not have written yet: then its write ends a later sleep early, and is
        // read after that one.
        let read = if owed > 0 { self.fd.read().unwrap_or(0) } else { 0 };
        self.owed.store(owed.saturating_sub(read), Ordering::Relaxed);
    }

    fn wake(&self) {
        // SYNC eventfd.sleep
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && take(&self.asleep) {
            // The counter cannot overflow: one write per announcement.
            let _ = self.fd.write(1);
        }
    }
}

/// Whether this waker is the one that takes the announcement. One that comes too late writes nothing.
fn take(asleep: &AtomicBool) -> bool {
    asleep.compare_exchange(true, false, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(sleeper: &EventFd) -> bool {
        let mut set = [PollFd::new(sleeper.fd(), PollFlags::POLLIN)];
        poll(&mut set, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn only_a_sleeper_is_signalled() {
        let sleeper = EventFd::new().unwrap();
        sleeper.wake();
        assert!(!is_readable(&sleeper), "it was awake");
        sleeper.prepare();
        sleeper.wake();
        sleeper.wake();
        assert!(is_readable(&sleeper));
        sleeper.finish();
        assert!(!is_readable(&sleeper), "the wake-up is used up");
    }

    #[test]
    fn a_late_write_is_read_after_the_sleep_that_it_ended() {
        let sleeper = EventFd::new().unwrap();
        sleeper.prepare();
        // A waker takes the announcement and is stopped before it writes.
        assert!(take(&sleeper.asleep));
        sleeper.finish();
        sleeper.prepare();
        sleeper.fd.write(1).unwrap();
        assert!(is_readable(&sleeper));
        sleeper.finish();
        assert!(!is_readable(&sleeper));
    }
}
