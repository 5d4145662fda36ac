//! The two calls of a futex that processes share. Neither std nor nix offers them.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Instant;

use nix::errno::Errno;
use nix::libc;

use crate::error::Error;
use crate::wake::Wake;
use crate::wake::bell::time_left;

/// Sleeps while `word` is `asleep`, until somebody wakes it or `deadline` has passed.
pub(super) fn wait(word: &AtomicU32, asleep: u32, deadline: Option<Instant>) -> Result<Wake, Error> {
    while word.load(Relaxed) == asleep {
        let left = time_left(deadline);
        let timeout = left.as_ref().map_or(core::ptr::null(), |left| core::ptr::from_ref(left.as_ref()));
        // SAFETY: `word` is a valid, aligned 32-bit word for the whole call; `timeout` is null or points to a timespec that
        // outlives it (`left`); FUTEX_WAIT reads both and ignores the other arguments. The timeout is relative, measured
        // on the monotonic clock. Not FUTEX_PRIVATE_FLAG: the waker may be another process.
        let result =
            unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, asleep, timeout) };
        match Errno::result(result) {
            // EAGAIN: the word changed before the system looked at it.
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(Errno::ETIMEDOUT) => return Ok(Wake::TimedOut),
            Err(errno) => return Err(Error::System { call: "futex", errno }),
        }
    }
    Ok(Wake::Signalled)
}

/// Wakes the one thread that sleeps on `word`, if there is one.
pub(super) fn wake(word: &AtomicU32) -> Result<(), Error> {
    /// A queue has one consumer.
    const SLEEPERS: u32 = 1;
    // SAFETY: `word` is a valid, aligned 32-bit word for the whole call; FUTEX_WAKE does not access it.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, SLEEPERS) };
    Errno::result(result).map(drop).map_err(Error::system("futex"))
}
