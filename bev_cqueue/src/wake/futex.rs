//! The two calls of a futex that processes share. Neither std nor nix offers them.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use nix::errno::Errno;
use nix::libc;

use crate::error::Error;
use crate::wake::bell::Slept;
use crate::wake::clock::Until;

/// Sleeps while `word` is `asleep`, until somebody wakes it or the time has come. Signals do not end it.
pub(super) fn wait(word: &AtomicU32, asleep: u32, until: Until) -> Result<Slept, Error> {
    let until = until.absolute();
    let until: *const libc::timespec = until.as_ref();
    while word.load(Relaxed) == asleep {
        // SAFETY: `word` is a valid, aligned 32-bit word for the whole call; `until` points to a timespec that outlives it, in
        // this function; FUTEX_WAIT_BITSET reads both, does not look at the second word, and takes every waker's bits. Its
        // time is absolute, of the monotonic clock. Not FUTEX_PRIVATE_FLAG: the waker may be another process.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT_BITSET,
                asleep,
                until,
                ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
        match Errno::result(result) {
            // EAGAIN: the word changed before the system looked at it.
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(Errno::ETIMEDOUT) => return Ok(Slept::TimedOut),
            Err(errno) => return Err(Error::System { call: "futex", errno }),
        }
    }
    Ok(Slept::Signalled)
}

/// Wakes the one thread that sleeps on `word`, if there is one.
pub(super) fn wake(word: &AtomicU32) -> Result<(), Error> {
    /// A queue has one consumer.
    const SLEEPERS: u32 = 1;
    // SAFETY: `word` is a valid, aligned 32-bit word for the whole call; FUTEX_WAKE does not access it.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, SLEEPERS) };
    Errno::result(result).map(drop).map_err(Error::system("futex"))
}
