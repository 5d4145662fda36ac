//! Waiting for a condition while driving the network: [`wait_until`], and the end of a node.
//!
//! A waiter loops: it takes the tokens of free shards, polls these shards, and checks its
//! condition. When no shard has work it announces that it is about to sleep, checks everything
//! once more, and sleeps on the descriptors of its shards and of its [`Sleeper`]. The tokens that
//! it holds ([`HeldTokens`]) are released when the wait ends.

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

/// The time for which a waiter must have had work on several shards, in one round or in several
/// without a break, before it shares them: longer than a burst of messages takes, so that a waiter
/// that keeps up alone keeps its shards. In a model: the duration of two polls that take time.
pub(super) const SHARED_AFTER_NS: u64 = if cfg!(all(test, loom)) { 4 } else { 1_000_000 };

/// Waits until `ready` returns true; returns `true` then. Returns `false` if the deadline has
/// passed or the node has been shut down ([`Drive::ending`]), after one more call of `ready`. While
/// it waits it drives the shards whose tokens are free. `None` means no deadline.
///
/// `ready` is called often and must be cheap. It becomes true because of events that the polling
/// delivers, or because of another thread, which then calls `sleeper.wake()`. After it has returned
/// true it is not called again, so it may consume what it found. One sleeper serves one waiting
/// thread at a time.
///
/// The waiter spins before it sleeps if the sleeper has a spin limit ([`Sleeper::spinning`]).
///
/// Under load, several waiting threads divide the shards: a thread that has had work on several
/// shards for a millisecond gives half of them to other waiting threads, or to the shards'
/// scheduler threads. Any waiting thread may take a shard that its driver does not poll for a while
/// because the handlers of another shard are running.
pub fn wait_until(
    drive: &dyn Drive,
    sleeper: &Arc<Sleeper>,
    deadline_ns: Option<u64>,
    ready: impl FnMut() -> bool,
) -> bool {
    wait_with(drive, sleeper, deadline_ns, ready, sleep_on_descriptors)
}

/// Does the work of [`wait_until`], with the sleep as a parameter: a model checker cannot sleep in
/// the kernel.
///
/// After a sleep, only the shards whose descriptors were readable are polled: usually a single one,
/// which has the awaited event. If the condition is still false, the next round polls the other
/// shards, and those that had work; readable shards without work (`idle`) are skipped once.
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
    let mut held = HeldTokens::none(drive, sleeper, &mark);
    let never = Poll { work: 0, deadline_ns };
    let mut idle = PollRound { mask: 0, found: never };
    let mut spinning = sleeper.spin_wait();
    let mut now_ns = drive.now_ns();
    loop {
        let began_ns = now_ns;
        held.take_free(began_ns);
        let polled = held.poll(held.mask & !idle.mask, began_ns);
        // Events that arrived before the node's end still end the wait with `true`.
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
        idle = PollRound { mask: 0, found: never };
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
                // Shards without work need not be polled again.
                let found = Poll { work: 0, ..polled.found }.and(never);
                idle = PollRound { mask: readable & !polled.mask, found };
            }
        }
    }
}

/// The combined result of polling some shards.
struct PollRound {
    /// From [`HeldTokens::poll`]: the shards that had work. In `idle`: the shards that had none and
    /// need not be polled in the next round.
    mask: u64,
    found: Poll,
}

/// Result of [`HeldTokens::sleep_unless`].
enum Slept {
    /// The awaited event came before the sleep.
    Ready,
    /// The waiter did not sleep, because a shard must be polled first.
    Not,
    /// The waiter slept, and these shards are readable; 0 if the sleeper, the timer or the node's
    /// end woke it.
    Until(u64),
}

/// The tokens that a waiter has taken: bit `n` for shard `n`. Dropping it releases them.
struct HeldTokens<'a> {
    drive: &'a dyn Drive,
    sleeper: &'a Arc<Sleeper>,
    waiter: Holder,
    mask: u64,
    /// The mask of all shards and the number of releases at the last check for free tokens. While
    /// both are unchanged, no token has become free.
    checked: Option<(u64, usize)>,
    /// The time of the waiter's next check for tokens that can be taken from other holders.
    check_ns: u64,
    /// The time for which the waiter has had work on several shards, in nanoseconds.
    loaded_ns: u64,
}

impl<'a> HeldTokens<'a> {
    fn none(drive: &'a dyn Drive, sleeper: &'a Arc<Sleeper>, mark: &'a Mark) -> HeldTokens<'a> {
        let waiter = Holder::of_wait(mark);
        HeldTokens { drive, sleeper, waiter, mask: 0, checked: None, check_ns: 0, loaded_ns: 0 }
    }

    /// Takes tokens that have become free. A waiter that already holds tokens leaves the free ones
    /// to the waiters that were woken for them.
    fn take_free(&mut self, now_ns: u64) {
        let tokens = self.drive.tokens();
        let all = all_of(self.drive);
        if self.mask == all || self.mask != 0 && tokens.wanted() {
            return;
        }
        let known = Some((all, tokens.releases()));
        if self.checked == known && now_ns < self.check_ns {
            return;
        }
        (self.checked, self.check_ns) = (known, now_ns.saturating_add(TAKEN_AFTER_NS));
        self.take(now_ns);
    }

    fn take(&mut self, now_ns: u64) {
        for shard in shards_of(all_of(self.drive) & !self.mask) {
            if self.drive.tokens().take(shard, self.waiter, now_ns) {
                self.mask |= 1 << shard;
            }
        }
    }

    /// Polls the held shards of `mask`, first those that delivered this sleeper's last awaited
    /// event.
    fn poll(&mut self, mask: u64, mut now_ns: u64) -> PollRound {
        let first = mask & self.sleeper.memo();
        let mut polled = PollRound { mask: 0, found: Poll::default() };
        for shard in shards_of(first).chain(shards_of(mask & !first)) {
            let bit = 1 << shard;
            if !self.drive.tokens().begin(shard, self.waiter) {
                self.mask &= !bit;
                continue;
            }
            let found = self.drive.poll(shard, POLL_BUDGET);
            if found.work > 0 {
                polled.mask |= bit;
                // The handlers of a shard may have taken long, while other shards were not polled.
                if self.mask != bit {
                    now_ns = self.drive.now_ns();
                }
            }
            self.drive.tokens().end(shard, self.waiter, now_ns);
            polled.found = polled.found.and(found);
        }
        polled
    }

    /// Records in the sleeper which shards delivered the awaited event, if any.
    fn remember(&self, mask: u64) {
        if mask != 0 {
            self.sleeper.set_memo(mask);
        }
    }

    /// Shares the load after a round that found work on the shards of `worked`: if several shards
    /// have had work for [`SHARED_AFTER_NS`], gives half of them to other threads.
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

    /// Selects half of these shards to give to other threads: first those of other partitions, and
    /// last those that delivered this waiter's last awaited event.
    fn half(&self, mask: u64) -> u64 {
        let (fed, near) = (self.sleeper.memo(), self.drive.near());
        let by_distance = [!near & !fed, near & !fed, !near & fed, near & fed];
        let order = by_distance.into_iter().flat_map(|some| shards_of(mask & some));
        order.take(mask.count_ones() as usize / 2).fold(0, |half, shard| half | 1 << shard)
    }

    fn arm(&self) -> bool {
        shards_of(self.mask).all(|shard| self.drive.arm(shard))
    }

    /// Announces sleep, checks once more everything that could have changed before the
    /// announcement, then sleeps. If `ready` returns true at that check it is not called again: it
    /// may not return true a second time.
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
        let announced = AnnouncedSleep::enter(self, lacks);
        if lacks {
            self.take(self.drive.now_ns());
        }
        // A shard that was lost and taken again must be polled first, because its holder in between
        // may have left work.
        if self.mask != had || self.mask != announced.watched || !self.arm() {
            return Slept::Not;
        }
        if ready() {
            return Slept::Ready;
        }
        let readable = sleep(self.drive, self.mask, self.sleeper, next_ns);
        if lacks {
            // While this waiter is on the list, other waiters leave it the shards for which it was
            // woken.
            self.take(self.drive.now_ns());
        }
        Slept::Until(readable)
    }
}

/// An announced sleep. Dropping it ends the sleep, also when a callback panics.
struct AnnouncedSleep<'a> {
    drive: &'a dyn Drive,
    sleeper: &'a Arc<Sleeper>,
    waiter: Holder,
    /// The shards on which the waiter sleeps.
    watched: u64,
    /// True if the waiter is on the list of waiters that lack a token.
    lacks: bool,
}

impl<'a> AnnouncedSleep<'a> {
    /// Announces the sleep of a waiter that is marked as asleep on its shards.
    fn enter(held: &HeldTokens<'a>, lacks: bool) -> AnnouncedSleep<'a> {
        let &HeldTokens { drive, sleeper, waiter, mask: watched, .. } = held;
        sleeper.prepare();
        if lacks {
            drive.tokens().join(sleeper);
        }
        AnnouncedSleep { drive, sleeper, waiter, watched, lacks }
    }
}

impl Drop for AnnouncedSleep<'_> {
    fn drop(&mut self) {
        let tokens = self.drive.tokens();
        if self.lacks {
            tokens.leave(self.sleeper);
        }
        self.sleeper.finish();
        tokens.rouse(self.watched, self.waiter, self.drive.now_ns());
    }
}

impl Drop for HeldTokens<'_> {
    fn drop(&mut self) {
        self.drive.tokens().drop_by(self.mask, self.waiter, self.drive.now_ns());
    }
}

/// Returns the mask of all shards.
fn all_of(drive: &dyn Drive) -> u64 {
    let none = u64::MAX.checked_shl(drive.shards() as u32).unwrap_or(0);
    !none
}

/// Shutdown flag of a node, with a descriptor that is readable once the flag is set.
#[derive(Debug)]
pub struct ShutdownFlag {
    over: AtomicBool,
    bell: Bell,
}

impl ShutdownFlag {
    /// Creates the flag, not set.
    ///
    /// # Errors
    /// EMFILE or ENFILE when there are no descriptors left.
    pub fn new() -> Result<ShutdownFlag, Errno> {
        Ok(ShutdownFlag { over: AtomicBool::new(false), bell: Bell::new()? })
    }

    /// Ends every wait on the node, including later ones, because the bell is never silenced.
    pub fn end(&self) {
        if !self.over.swap(true, Ordering::Release) {
            // This cannot fail, because the bell is not shared with another process.
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

/// Capacity for the descriptors of every shard, of a sleeper and of the node's ending, as one of
/// the sizes that small vectors support.
const FDS_MAX: usize = 96;
const _: () = assert!(FDS_MAX >= MAX_SHARDS + 2);

/// Sleeps until a held shard or the sleeper becomes readable, or until `next_ns`; returns the
/// shards that are readable.
pub(super) fn sleep_on_descriptors(
    drive: &dyn Drive,
    mask: u64,
    sleeper: &Sleeper,
    next_ns: Option<u64>,
) -> u64 {
    let shards = shards_of(mask).map(|shard| drive.wait_fd(shard));
    let fds = shards.chain(sleeper.fd()).chain(drive.ending().map(ShutdownFlag::fd));
    let mut set: SmallVec<[PollFd<'_>; FDS_MAX]> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    let timeout = next_ns.map(|next| Duration::from_nanos(drive.sleep_ns(next)).into());
    match ppoll(&mut set, timeout, None) {
        Ok(1..) => {
            let is_readable = |fd: &PollFd<'_>| fd.revents().is_none_or(|events| !events.is_empty());
            let readable = shards_of(mask).zip(&set).filter(|(_, fd)| is_readable(fd));
            readable.fold(0, |readable, (shard, _)| readable | 1 << shard)
        }
        // After EINTR and every other result, the caller checks again.
        _ => 0,
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
