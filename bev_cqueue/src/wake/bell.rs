use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, send, setsockopt, shutdown, socketpair, sockopt,
};
use nix::unistd::{read, write};

use crate::error::Error;
use crate::layout::WakeLine;
use crate::wake::clock::Until;
use crate::wake::{SLEEPING, futex};

/// What is written to a bell: the number that an eventfd takes. A socket takes the same eight bytes, whole or not at all.
const SIGNAL: [u8; 8] = 1u64.to_ne_bytes();

/// How a signal is sent: never waiting, not even if the descriptor lacks `O_NONBLOCK`, and without `SIGPIPE`.
const WITHOUT_WAITING: MsgFlags = MsgFlags::MSG_DONTWAIT.union(MsgFlags::MSG_NOSIGNAL);

/// How many signals a sleeper clears at once. One is the rule; a second may come late from a waker that was overtaken.
const CLEARED_AT_ONCE: usize = 8;

/// Makes an eventfd as a bell: the waker's descriptor and the sleeper's.
///
/// For halves that trust each other; see [the module](crate::wake).
///
/// # Errors
///
/// [`Error::System`] when there are no more descriptors.
pub fn eventfd() -> Result<(OwnedFd, OwnedFd), Error> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let bell: OwnedFd = EventFd::from_value_and_flags(0, flags).map_err(Error::system("eventfd"))?.into();
    let other = bell.try_clone().map_err(Error::io("fcntl"))?;
    Ok((bell, other))
}

/// Makes a pair of connected sockets as a bell: the waker's descriptor and the sleeper's.
///
/// For a waker that does not trust the sleeper; see [the module](crate::wake). The sleeper can receive and not send, neither
/// bytes nor descriptors, whatever it does to its end. What it leaves unread is some kilobytes at the most. That it is gone
/// raises no `SIGPIPE`.
///
/// # Errors
///
/// [`Error::System`] when there are no more descriptors.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let pair = socketpair(AddressFamily::Unix, SockType::Stream, None, flags);
    let (theirs, ours) = pair.map_err(Error::system("socketpair"))?;
    // The least there is: more signals than one say nothing more.
    setsockopt(&theirs, sockopt::SndBuf, &0).map_err(Error::system("setsockopt"))?;
    // From now on sending to it fails with EPIPE. It holds for both sockets, and nothing undoes it.
    shutdown(theirs.as_raw_fd(), Shutdown::Read).map_err(Error::system("shutdown"))?;
    Ok((theirs, ours))
}

/// How one side reaches the other.
#[derive(Debug)]
pub(super) enum Bell {
    Futex,
    /// An eventfd; for the sleeper also a socket.
    Descriptor(OwnedFd),
    /// The waker's end of a pair of sockets.
    Socket(OwnedFd),
}

/// What ended sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slept {
    Signalled,
    TimedOut,
}

impl Bell {
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Bell::Futex => None,
            Bell::Descriptor(bell) | Bell::Socket(bell) => Some(bell.as_fd()),
        }
    }

    /// The waker's part. Never blocks.
    pub(super) fn ring(&self, line: &WakeLine) -> Result<(), Error> {
        match self {
            Bell::Futex => futex::wake(&line.sleeping),
            Bell::Descriptor(bell) => ring("write", || write(bell, &SIGNAL)),
            Bell::Socket(bell) => ring("send", || send(bell.as_raw_fd(), &SIGNAL, WITHOUT_WAITING)),
        }
    }

    /// The sleeper's part, after it has announced sleep.
    pub(super) fn wait(&self, line: &WakeLine, until: Until) -> Result<Slept, Error> {
        match self {
            Bell::Futex => futex::wait(&line.sleeping, SLEEPING, until),
            Bell::Descriptor(bell) | Bell::Socket(bell) => wait_readable(bell, until),
        }
    }

    /// Forgets signals that have come.
    pub(super) fn silence(&self) -> Result<(), Error> {
        match self {
            Bell::Futex => Ok(()),
            Bell::Descriptor(bell) | Bell::Socket(bell) => silence(bell),
        }
    }
}

fn ring(call: &'static str, signal: impl Fn() -> nix::Result<usize>) -> Result<(), Error> {
    loop {
        match signal() {
            Err(Errno::EINTR) => {}
            // Full of signals that nobody has cleared: it rings already. Or nobody is there to hear it.
            Ok(_) | Err(Errno::EAGAIN | Errno::EPIPE | Errno::ECONNRESET) => return Ok(()),
            Err(errno) => return Err(Error::System { call, errno }),
        }
    }
}

fn silence(bell: &OwnedFd) -> Result<(), Error> {
    let mut signals = [0; SIGNAL.len() * CLEARED_AT_ONCE];
    loop {
        match read(bell, &mut signals) {
            Err(Errno::EINTR) => {}
            // Silent. If the waker stands between claiming the word and ringing, the next sleep will be short.
            Ok(_) | Err(Errno::EAGAIN) => return Ok(()),
            Err(errno) => return Err(Error::System { call: "read", errno }),
        }
    }
}

fn wait_readable(bell: &OwnedFd, until: Until) -> Result<Slept, Error> {
    loop {
        let mut bells = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut bells, Some(until.left()?), None) {
            Err(Errno::EINTR) => {}
            Ok(0) => return Ok(Slept::TimedOut),
            Ok(_) => return Ok(Slept::Signalled),
            Err(errno) => return Err(Error::System { call: "ppoll", errno }),
        }
    }
}
