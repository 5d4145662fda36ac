//! For a program that sleeps in an event loop of its own: one descriptor that stands for all that could end a wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::sync::Mutex;
use super::{Drive, EventFd, MAX_SHARDS, POLL_BUDGET, Poll, Sleeper, shards_of};
use crate::Errno;

/// What the loop's descriptor says of other things than shards.
const BELL: u64 = u64::MAX;
const TIMER: u64 = u64::MAX - 1;

/// The timer is not set.
const NEVER: u64 = u64::MAX;

/// A waiter that sleeps elsewhere: in a program's own loop, on one descriptor among others.
///
/// Each sleep is announced by [`Lookout::arm`], and [`Lookout::disarm`] ends it:
///
/// ```text
///        +-> disarm, poll the shards, take what has come, until there is nothing more
///        |       |
///        |       v
///        |      arm --- false: something is there already ---+
///        |       | true                                      |
///        |       v                                           |
///        |    the loop sleeps                                |
///        |       | the descriptor is readable                |
///        +-------+-------------------------------------------+
/// ```
///
/// While the loop sleeps no token is held: who knows when it comes back. The shards that were free when it was armed are
/// watched, each for one wake-up; of those that somebody else drives it hears by the bell, when what it waits for has come
/// or the shard is given up. A program that stays away for long leaves the shards to their stewards, as any other does; they
/// also find what a driver may have left behind that no descriptor tells of.
pub struct Lookout {
    epoll: Epoll,
    timer: TimerFd,
    sleeper: Arc<dyn Sleeper>,
    state: Mutex<State>,
}

struct State {
    armed: Option<Armed>,
    /// The shards whose descriptors stand in `epoll`.
    registered: u64,
    /// Those of which a wake-up is to come.
    watched: u64,
    /// What the timer is set to.
    timer_ns: u64,
}

/// A sleep that has been announced.
pub(crate) struct Armed {
    /// The shards to watch.
    pub(crate) mask: u64,
    /// It stands among those who want to hear of tokens.
    listens: bool,
    next_ns: Option<u64>,
}

impl Lookout {
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left: it takes three.
    pub fn new() -> Result<Lookout, Errno> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        let bell = EventFd::new()?;
        epoll.add(bell.fd(), EpollEvent::new(EpollFlags::EPOLLIN, BELL))?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        let state = State { armed: None, registered: 0, watched: 0, timer_ns: NEVER };
        Ok(Lookout { epoll, timer, sleeper: Arc::new(bell), state: Mutex::new(state) })
    }

    /// Readable when the program should come back; of use while it is armed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    /// Whoever has news wakes it.
    pub fn sleeper(&self) -> &Arc<dyn Sleeper> {
        &self.sleeper
    }

    /// Announces sleep, unless there is something to do: then it gives false, and nothing is armed. The shards that are
    /// free have been polled. `ready` is as for [`super::wait_until`].
    ///
    /// # Errors
    /// ENOMEM or ENOSPC if the system has no room for another watched descriptor.
    pub fn arm(
        &self,
        drive: &dyn Drive,
        deadline_ns: Option<u64>,
        ready: impl FnMut() -> bool,
    ) -> Result<bool, Errno> {
        let mut state = self.state.lock();
        self.end(&mut state, drive);
        let Some(armed) = arm_with(drive, &self.sleeper, deadline_ns, ready) else { return Ok(false) };
        let set = self.watch(&mut state, drive, &armed);
        state.armed = Some(armed);
        if set.is_err() {
            self.end(&mut state, drive);
        }
        set.map(|()| true)
    }

    /// The program is back. False if nothing was armed.
    pub fn disarm(&self, drive: &dyn Drive) -> bool {
        self.end(&mut self.state.lock(), drive)
    }

    /// A shard that becomes readable, or is, is told of once; one of which nothing was told needs no new word.
    fn watch(&self, state: &mut State, drive: &dyn Drive, armed: &Armed) -> Result<(), Errno> {
        for shard in shards_of(armed.mask & !state.watched) {
            let bit = 1 << shard;
            let mut event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, shard as u64);
            if state.registered & bit == 0 {
                self.epoll.add(drive.wait_fd(shard), event)?;
                state.registered |= bit;
            } else {
                self.epoll.modify(drive.wait_fd(shard), &mut event)?;
            }
            state.watched |= bit;
        }
        self.set_timer(state, drive, armed.next_ns.unwrap_or(NEVER))
    }

    fn set_timer(&self, state: &mut State, drive: &dyn Drive, next_ns: u64) -> Result<(), Errno> {
        if next_ns == state.timer_ns {
            return Ok(());
        }
        if next_ns == NEVER {
            self.timer.unset()?;
        } else {
            // A timer of 0 would never expire.
            let left = drive.sleep_ns(next_ns).max(1);
            let left = TimeSpec::new((left / 1_000_000_000) as i64, (left % 1_000_000_000) as i64);
            self.timer.set(Expiration::OneShot(left), TimerSetTimeFlags::empty())?;
        }
        state.timer_ns = next_ns;
        Ok(())
    }

    fn end(&self, state: &mut State, drive: &dyn Drive) -> bool {
        let Some(armed) = state.armed.take() else { return false };
        armed.end(drive, &self.sleeper);
        let mut events = [EpollEvent::empty(); MAX_SHARDS + 2];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        for event in &events[..count] {
            match event.data() {
                BELL => {}
                TIMER => {
                    let _ = self.timer.unset();
                    state.timer_ns = NEVER;
                }
                shard => state.watched &= !(1 << shard),
            }
        }
        true
    }
}

impl std::fmt::Debug for Lookout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lookout").field("fd", &self.fd()).finish_non_exhaustive()
    }
}

/// The algorithm, without descriptors: a model checker has none.
///
/// A shard that is free is polled, and armed under its token; from then on its descriptor tells of it, whoever drives it next.
/// Of the others the list of listeners does: after it has been entered there, the shards are looked at once more.
pub(crate) fn arm_with(
    drive: &dyn Drive,
    sleeper: &Arc<dyn Sleeper>,
    deadline_ns: Option<u64>,
    mut ready: impl FnMut() -> bool,
) -> Option<Armed> {
    let tokens = drive.tokens();
    sleeper.prepare();
    let mut armed = Armed { mask: 0, listens: false, next_ns: deadline_ns };
    let mut lacking = 0u64;
    for shard in 0..drive.shards() {
        if !tokens.claim(shard) {
            lacking |= 1 << shard;
            continue;
        }
        let polled = drive.poll(shard, POLL_BUDGET);
        let idle = polled.work == 0 && drive.arm(shard);
        tokens.release(shard, drive.now_ns());
        if !idle {
            armed.end(drive, sleeper);
            return None;
        }
        armed.mask |= 1 << shard;
        armed.next_ns = polled.and(Poll { work: 0, deadline_ns: armed.next_ns }).deadline_ns;
    }
    if lacking != 0 {
        armed.listens = true;
        tokens.listen(sleeper);
    }
    let late = deadline_ns.is_some_and(|deadline_ns| deadline_ns <= drive.now_ns());
    if late || shards_of(lacking).any(|shard| tokens.is_free(shard)) || ready() {
        armed.end(drive, sleeper);
        return None;
    }
    Some(armed)
}

impl Armed {
    /// Awake again.
    pub(crate) fn end(self, drive: &dyn Drive, sleeper: &Arc<dyn Sleeper>) {
        if self.listens {
            drive.tokens().unlisten(sleeper);
        }
        sleeper.finish();
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
