use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::Sleeper;
use crate::plain::{AtomicU64, Ordering};

/// The key of the sleeper's bell in the handle's epoll set; the timer has the next lower one.
const BELL: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// The value of `timer_ns` while the timer is not set.
const NEVER: u64 = u64::MAX;

/// The maximum number of readable descriptors that one call returns; the next call returns the
/// rest.
const FOUND_AT_ONCE: usize = 72;

/// One descriptor for a program that sleeps in an event loop: it combines a [`Sleeper`], a timer,
/// and further descriptors that are added.
///
/// An event loop sleeps on the handle between [`Sleeper::prepare`] and [`PollHandle::finish`]. Only
/// one thread at a time may change it.
#[derive(Debug)]
pub struct PollHandle {
    epoll: Epoll,
    timer: TimerFd,
    /// The time, by the caller's clock, to which the timer is set; [`NEVER`] if it is not set.
    timer_ns: AtomicU64,
    sleeper: Arc<Sleeper>,
}

impl PollHandle {
    /// Creates a handle with a new sleeper and without further descriptors.
    ///
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left: a handle takes three.
    pub fn new() -> Result<PollHandle, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        let sleeper = Arc::new(Sleeper::new()?);
        if let Some(bell) = sleeper.fd() {
            epoll.add(bell, EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        }
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        Ok(PollHandle { epoll, timer, timer_ns: AtomicU64::new(NEVER), sleeper })
    }

    /// Returns the sleeper by which threads of this process wake the program.
    pub fn sleeper(&self) -> &Arc<Sleeper> {
        &self.sleeper
    }

    /// Adds a descriptor under a key (below 2^63): while it is readable, so is the handle.
    ///
    /// # Errors
    /// ENOMEM or ENOSPC if the system has no room for another watched descriptor.
    pub fn add(&self, fd: BorrowedFd<'_>, key: u64) -> Result<(), Errno> {
        self.epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, key))
    }

    /// Arms a descriptor for one wake-up. `is_known` is false the first time a descriptor is added,
    /// and true when it is armed again after [`PollHandle::finish`] has reported its key.
    ///
    /// # Errors
    /// ENOMEM or ENOSPC if the system has no room for another watched descriptor.
    pub fn add_once(&self, fd: BorrowedFd<'_>, key: u64, is_known: bool) -> Result<(), Errno> {
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, key);
        if is_known { self.epoll.modify(fd, &mut event) } else { self.epoll.add(fd, event) }
    }

    /// Sets the timer to `at_ns` of the caller's clock; `left_ns` converts that to nanoseconds from
    /// now. `None` unsets the timer.
    ///
    /// # Errors
    /// The error of `timerfd_settime`.
    pub fn set_timer(&self, at_ns: Option<u64>, left_ns: impl FnOnce(u64) -> u64) -> Result<(), Errno> {
        let next_ns = at_ns.unwrap_or(NEVER);
        if next_ns == self.timer_ns.load(Ordering::Relaxed) {
            return Ok(());
        }
        if next_ns == NEVER {
            self.timer.unset()?;
        } else {
            // At least 1, because a timer of 0 would never expire.
            let left = Duration::from_nanos(left_ns(next_ns).max(1));
            self.timer.set(Expiration::OneShot(left.into()), TimerSetTimeFlags::empty())?;
        }
        self.timer_ns.store(next_ns, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the sleep of the program: marks the sleeper as awake, unsets a timer that has expired,
    /// and calls `readable` with the keys of the other descriptors that are readable.
    pub fn finish(&self, mut readable: impl FnMut(u64)) {
        self.sleeper.finish();
        let mut events = [EpollEvent::empty(); FOUND_AT_ONCE];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                BELL => {}
                TIMER => {
                    let _ = self.timer.unset();
                    self.timer_ns.store(NEVER, Ordering::Relaxed);
                }
                key => readable(key),
            }
        }
    }
}

/// The descriptor is readable when the program should call [`PollHandle::finish`].
impl AsFd for PollHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_is_not_wanted_any_more_does_not_tick() {
        let handle = PollHandle::new().unwrap();
        handle.set_timer(Some(7), |_| 3_600_000_000_000).unwrap();
        assert!(handle.timer.get().unwrap().is_some());
        handle.set_timer(None, |_| unreachable!("it is unset")).unwrap();
        assert_eq!(handle.timer.get(), Ok(None));
    }

    #[test]
    fn what_is_readable_is_reported_and_what_is_added_once_only_then() {
        let (handle, [always, once]) =
            (PollHandle::new().unwrap(), [(); 2].map(|()| super::super::Bell::new().unwrap()));
        handle.add(always.as_fd(), 1).unwrap();
        handle.add_once(once.as_fd(), 2, false).unwrap();
        let found = || {
            let mut keys = Vec::new();
            handle.finish(|key| keys.push(key));
            keys.sort_unstable();
            keys
        };
        assert_eq!(found(), []);
        always.ring().unwrap();
        once.ring().unwrap();
        assert_eq!(found(), [1, 2]);
        assert_eq!(found(), [1]);
        handle.add_once(once.as_fd(), 2, true).unwrap();
        assert_eq!(always.silence(), Ok(1));
        assert_eq!(found(), [2]);
    }
}
