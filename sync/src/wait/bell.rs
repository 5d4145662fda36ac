//! The system's part of waking: futexes, eventfds and sockets.

use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, send, setsockopt, shutdown, socketpair, sockopt,
};
use nix::unistd::{read, write};

use super::sleeper::{Slept, Until};
use super::{SLEEPING, SleepWord};

/// The bytes written to a bell: the number that an eventfd expects. A socket accepts all of the
/// same eight bytes, or none.
const SIGNAL: [u8; 8] = 1u64.to_ne_bytes();

/// Flags of a signal: the call never blocks, even if the descriptor lacks `O_NONBLOCK`, and raises
/// no `SIGPIPE`.
const WITHOUT_WAITING: MsgFlags = MsgFlags::MSG_DONTWAIT.union(MsgFlags::MSG_NOSIGNAL);

/// Maximum number of signals of a socket that one read takes. Usually there is one; a second may
/// come late from a waker that was delayed.
const READ_AT_ONCE: usize = 8;

/// A descriptor that is readable from the first signal until the signals are read: an eventfd, or
/// an end of a socket pair.
///
/// Each ring costs a system call; a [`Waker`](super::Waker) rings only for a sleeper that sleeps.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    is_socket: bool,
}

impl Bell {
    /// Creates an eventfd: for sides that trust each other, see [the module](crate::wait#bells).
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn new() -> Result<Bell, Errno> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Bell::eventfd(EventFd::from_value_and_flags(0, flags)?.into()))
    }

    /// Wraps an eventfd, which another process may have made.
    pub fn eventfd(fd: OwnedFd) -> Bell {
        Bell { fd, is_socket: false }
    }

    /// Wraps an end of a [`Bell::socket_pair`], which another process may have made.
    pub fn socket(fd: OwnedFd) -> Bell {
        Bell { fd, is_socket: true }
    }

    /// Creates a pair of connected sockets: the waker's end and the sleeper's.
    ///
    /// For a waker that does not trust the sleeper, see [the module](crate::wait#bells). The
    /// sleeper can receive, but whatever it does to its end it can send neither bytes nor
    /// descriptors. Unread signals take some kilobytes at most. If the sleeper has closed its end,
    /// ringing raises no `SIGPIPE`.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn socket_pair() -> Result<(Bell, Bell), Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (theirs, ours) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
        // The smallest buffer is enough, because one signal carries the same information as
        // several.
        setsockopt(&theirs, sockopt::SndBuf, &0)?;
        // Sending to the waker's end now fails with EPIPE. The shutdown applies to both sockets,
        // and cannot be undone.
        shutdown(theirs.as_raw_fd(), Shutdown::Read)?;
        Ok((Bell::socket(theirs), Bell::socket(ours)))
    }

    /// Duplicates the descriptor of this bell.
    ///
    /// # Errors
    ///
    /// EMFILE when there are no descriptors left.
    pub fn try_clone(&self) -> Result<Bell, Errno> {
        let fd = self.fd.try_clone();
        // A failed system call has an errno. An error without one could only come from the library,
        // and becomes EIO.
        let fd = fd.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
        Ok(Bell { fd, is_socket: self.is_socket })
    }

    /// Makes the other end readable. Never blocks. A closed other end is not an error.
    ///
    /// # Errors
    ///
    /// When the descriptor is not a bell: EBADF, EINVAL, ENOTSOCK; when the system has no memory
    /// for a signal: ENOMEM, ENOBUFS.
    pub fn ring(&self) -> Result<(), Errno> {
        loop {
            let rung = if self.is_socket {
                send(self.fd.as_raw_fd(), &SIGNAL, WITHOUT_WAITING)
            } else {
                write(&self.fd, &SIGNAL)
            };
            match rung {
                Err(Errno::EINTR) => {}
                // EAGAIN: the bell is full of unread signals, so it is readable already. EPIPE,
                // ECONNRESET: the other end is closed.
                Ok(_) | Err(Errno::EAGAIN | Errno::EPIPE | Errno::ECONNRESET) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Reads the pending signals and returns their number.
    ///
    /// # Errors
    ///
    /// When the descriptor is not a bell: EBADF, EINVAL.
    pub fn silence(&self) -> Result<u64, Errno> {
        let mut signals = [0; SIGNAL.len() * READ_AT_ONCE];
        loop {
            match read(&self.fd, &mut signals) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(0),
                Ok(bytes) if self.is_socket => return Ok((bytes / SIGNAL.len()) as u64),
                Ok(_) => return Ok(signals.first_chunk().map_or(0, |count| u64::from_ne_bytes(*count))),
                Err(errno) => return Err(errno),
            }
        }
    }

    pub(super) fn wait(&self, until: Until) -> Result<Slept, Errno> {
        loop {
            let mut bells = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut bells, Some(until.left()?), None) {
                Err(Errno::EINTR) => {}
                Ok(0) => return Ok(Slept::TimedOut),
                Ok(_) => return Ok(Slept::Signalled),
                Err(errno) => return Err(errno),
            }
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Bell> for OwnedFd {
    fn from(bell: Bell) -> OwnedFd {
        bell.fd
    }
}

/// The two calls on a futex that processes share. Neither std nor nix has them.
impl SleepWord {
    /// Sleeps while sleep is announced, until a waker wakes the thread or the time has passed.
    /// Interrupting signals do not end the sleep.
    #[allow(unsafe_code)]
    pub(super) fn futex_wait(&self, until: Until) -> Result<Slept, Errno> {
        let until = until.absolute();
        let until: *const libc::timespec = until.as_ref();
        while self.sleeping.load(Relaxed) == SLEEPING {
            // SAFETY: `sleeping` is a valid, aligned 32-bit word for the whole call; `until` points
            // to a timespec that outlives it, in this function; FUTEX_WAIT_BITSET reads both, does
            // not access the second word, and accepts every waker's bits. Its time is absolute, of
            // the monotonic clock. Not FUTEX_PRIVATE_FLAG: the waker may be another process.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.sleeping.as_ptr(),
                    libc::FUTEX_WAIT_BITSET,
                    SLEEPING,
                    until,
                    ptr::null::<u32>(),
                    libc::FUTEX_BITSET_MATCH_ANY,
                )
            };
            match Errno::result(result) {
                // EAGAIN: the word changed before the kernel compared it.
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(Errno::ETIMEDOUT) => return Ok(Slept::TimedOut),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Slept::Signalled)
    }

    /// Wakes the thread that sleeps on the word, if there is one.
    #[allow(unsafe_code)]
    pub(super) fn futex_wake(&self) -> Result<(), Errno> {
        /// Number of threads to wake: a word has one sleeper.
        const SLEEPERS: u32 = 1;
        // SAFETY: `sleeping` is a valid, aligned 32-bit word for the whole call; FUTEX_WAKE does
        // not access it.
        let result =
            unsafe { libc::syscall(libc::SYS_futex, self.sleeping.as_ptr(), libc::FUTEX_WAKE, SLEEPERS) };
        Errno::result(result).map(drop)
    }
}
