//! Scheduler threads: each drives its shard while no other thread polls it, and one of them, the
//! keeper, watches for such shards.

use std::sync::Arc;
use std::time::Duration;

use nlx_sync::rule;

use super::rules::{LEAVE, REST};
use super::sync::{AtomicBool, AtomicU64, Ordering, fence};
use super::wait::sleep_on_descriptors;
use super::{Drive, POLL_BUDGET, Sleeper, shards_of};

/// The scheduler threads' watch over the shards of a node (S-203, S-312): each shard has a thread
/// that serves it ([`Watch::serve`]).
///
/// One thread at a time keeps watch, the keeper: it checks once in a grace period which shards are
/// neglected, and wakes a waiter that lacks a shard, or otherwise the scheduler threads of the
/// neglected shards; the other threads sleep without a timer. The keeper leaves the watch to
/// another thread when its own shard needs it. No timer runs while each shard is attended to: its
/// driver sleeps on it, or has it exclusively. A thread that ends this state wakes the keeper.
#[derive(Debug)]
pub struct Watch {
    grace_ns: u64,
    /// Set while a thread keeps watch.
    kept: AtomicBool,
    /// A bit for each scheduler thread that sleeps, or is about to, because another thread keeps
    /// watch.
    resting: AtomicU64,
    ended: AtomicBool,
}

impl Watch {
    /// Creates a watch without a keeper, over shards that may be unpolled for `grace` before their
    /// scheduler threads take them.
    pub fn new(grace: Duration) -> Watch {
        Watch {
            grace_ns: u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX),
            kept: AtomicBool::new(false),
            resting: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// Serves a shard as its scheduler thread until the watch has ended: drives the shard while it
    /// is neglected, and keeps watch in its turn. The sleeper is the one set before by
    /// [`super::Tokens::set_sched_thread`].
    pub fn serve(&self, drive: &dyn Drive, shard: usize, sleeper: &Arc<Sleeper>) {
        self.serve_with(drive, shard, sleeper, sleep_on_descriptors);
    }

    /// Does the work of [`Watch::serve`], with the sleep as a parameter: a model checker cannot
    /// sleep in the kernel.
    pub(crate) fn serve_with(
        &self,
        drive: &dyn Drive,
        shard: usize,
        sleeper: &Arc<Sleeper>,
        sleep: impl Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64,
    ) {
        let sched_thread = SchedThread { watch: self, drive, shard, sleeper, sleep };
        while !self.has_ended() {
            if sched_thread.keeps_watch() {
                drive_shard_with(drive, shard, sleeper, || self.has_ended(), &sched_thread.sleep);
            } else {
                sched_thread.rest();
            }
        }
    }

    /// Ends the watch, and every scheduler thread of the node.
    pub fn end(&self, drive: &dyn Drive) {
        self.ended.store(true, Ordering::Release);
        (0..drive.shards()).for_each(|shard| drive.tokens().wake_sched_thread(shard));
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns whether a shard is neglected: it has connections or listeners, and no thread has
    /// polled it for a grace period.
    fn is_neglected(&self, drive: &dyn Drive, shard: usize) -> bool {
        let since_ns = drive.now_ns().saturating_sub(self.grace_ns);
        drive.tokens().is_left_since(shard, since_ns) && drive.is_active(shard)
    }
}

struct SchedThread<'a, S> {
    watch: &'a Watch,
    drive: &'a dyn Drive,
    shard: usize,
    sleeper: &'a Arc<Sleeper>,
    sleep: S,
}

impl<S: Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64> SchedThread<'_, S> {
    /// Keeps watch until the thread's own shard is neglected, or the watch ends. If another thread
    /// keeps watch, returns at once whether the own shard needs this thread.
    fn keeps_watch(&self) -> bool {
        let watch = self.watch;
        if watch.kept.swap(true, Ordering::AcqRel) {
            return self.is_needed();
        }
        // Number of releases before the last sleep, if that sleep had a timer and all shards seemed
        // attended to.
        let mut quiet = None;
        while !watch.has_ended() && !self.is_needed() {
            // While shards are in use this thread sleeps with a timer, so that waiters pay no
            // system call to keep it asleep. If all shards are attended to, and no token has been
            // released for a grace period, it sleeps without a timer, and the thread that leaves a
            // shard unattended wakes it. Such wake-ups are rare: the next sleep has a timer again.
            let tokens = self.drive.tokens();
            let releases = Some(tokens.releases()).filter(|_| tokens.seem_attended());
            let rests = releases.is_some() && quiet == releases;
            if rests {
                tokens.set_keeper(self.shard);
            }
            let look_ns = self.drive.now_ns().saturating_add(watch.grace_ns);
            // SYNC tokens.keeper, tokens.call: the announcement of sleep is the barrier before this
            // check.
            let stays = || !tokens.is_given(self.shard, self.sleeper) && (!rests || tokens.all_attended());
            self.sleep_while(Some(look_ns).filter(|_| !rests), || !watch.has_ended() && stays());
            tokens.clear_keeper();
            quiet = releases.filter(|_| !rests);
            self.help_neglected();
        }
        // A swap, not a plain store: a model would order a store before swaps of other threads that
        // it follows in reality.
        watch.kept.swap(false, Ordering::AcqRel);
        // SYNC watch.kept: either this thread sees a resting scheduler thread, or that thread sees
        // that the watch is not kept.
        fence(Ordering::SeqCst);
        let next = shards_of(watch.resting.load(Ordering::Relaxed)).next();
        if let Some(next) = next {
            rule!(LEAVE, self.drive.tokens().wake_sched_thread(next));
        }
        true
    }

    /// Sleeps until the thread's own shard may need it, the watch has no keeper, or the watch has
    /// ended.
    fn rest(&self) {
        let watch = self.watch;
        let announce = || watch.resting.fetch_or(1 << self.shard, Ordering::Relaxed);
        // SYNC watch.kept: the announcement of sleep is the barrier between the announcement of
        // rest and this check.
        let stays = || !watch.has_ended() && watch.kept.load(Ordering::Acquire) && !self.is_needed();
        rule!(REST, announce(), then = self.sleep_while(None, stays));
        watch.resting.fetch_and(!(1 << self.shard), Ordering::Relaxed);
    }

    /// Wakes a driver for each neglected shard.
    fn help_neglected(&self) {
        let tokens = self.drive.tokens();
        let neglected = (0..self.drive.shards()).filter(|&shard| self.watch.is_neglected(self.drive, shard));
        if tokens.wanted() {
            // One waiter is enough, because it takes all shards that are left.
            neglected.take(1).for_each(|_| tokens.offer());
        } else {
            let resting = self.watch.resting.load(Ordering::Relaxed);
            neglected
                .filter(|shard| resting >> shard & 1 != 0)
                .for_each(|shard| tokens.wake_sched_thread(shard));
        }
    }

    /// Returns whether the thread's own shard needs it.
    fn is_needed(&self) -> bool {
        let tokens = self.drive.tokens();
        let is_neglected = || !tokens.wanted() && self.watch.is_neglected(self.drive, self.shard);
        tokens.is_given(self.shard, self.sleeper) || is_neglected()
    }

    /// Announces sleep, and sleeps if `stays` still holds.
    fn sleep_while(&self, until_ns: Option<u64>, stays: impl FnOnce() -> bool) {
        self.sleeper.prepare();
        if stays() {
            (self.sleep)(self.drive, 0, self.sleeper, until_ns);
        }
        self.sleeper.finish();
    }
}

/// Drives one shard as its scheduler thread, until a waiter requests the shard or `over` returns
/// true. Returns at once if another thread drives the shard.
///
/// `over` is made true by another thread, which then calls `sleeper.wake()`. The sleeper is the one
/// set before by [`super::Tokens::set_sched_thread`].
pub fn drive_shard(drive: &dyn Drive, shard: usize, sleeper: &Arc<Sleeper>, over: impl Fn() -> bool) {
    drive_shard_with(drive, shard, sleeper, over, sleep_on_descriptors);
}

/// Does the work of [`drive_shard`], with the sleep as a parameter: a model checker cannot sleep in
/// the kernel.
pub(crate) fn drive_shard_with(
    drive: &dyn Drive,
    shard: usize,
    sleeper: &Arc<Sleeper>,
    over: impl Fn() -> bool,
    sleep: impl Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64,
) {
    let tokens = drive.tokens();
    let duty = Duty::begin(drive, shard, sleeper);
    if !duty.has_token {
        return;
    }
    let stop = || over() || tokens.is_called_off(shard);
    let mut spinning = sleeper.spin_wait();
    while !stop() {
        let polled = drive.poll(shard, POLL_BUDGET);
        if polled.work > 0 {
            spinning.event();
            continue;
        }
        if spinning.goes_on() {
            continue;
        }
        sleeper.prepare();
        if !stop() && drive.arm(shard) {
            sleep(drive, 1 << shard, sleeper, polled.deadline_ns);
            spinning.slept();
        }
        sleeper.finish();
    }
}

/// A scheduler thread on duty, with the token if it could be taken; dropping it ends the duty and
/// releases the token.
struct Duty<'a> {
    drive: &'a dyn Drive,
    shard: usize,
    has_token: bool,
}

impl Duty<'_> {
    fn begin<'a>(drive: &'a dyn Drive, shard: usize, sleeper: &Arc<Sleeper>) -> Duty<'a> {
        let tokens = drive.tokens();
        tokens.sched_thread_begins(shard);
        let has_token = tokens.claim_given(shard, sleeper) || tokens.claim_left(shard, drive.now_ns());
        Duty { drive, shard, has_token }
    }
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        if self.has_token {
            self.drive.tokens().release(self.shard, self.drive.now_ns());
        }
        self.drive.tokens().sched_thread_ends(self.shard);
    }
}
