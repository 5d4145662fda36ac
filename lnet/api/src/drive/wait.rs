use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nlx_sync::{Bell, rule};
use smallvec::SmallVec;

use super::rules::SHARE;
use super::sync::{AtomicBool, Ordering};
use super::token::{Holder, Mark, TAKEN_AFTER_NS};
use super::{Drive, MAX_SHARDS, POLL_BUDGET, Poll, Sleeper, shards_of};
use crate::Errno;

/// How long a waiter must have had work on several shards, in one round or in several without a break, until it shares them: longer
/// than a burst of messages takes, so that a thread that keeps up alone is not joined by others. In a model, as long as two polls
/// that take time.
pub(super) const SHARED_AFTER_NS: u64 = if cfg!(all(test, loom)) { 4 } else { 1_000_000 };

/// Waits until `ready` says so (`true`), or until the deadline has passed or the node has been shut down
/// ([`Drive::ending`]; `false`, and `ready` is asked once more then). While it waits it drives the shards whose tokens are
/// free. `None` waits without end.
///
/// `ready` is asked often and must be cheap; it becomes true by what the polling itself delivers, or by another thread
/// that then calls `sleeper.wake()`. Once it has said so it is not asked again, so it may use up what it found. One
/// sleeper serves one waiting thread at a time.
///
/// It spins before it sleeps if the sleeper does ([`Sleeper::spinning`]).
///
/// Several threads that wait divide the shards when there is load: who has had work on several for long gives half of them
/// to others that wait, or to their scheduler threads; and a shard that its driver does not come back to, because handlers run, is
/// taken by whoever comes.
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
    let mark = Mark::default();
    let mut held = Held::none(drive, sleeper, &mark);
    let never = Poll { work: 0, deadline_ns };
    let mut idle = Polled { mask: 0, found: never };
    let mut spinning = sleeper.spin_wait();
    let mut now_ns = drive.now_ns();
    loop {
        let began_ns = now_ns;
        held.look(began_ns);
        let polled = held.poll(held.mask & !idle.mask, began_ns);
        // What came before the end counts.
        let ended = drive.has_ended();
        if ready() {
            held.remember(polled.mask);
            spinning.event();
            return true;
        }
        now_ns = drive.now_ns();
        if ended || deadline_ns.is_some_and(|deadline| now_ns >= deadline) {
            return false;
        }
        rule!(SHARE, held.share(polled.mask, (began_ns, now_ns)));
        let all = polled.found.and(idle.found);
        idle = Polled { mask: 0, found: never };
        if all.work > 0 {
            spinning.event();
            continue;
        }
        if spinning.goes_on() {
            continue;
        }
        match held.sleep_unless(all.deadline_ns, &mut ready, &sleep) {
            Slept::Ready => {
                spinning.event();
                return true;
            }
            Slept::Not => {}
            Slept::Until(readable) => {
                spinning.slept();
                now_ns = drive.now_ns();
                let polled = held.poll(readable, now_ns);
                let is_ready = ready();
                if is_ready || polled.found.work > 0 {
                    spinning.event();
                }
                if is_ready {
                    held.remember(polled.mask);
                    return true;
                }
                // Those without work need not be polled again.
                let found = Poll { work: 0, ..polled.found }.and(never);
                idle = Polled { mask: readable & !polled.mask, found };
            }
        }
    }
}

/// What polls of some shards found.
struct Polled {
    /// The shards: those that had work, or those that had none.
    mask: u64,
    found: Poll,
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

/// The tokens that a waiter has taken: bit `n` for shard `n`. Dropping it lets go of them.
struct Held<'a> {
    drive: &'a dyn Drive,
    sleeper: &'a Arc<Sleeper>,
    waiter: Holder,
    mask: u64,
    /// What it knows of the tokens that it lacks: the shards there were, and how often tokens had been released, when it last
    /// looked; and when it looks again whether one has been left lying.
    looked: Option<(u64, usize)>,
    look_ns: u64,
    /// For how long it has had work on several shards.
    loaded_ns: u64,
}

impl<'a> Held<'a> {
    fn none(drive: &'a dyn Drive, sleeper: &'a Arc<Sleeper>, mark: &'a Mark) -> Held<'a> {
        let waiter = Holder::of_wait(mark);
        Held { drive, sleeper, waiter, mask: 0, looked: None, look_ns: 0, loaded_ns: 0 }
    }

    /// Takes what has become free. Who has some leaves the others to those who were woken for them.
    fn look(&mut self, now_ns: u64) {
        let tokens = self.drive.tokens();
        let all = all_of(self.drive);
        if self.mask == all || self.mask != 0 && tokens.wanted() {
            return;
        }
        let known = Some((all, tokens.releases()));
        if self.looked == known && now_ns < self.look_ns {
            return;
        }
        (self.looked, self.look_ns) = (known, now_ns.saturating_add(TAKEN_AFTER_NS));
        self.take(now_ns);
    }

    fn take(&mut self, now_ns: u64) {
        for shard in shards_of(all_of(self.drive) & !self.mask) {
            if self.drive.tokens().take(shard, self.waiter, now_ns) {
                self.mask |= 1 << shard;
            }
        }
    }

    /// Polls shards of its own: those first that brought what this sleeper waited for last.
    fn poll(&mut self, mask: u64, mut now_ns: u64) -> Polled {
        let first = mask & self.sleeper.memo();
        let mut polled = Polled { mask: 0, found: Poll::default() };
        for shard in shards_of(first).chain(shards_of(mask & !first)) {
            let bit = 1 << shard;
            if !self.drive.tokens().begin(shard, self.waiter) {
                self.mask &= !bit;
                continue;
            }
            let found = self.drive.poll(shard, POLL_BUDGET);
            if found.work > 0 {
                polled.mask |= bit;
                // Its handlers may have taken long, while other shards lay there.
                if self.mask != bit {
                    now_ns = self.drive.now_ns();
                }
            }
            self.drive.tokens().end(shard, self.waiter, now_ns);
            polled.found = polled.found.and(found);
        }
        polled
    }

    /// What was waited for has come, from one of these shards if there are any.
    fn remember(&self, mask: u64) {
        if mask != 0 {
            self.sleeper.set_memo(mask);
        }
    }

    /// After a round that found work on some shards: gives half of them to others, if it has been so for long.
    fn share(&mut self, worked: u64, (began_ns, now_ns): (u64, u64)) {
        if worked.count_ones() < 2 {
            self.loaded_ns = 0;
            return;
        }
        self.loaded_ns += now_ns.saturating_sub(began_ns);
        if self.loaded_ns < SHARED_AFTER_NS {
            return;
        }
        self.loaded_ns = 0;
        let tokens = self.drive.tokens();
        if tokens.wanted() {
            let given = self.half(worked);
            self.mask &= !given;
            tokens.drop_by(given, self.waiter, now_ns);
        } else if self.drive.has_spare_processor() {
            let given = shards_of(self.half(worked)).filter(|&shard| tokens.give(shard, self.waiter, now_ns));
            self.mask &= !given.fold(0, |given, shard| given | 1 << shard);
        }
    }

    /// Half of these shards: those of other partitions first, and last those that brought what this waiter waits for.
    fn half(&self, mask: u64) -> u64 {
        let (fed, near) = (self.sleeper.memo(), self.drive.near());
        let by_distance = [!near & !fed, near & !fed, !near & fed, near & fed];
        let order = by_distance.into_iter().flat_map(|some| shards_of(mask & some));
        order.take(mask.count_ones() as usize / 2).fold(0, |half, shard| half | 1 << shard)
    }

    fn arm(&self) -> bool {
        shards_of(self.mask).all(|shard| self.drive.arm(shard))
    }

    /// Announces sleep, looks once more at everything that could have changed before the announcement, then sleeps. If
    /// `ready` says so at that look it is not asked again: it may not say so a second time.
    fn sleep_unless(
        &mut self,
        next_ns: Option<u64>,
        ready: &mut impl FnMut() -> bool,
        sleep: &impl Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64,
    ) -> Slept {
        let tokens = self.drive.tokens();
        let had = self.mask;
        self.mask = tokens.doze(had, self.waiter);
        let lacks = self.mask != all_of(self.drive);
        let bed = Bed::enter(self, lacks);
        if lacks {
            self.take(self.drive.now_ns());
        }
        // A shard that it has lost and taken again must be polled first: who had it may have left something.
        if self.mask != had || self.mask != bed.watched || !self.arm() {
            return Slept::Not;
        }
        if ready() {
            return Slept::Ready;
        }
        let readable = sleep(self.drive, self.mask, self.sleeper, next_ns);
        if lacks {
            // While this waiter is on the list, other waiters leave it the shards that it was woken for.
            self.take(self.drive.now_ns());
        }
        Slept::Until(readable)
    }
}

/// A sleep that has been announced. Dropping it ends it, also when what is waited for panics.
struct Bed<'a> {
    drive: &'a dyn Drive,
    sleeper: &'a Arc<Sleeper>,
    waiter: Holder,
    /// The shards that it watches.
    watched: u64,
    /// It stands among those who lack a token.
    lacks: bool,
}

impl<'a> Bed<'a> {
    /// For a waiter that has dozed off on its shards.
    fn enter(held: &Held<'a>, lacks: bool) -> Bed<'a> {
        let &Held { drive, sleeper, waiter, mask: watched, .. } = held;
        sleeper.prepare();
        if lacks {
            drive.tokens().join(sleeper);
        }
        Bed { drive, sleeper, waiter, watched, lacks }
    }
}

impl Drop for Bed<'_> {
    fn drop(&mut self) {
        let tokens = self.drive.tokens();
        if self.lacks {
            tokens.leave(self.sleeper);
        }
        self.sleeper.finish();
        tokens.rouse(self.watched, self.waiter, self.drive.now_ns());
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.drive.tokens().drop_by(self.mask, self.waiter, self.drive.now_ns());
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
