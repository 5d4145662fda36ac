use std::os::fd::{AsFd, BorrowedFd};

use lnet_api::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::slab::Key;

/// The most events taken from the system at once.
const EVENTS_MAX: usize = 64;

/// The key under which the wake-up itself is reported; the slab never gives it out.
const WAKE: u64 = u64::MAX;

/// An epoll set and a wake-up for whoever sleeps on it.
///
/// Everything is watched edge-triggered for both directions, from the beginning to the end: no call is ever made to
/// change what is watched, and no two threads can disagree about it.
pub(crate) struct Poller {
    epoll: Epoll,
    wake: EventFd,
}

/// What has changed on a descriptor.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Readiness {
    /// There is something to read or to accept.
    pub(crate) readable: bool,
    /// There is room to write, or the connection stands.
    pub(crate) writable: bool,
    /// The other side has stopped sending, or the connection is broken: reading goes on until it says so.
    pub(crate) ending: bool,
    /// The connection is broken, or both sides have stopped sending.
    pub(crate) broken: bool,
}

/// Room for the events of one call.
pub(crate) struct Events([EpollEvent; EVENTS_MAX]);

impl Poller {
    pub(crate) fn new() -> Result<Poller, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, WAKE))?;
        Ok(Poller { epoll, wake })
    }

    /// Watches a socket.
    pub(crate) fn add(&self, socket: impl AsFd, key: Key) -> Result<(), Errno> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(socket, EpollEvent::new(flags, key.0))
    }

    /// Watches a socket no longer.
    pub(crate) fn delete(&self, socket: impl AsFd) {
        // It can only fail for a socket that is not watched.
        let _ = self.epoll.delete(socket);
    }

    /// What has changed since the last call; does not block.
    pub(crate) fn wait<'a>(&self, events: &'a mut Events) -> impl Iterator<Item = (Key, Readiness)> + 'a {
        let count = self.epoll.wait(&mut events.0, EpollTimeout::ZERO).unwrap_or(0);
        events.0[..count].iter().filter(|event| event.data() != WAKE).map(|event| {
            let flags = event.events();
            let broken = flags.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
            let ending = broken || flags.contains(EpollFlags::EPOLLRDHUP);
            let readiness = Readiness {
                readable: ending || flags.contains(EpollFlags::EPOLLIN),
                writable: ending || flags.contains(EpollFlags::EPOLLOUT),
                ending,
                broken,
            };
            (Key(event.data()), readiness)
        })
    }

    /// Wakes whoever sleeps on [`Poller::fd`], or keeps the next from sleeping. The eventfd is never read: each write is
    /// an edge of its own.
    pub(crate) fn wake(&self) {
        // EAGAIN would need 2^64 writes.
        let _ = self.wake.write(1);
    }

    /// Readable when something has changed.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl Events {
    pub(crate) fn new() -> Events {
        Events([EpollEvent::empty(); EVENTS_MAX])
    }
}
