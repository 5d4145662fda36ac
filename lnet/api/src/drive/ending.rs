use std::os::fd::BorrowedFd;

use super::sync::{AtomicBool, Ordering};
use super::{EventFd, Sleeper};
use crate::Errno;

/// That a node has been shut down, for whoever waits: a descriptor that is readable from then on.
#[derive(Debug)]
pub struct Ending {
    over: AtomicBool,
    bell: EventFd,
}

impl Ending {
    /// Of a node that lives.
    ///
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn new() -> Result<Ending, Errno> {
        let bell = EventFd::new()?;
        // Somebody is always about to sleep; nobody ever reads it.
        bell.prepare();
        Ok(Ending { over: AtomicBool::new(false), bell })
    }

    /// Ends every wait on the node, those to come as well.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.bell.wake();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }
}
