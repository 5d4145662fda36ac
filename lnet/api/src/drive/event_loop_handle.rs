//! The interface for programs that sleep in their own event loop: one descriptor for everything
//! that could end a wait.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nlx_sync::PollHandle;

use super::sync::Mutex;
use super::{Claim, Drive, POLL_BUDGET, Poll, Sleeper, shards_of};
use crate::Errno;

/// A waiter that sleeps in a program's own event loop, on one descriptor among others.
///
/// [`EventLoopHandle::arm`] announces each sleep, and [`EventLoopHandle::disarm`] ends it:
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
/// While the loop sleeps no token is held, as the program may not poll again for a long time. The
/// shards that were free when the handle was armed are watched, each for one wake-up. For shards
/// that another thread drives, the sleeper wakes the program, when the awaited event has come or
/// the shard is released. If the program does not poll for a long time, scheduler threads take over
/// the shards, as from any other waiter; they also handle work that a driver may have left and no
/// descriptor reports.
#[derive(Debug)]
pub struct EventLoopHandle {
    handle: PollHandle,
    state: Mutex<EventLoopState>,
}

#[derive(Debug, Default)]
struct EventLoopState {
    armed: Option<Armed>,
    /// The shards whose descriptors have been added to the handle.
    registered: u64,
    /// The shards whose one wake-up has not been used yet.
    watched: u64,
}

/// An announced sleep.
#[derive(Debug)]
pub(crate) struct Armed {
    /// The shards to watch.
    pub(crate) mask: u64,
    /// True if the waiter is on the list of listeners.
    listens: bool,
    next_ns: Option<u64>,
}

impl EventLoopHandle {
    /// Creates a handle that is not armed. It uses three descriptors.
    pub fn new() -> Result<EventLoopHandle, Errno> {
        Ok(EventLoopHandle { handle: PollHandle::new()?, state: Mutex::default() })
    }

    /// Returns the descriptor that is readable when the program should poll again; valid while the
    /// handle is armed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }

    /// Returns the sleeper that a thread with an event for this waiter wakes.
    pub fn sleeper(&self) -> &Arc<Sleeper> {
        self.handle.sleeper()
    }

    /// Announces sleep, unless there is something to do: then it returns false, and nothing is
    /// armed. The shards that are free have been polled; a spinning sleeper ([`Sleeper::spinning`])
    /// polls them for up to its limit. `ready` is as for [`super::wait_until`].
    ///
    /// # Errors
    /// ENOMEM or ENOSPC if the system cannot watch another descriptor.
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

    /// Ends the sleep after the event loop has woken up. Returns `false` if the handle was not
    /// armed.
    pub fn disarm(&self, drive: &dyn Drive) -> bool {
        self.end(&mut self.state.lock(), drive)
    }

    /// Adds the shards to the handle. Each causes one wake-up when it is or becomes readable. A
    /// shard whose wake-up has not been used yet is not added again.
    fn watch(&self, state: &mut EventLoopState, drive: &dyn Drive, armed: &Armed) -> Result<(), Errno> {
        for shard in shards_of(armed.mask & !state.watched) {
            let bit = 1 << shard;
            self.handle.add_once(drive.wait_fd(shard), shard as u64, state.registered & bit != 0)?;
            state.registered |= bit;
            state.watched |= bit;
        }
        self.handle.set_timer(armed.next_ns, |next_ns| drive.sleep_ns(next_ns))
    }

    fn end(&self, state: &mut EventLoopState, drive: &dyn Drive) -> bool {
        let Some(armed) = state.armed.take() else { return false };
        armed.unlisten(drive, self.sleeper());
        self.handle.finish(|shard| state.watched &= !(1 << shard));
        true
    }
}

/// Spins before the sleep; returns `true` if there is something to do. The end of a sleep in the
/// program's own loop is not visible here: after spinning in vain, the wait counts as a long one.
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

/// Arms the shards for a program's event loop. Uses no descriptors, because a model checker has
/// none.
///
/// A shard that is free is polled, and armed under its token; from then on its descriptor reports
/// events, even if another thread drives it next. For the other shards this waiter joins the list
/// of listeners, and then checks the shards once more.
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
            // While it spins, a shard may have skipped the system call that finds new events; the
            // next poll makes it.
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
    /// Ends the announced sleep.
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
