//! For a program that sleeps in an event loop of its own: one descriptor that stands for all that could end a wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nlx_sync::PollHandle;

use super::sync::Mutex;
use super::{Claim, Drive, POLL_BUDGET, Poll, Sleeper, shards_of};
use crate::Errno;

/// A waiter that sleeps elsewhere: in a program's own loop, on one descriptor among others.
///
/// Each sleep is announced by [`EventLoopHandle::arm`], and [`EventLoopHandle::disarm`] ends it:
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
/// or the shard is given up. A program that stays away for long leaves the shards to their scheduler threads, as any other does; they
/// also find what a driver may have left behind that no descriptor tells of.
#[derive(Debug)]
pub struct EventLoopHandle {
    handle: PollHandle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    armed: Option<Armed>,
    /// The shards whose descriptors have been added to the handle.
    registered: u64,
    /// Those of which a wake-up is to come.
    watched: u64,
}

/// A sleep that has been announced.
#[derive(Debug)]
pub(crate) struct Armed {
    /// The shards to watch.
    pub(crate) mask: u64,
    /// It stands among those who want to hear of tokens.
    listens: bool,
    next_ns: Option<u64>,
}

impl EventLoopHandle {
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left: it takes three.
    pub fn new() -> Result<EventLoopHandle, Errno> {
        Ok(EventLoopHandle { handle: PollHandle::new()?, state: Mutex::default() })
    }

    /// Readable when the program should come back; of use while it is armed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Whoever has news wakes it.
    pub fn sleeper(&self) -> &Arc<Sleeper> {
        self.handle.sleeper()
    }

    /// Announces sleep, unless there is something to do: then it gives false, and nothing is armed. The shards that are
    /// free have been polled; a spinning sleeper ([`Sleeper::spinning`]) polls them for up to its limit. `ready` is as for [`super::wait_until`].
    ///
    /// # Errors
    /// ENOMEM or ENOSPC if the system has no room for another watched descriptor.
    pub fn arm(
        &self,
        drive: &dyn Drive,
        deadline_ns: Option<u64>,
        mut ready: impl FnMut() -> bool,
    ) -> Result<bool, Errno> {
        let mut state = self.state.lock();
        self.end(&mut state, drive);
        if spins(drive, self.sleeper(), deadline_ns, &mut ready) {
            return Ok(false);
        }
        let Some(armed) = arm_with(drive, self.sleeper(), deadline_ns, ready) else { return Ok(false) };
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
            self.handle.add_once(drive.wait_fd(shard), shard as u64, state.registered & bit != 0)?;
            state.registered |= bit;
            state.watched |= bit;
        }
        self.handle.set_timer(armed.next_ns, |next_ns| drive.sleep_ns(next_ns))
    }

    fn end(&self, state: &mut State, drive: &dyn Drive) -> bool {
        let Some(armed) = state.armed.take() else { return false };
        armed.unlisten(drive, self.sleeper());
        self.handle.finish(|shard| state.watched &= !(1 << shard));
        true
    }
}

/// Spins before the sleep; true if there is something to do. What ends a sleep in the program's own loop is not known here: after
/// spinning in vain, the wait counts as a long one.
fn spins(
    drive: &dyn Drive,
    sleeper: &Sleeper,
    deadline_ns: Option<u64>,
    ready: &mut impl FnMut() -> bool,
) -> bool {
    let mut spinning = sleeper.spin_wait();
    while spinning.goes_on() && deadline_ns.is_none_or(|deadline_ns| drive.now_ns() < deadline_ns) {
        if drive.poll_free_shards().work > 0 || ready() {
            spinning.event();
            return true;
        }
    }
    spinning.unknown();
    false
}

/// The algorithm, without descriptors: a model checker has none.
///
/// A shard that is free is polled, and armed under its token; from then on its descriptor tells of it, whoever drives it next.
/// Of the others the list of listeners does: after it has been entered there, the shards are looked at once more.
pub(crate) fn arm_with(
    drive: &dyn Drive,
    sleeper: &Arc<Sleeper>,
    deadline_ns: Option<u64>,
    mut ready: impl FnMut() -> bool,
) -> Option<Armed> {
    let tokens = drive.tokens();
    sleeper.prepare();
    let mut armed = Armed { mask: 0, listens: false, next_ns: deadline_ns };
    let mut lacking = 0u64;
    for shard in 0..drive.shards() {
        let Some(claim) = Claim::take(drive, shard) else {
            lacking |= 1 << shard;
            continue;
        };
        let mut polled = drive.poll(shard, POLL_BUDGET);
        let mut idle = polled.work == 0 && drive.arm(shard);
        if !idle && polled.work == 0 {
            // After spinning, a shard may have skipped the system call that finds news: the next poll makes it.
            polled = drive.poll(shard, POLL_BUDGET);
            idle = polled.work == 0 && drive.arm(shard);
        }
        drop(claim);
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
    pub(crate) fn end(self, drive: &dyn Drive, sleeper: &Arc<Sleeper>) {
        self.unlisten(drive, sleeper);
        sleeper.finish();
    }

    fn unlisten(&self, drive: &dyn Drive, sleeper: &Arc<Sleeper>) {
        if self.listens {
            drive.tokens().unlisten(sleeper);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
