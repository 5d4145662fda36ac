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

/// What is written to a bell: the number that an eventfd takes. A socket takes the same eight bytes, whole or not at all.
const SIGNAL: [u8; 8] = 1u64.to_ne_bytes();

/// How a signal is sent: never waiting, not even if the descriptor lacks `O_NONBLOCK`, and without `SIGPIPE`.
const WITHOUT_WAITING: MsgFlags = MsgFlags::MSG_DONTWAIT.union(MsgFlags::MSG_NOSIGNAL);

/// How many signals of a socket are read at once. One is the rule; a second may come late from a waker that was overtaken.
const READ_AT_ONCE: usize = 8;

/// A descriptor that is readable once it has been rung, until it is silenced: an eventfd, or an end of a pair of sockets.
///
/// By itself it costs a system call each time; a [`Waker`](super::Waker) rings it only for a sleeper that sleeps.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    is_socket: bool,
}

impl Bell {
    /// An eventfd: for sides that trust each other, see [the module](crate::wait#bells).
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn new() -> Result<Bell, Errno> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Bell::eventfd(EventFd::from_value_and_flags(0, flags)?.into()))
    }

    /// An eventfd that another process may have made.
    pub fn eventfd(fd: OwnedFd) -> Bell {
        Bell { fd, is_socket: false }
    }

    /// An end of a [`Bell::socket_pair`] that another process may have made.
    pub fn socket(fd: OwnedFd) -> Bell {
        Bell { fd, is_socket: true }
    }

    /// A pair of connected sockets: the waker's end and the sleeper's.
    ///
    /// For a waker that does not trust the sleeper, see [the module](crate::wait#bells). The sleeper can receive and not send,
    /// neither bytes nor descriptors, whatever it does to its end. What it leaves unread is some kilobytes at the most. That it
    /// is gone raises no `SIGPIPE`.
    ///
    /// # Errors
    ///
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn socket_pair() -> Result<(Bell, Bell), Errno> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (theirs, ours) = socketpair(AddressFamily::Unix, SockType::Stream, None, flags)?;
        // The least there is: more signals than one say nothing more.
        setsockopt(&theirs, sockopt::SndBuf, &0)?;
        // From now on sending to it fails with EPIPE. It holds for both sockets, and nothing undoes it.
        shutdown(theirs.as_raw_fd(), Shutdown::Read)?;
        Ok((Bell::socket(theirs), Bell::socket(ours)))
    }

    /// Another handle to the same bell.
    ///
    /// # Errors
    ///
    /// EMFILE when there are no descriptors left.
    pub fn try_clone(&self) -> Result<Bell, Errno> {
        let fd = self.fd.try_clone();
        // The system call left a number; an error without one would be of the library's own making.
        let fd = fd.map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
        Ok(Bell { fd, is_socket: self.is_socket })
    }

    /// Makes the other end readable. Never blocks. It is no error that nobody is there to hear it.
    ///
    /// # Errors
    ///
    /// When the descriptor is not a bell: EBADF, EINVAL, ENOTSOCK; or the system has no memory for a signal: ENOMEM, ENOBUFS.
    pub fn ring(&self) -> Result<(), Errno> {
        loop {
            let rung = if self.is_socket {
                send(self.fd.as_raw_fd(), &SIGNAL, WITHOUT_WAITING)
            } else {
                write(&self.fd, &SIGNAL)
            };
            match rung {
                Err(Errno::EINTR) => {}
                // Full of signals that nobody has read: it rings already. Or nobody is there to hear it.
                Ok(_) | Err(Errno::EAGAIN | Errno::EPIPE | Errno::ECONNRESET) => return Ok(()),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Reads the signals that have come, and returns how many.
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

/// The two calls of a futex that processes share. Neither std nor nix offers them.
impl SleepWord {
    /// Sleeps while sleep is announced, until a waker wakes it or the time has come. Signals do not end it.
    #[allow(unsafe_code)]
    pub(super) fn futex_wait(&self, until: Until) -> Result<Slept, Errno> {
        let until = until.absolute();
        let until: *const libc::timespec = until.as_ref();
        while self.sleeping.load(Relaxed) == SLEEPING {
            // SAFETY: `sleeping` is a valid, aligned 32-bit word for the whole call; `until` points to a timespec that outlives
            // it, in this function; FUTEX_WAIT_BITSET reads both, does not look at the second word, and takes every waker's
            // bits. Its time is absolute, of the monotonic clock. Not FUTEX_PRIVATE_FLAG: the waker may be another process.
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
                // EAGAIN: the word changed before the system looked at it.
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(Errno::ETIMEDOUT) => return Ok(Slept::TimedOut),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Slept::Signalled)
    }

    /// Wakes the one thread that sleeps on the word, if there is one.
    #[allow(unsafe_code)]
    pub(super) fn futex_wake(&self) -> Result<(), Errno> {
        /// A word has one sleeper.
        const SLEEPERS: u32 = 1;
        // SAFETY: `sleeping` is a valid, aligned 32-bit word for the whole call; FUTEX_WAKE does not access it.
        let result =
            unsafe { libc::syscall(libc::SYS_futex, self.sleeping.as_ptr(), libc::FUTEX_WAKE, SLEEPERS) };
        Errno::result(result).map(drop)
    }
}
