use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nlx_sync::Bell;
use smallvec::SmallVec;

use super::sync::{AtomicBool, Ordering};
use super::{Drive, MAX_SHARDS, POLL_BUDGET, Poll, Sleeper, shards_of};
use crate::Errno;

/// Waits until `ready` says so (`true`), or until the deadline has passed or the node has been shut down
/// ([`Drive::ending`]; `false`, and `ready` is asked once more then). While it waits it drives the shards whose tokens are
/// free. `None` waits without end.
///
/// `ready` is asked often and must be cheap; it becomes true by what the polling itself delivers, or by another thread
/// that then calls `sleeper.wake()`. Once it has said so it is not asked again, so it may use up what it found. One
/// sleeper serves one waiting thread at a time.
///
/// It spins before it sleeps if the sleeper does ([`Sleeper::spinning`]).
pub fn wait_until(
    drive: &dyn Drive,
    sleeper: &Arc<Sleeper>,
    deadline_ns: Option<u64>,
    ready: impl FnMut() -> bool,
) -> bool {
    wait_with(drive, sleeper, deadline_ns, ready, sleep_on_descriptors)
}

/// The algorithm, with the sleep itself left open: a model checker cannot sleep in the kernel.
///
/// After a sleep only those shards are polled whose descriptors were readable: most often that is one, and brings what is
/// waited for. Before the next sleep every other shard is polled too, as it is whenever a round has found work.
pub(crate) fn wait_with(
    drive: &dyn Drive,
    sleeper: &Arc<Sleeper>,
    deadline_ns: Option<u64>,
    mut ready: impl FnMut() -> bool,
    sleep: impl Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64,
) -> bool {
    if ready() {
        return true;
    }
    let mut held = Held { drive, mask: 0 };
    let never = Poll { work: 0, deadline_ns };
    let mut idle = Idle { mask: 0, polled: never };
    let mut spinning = sleeper.spin_wait();
    loop {
        held.claim_free();
        let polled = held.poll(held.mask & !idle.mask);
        // What came before the end counts.
        let ended = drive.has_ended();
        if ready() {
            spinning.event();
            return true;
        }
        if ended || deadline_ns.is_some_and(|deadline| drive.now_ns() >= deadline) {
            return false;
        }
        let all = polled.and(idle.polled);
        idle = Idle { mask: 0, polled: never };
        if all.work > 0 {
            spinning.event();
            continue;
        }
        if spinning.goes_on() {
            continue;
        }
        match held.sleep_unless(sleeper, all.deadline_ns, &mut ready, &sleep) {
            Slept::Ready => {
                spinning.event();
                return true;
            }
            Slept::Not => {}
            Slept::Until(readable) => {
                spinning.slept();
                if readable != 0 {
                    idle = held.poll_first(readable, never);
                }
                let is_ready = ready();
                if is_ready || idle.mask != readable {
                    spinning.event();
                }
                if is_ready {
                    return true;
                }
            }
        }
    }
}

/// Shards that were polled a moment ago, and what that found; no work means that they need not be polled again.
struct Idle {
    mask: u64,
    polled: Poll,
}

/// How an attempt to sleep ended.
enum Slept {
    /// What is waited for came before the sleep.
    Ready,
    /// There is something to do first.
    Not,
    /// Until these shards became readable; none, if something else ended it.
    Until(u64),
}

/// The tokens a waiter holds: bit `n` for shard `n`. Dropping it releases them.
struct Held<'a> {
    drive: &'a dyn Drive,
    mask: u64,
}

impl Held<'_> {
    fn claim_free(&mut self) {
        for shard in shards_of(all_of(self.drive) & !self.mask) {
            if self.drive.tokens().claim(shard) {
                self.mask |= 1 << shard;
            }
        }
    }

    fn poll(&self, mask: u64) -> Poll {
        shards_of(mask).map(|shard| self.drive.poll(shard, POLL_BUDGET)).fold(Poll::default(), Poll::and)
    }

    /// Polls some before the others.
    fn poll_first(&self, mask: u64, never: Poll) -> Idle {
        let mut idle = Idle { mask: 0, polled: never };
        for shard in shards_of(mask) {
            let polled = self.drive.poll(shard, POLL_BUDGET);
            if polled.work == 0 {
                idle.mask |= 1 << shard;
                idle.polled = idle.polled.and(polled);
            }
        }
        idle
    }

    fn arm(&self) -> bool {
        shards_of(self.mask).all(|shard| self.drive.arm(shard))
    }

    /// Announces sleep, looks once more at everything that could have changed before the announcement, then sleeps. If
    /// `ready` says so at that look it is not asked again: it may not say so a second time.
    fn sleep_unless(
        &mut self,
        sleeper: &Arc<Sleeper>,
        next_ns: Option<u64>,
        ready: &mut impl FnMut() -> bool,
        sleep: &impl Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64,
    ) -> Slept {
        let lacking = self.mask != all_of(self.drive);
        sleeper.prepare();
        if lacking {
            self.drive.tokens().join(sleeper);
        }
        let before = self.mask;
        self.claim_free();
        let slept = if self.mask != before || !self.arm() {
            Slept::Not
        } else if ready() {
            Slept::Ready
        } else {
            Slept::Until(sleep(self.drive, self.mask, sleeper, next_ns))
        };
        if lacking {
            self.drive.tokens().leave(sleeper);
        }
        sleeper.finish();
        slept
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.drive.tokens().release_all(self.mask, self.drive.now_ns());
    }
}

/// A bit for each shard there is.
fn all_of(drive: &dyn Drive) -> u64 {
    let none = u64::MAX.checked_shl(drive.shards() as u32).unwrap_or(0);
    !none
}

/// That a node has been shut down, for whoever waits: a descriptor that is readable from then on.
#[derive(Debug)]
pub struct Ending {
    over: AtomicBool,
    bell: Bell,
}

impl Ending {
    /// Of a node that lives.
    ///
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn new() -> Result<Ending, Errno> {
        Ok(Ending { over: AtomicBool::new(false), bell: Bell::new()? })
    }

    /// Ends every wait on the node, those to come as well: nobody ever silences the bell.
    pub fn end(&self) {
        if !self.over.swap(true, Ordering::Release) {
            // No error: the bell is its own.
            let _ = self.bell.ring();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Room for the descriptors of every shard, of a sleeper and of the node's ending, in one of the sizes that small vectors have.
const FDS_MAX: usize = 96;
const _: () = assert!(FDS_MAX >= MAX_SHARDS + 2);

/// Sleeps until a held shard or the sleeper becomes readable, or until `next_ns`; gives the shards that are readable.
pub(super) fn sleep_on_descriptors(
    drive: &dyn Drive,
    mask: u64,
    sleeper: &Sleeper,
    next_ns: Option<u64>,
) -> u64 {
    let shards = shards_of(mask).map(|shard| drive.wait_fd(shard));
    let fds = shards.chain(sleeper.fd()).chain(drive.ending().map(Ending::fd));
    let mut set: SmallVec<[PollFd<'_>; FDS_MAX]> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let timeout = next_ns.map(|next| Duration::from_nanos(drive.sleep_ns(next)).into());
    match ppoll(&mut set, timeout, None) {
        Ok(1..) => {
            let is_readable = |fd: &PollFd<'_>| fd.revents().is_none_or(|events| !events.is_empty());
            let readable = shards_of(mask).zip(&set).filter(|(_, fd)| is_readable(fd));
            readable.fold(0, |readable, (shard, _)| readable | 1 << shard)
        }
        // EINTR and every other answer mean the same: look again.
        _ => 0,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
