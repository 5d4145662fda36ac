//! A poller over epoll.

use std::os::fd::{AsFd, BorrowedFd};

use lnet_api::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nlx_sync::{Bell, poll_cards};

use crate::sys::{EVENTS_MAX, Events, Handle, Poller, Readiness};

/// The event key of the wake-up; no watched descriptor has it.
const WAKE: u64 = u64::MAX;

/// An epoll set that also watches an eventfd for the wake-up.
pub(super) struct Epolled {
    epoll: Epoll,
    wake: Bell,
}

impl Epolled {
    pub(super) fn new(epoll_busy_poll_us: u32) -> Result<Epolled, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let wake = Bell::new()?;
        epoll.add(&wake, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, WAKE))?;
        if epoll_busy_poll_us > 0
            && let Err(error) = poll_cards(&epoll.0, epoll_busy_poll_us)
        {
            tracing::warn!(epoll_busy_poll_us, %error, "the system cannot busy-poll network cards for epoll (Linux 6.9 can): interrupts are used instead");
        }
        Ok(Epolled { epoll, wake })
    }
}

impl Poller for Epolled {
    fn add(&self, handle: Handle<'_>, key: u64) -> Result<(), Errno> {
        let Handle::Fd(fd) = handle else { return Err(Errno::EBADF) };
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        self.epoll.add(fd, EpollEvent::new(flags, key))
    }

    fn delete(&self, handle: Handle<'_>) {
        if let Handle::Fd(fd) = handle {
            // The call fails only for a socket that is not watched.
            let _ = self.epoll.delete(fd);
        }
    }

    fn wait(&self, events: &mut Events) {
        events.clear();
        let mut found = [EpollEvent::empty(); EVENTS_MAX];
        let count = self.epoll.wait(&mut found, EpollTimeout::ZERO).unwrap_or(0);
        for event in found[..count].iter().filter(|event| event.data() != WAKE) {
            events.push(event.data(), readiness(event.events()));
        }
    }

    /// Rings the eventfd. It is never read: each ring is a new edge for epoll.
    fn wake(&self) {
        // Ringing an eventfd cannot fail here.
        let _ = self.wake.ring();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

fn readiness(flags: EpollFlags) -> Readiness {
    let broken = flags.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
    let ending = broken || flags.contains(EpollFlags::EPOLLRDHUP);
    Readiness {
        readable: ending || flags.contains(EpollFlags::EPOLLIN),
        writable: ending || flags.contains(EpollFlags::EPOLLOUT),
        ending,
        broken,
    }
}
