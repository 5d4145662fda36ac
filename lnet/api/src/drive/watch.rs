//! The stewards: how one drives its shard, and which of them keeps watch when nobody drives.

use std::sync::Arc;
use std::time::Duration;

use super::rules::{LEAVE, REST};
use super::sync::{AtomicBool, AtomicU64, Ordering, fence};
use super::wait::sleep_on_descriptors;
use super::{Drive, POLL_BUDGET, Sleeper, shards_of};

/// The stewards' watch over the shards of a node (S-203, S-312): each shard has a thread that serves it ([`Watch::serve`]).
///
/// One of them at a time keeps watch: it looks once in a grace period which shards are neglected, and wakes their
/// stewards; the others sleep without a timer. It leaves the watch to another when its own shard needs it, so that
/// nobody's timer runs while all shards are driven by their stewards; nor while somebody [keeps](super::Tokens::keep) all.
#[derive(Debug)]
pub struct Watch {
    grace_ns: u64,
    /// Somebody keeps watch.
    kept: AtomicBool,
    /// A bit for each steward that sleeps, or is about to, because another keeps watch.
    resting: AtomicU64,
    ended: AtomicBool,
}

impl Watch {
    /// A watch that nobody keeps yet, over shards that may stay free for `grace` before their stewards take them.
    pub fn new(grace: Duration) -> Watch {
        Watch {
            grace_ns: u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX),
            kept: AtomicBool::new(false),
            resting: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// Serves a shard as its steward until the watch has ended: drives it while it is neglected, and keeps watch in its turn.
    /// The sleeper is the one that was named by [`super::Tokens::set_steward`], before.
    pub fn serve(&self, drive: &dyn Drive, shard: usize, sleeper: &Arc<Sleeper>) {
        self.serve_with(drive, shard, sleeper, sleep_on_descriptors);
    }

    /// The algorithm, with the sleep itself left open: a model checker cannot sleep in the kernel.
    pub(crate) fn serve_with(
        &self,
        drive: &dyn Drive,
        shard: usize,
        sleeper: &Arc<Sleeper>,
        sleep: impl Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64,
    ) {
        let steward = Steward { watch: self, drive, shard, sleeper, sleep };
        while !self.has_ended() {
            if steward.keeps_watch() {
                drive_shard_with(drive, shard, sleeper, || self.has_ended(), &steward.sleep);
            } else {
                steward.rest();
            }
        }
    }

    /// Ends the watch, and with it what every steward of the node does.
    pub fn end(&self, drive: &dyn Drive) {
        self.ended.store(true, Ordering::Release);
        (0..drive.shards()).for_each(|shard| drive.tokens().wake_steward(shard));
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether a shard has work to be done and nobody who does it.
    fn is_neglected(&self, drive: &dyn Drive, shard: usize) -> bool {
        let since_ns = drive.now_ns().saturating_sub(self.grace_ns);
        drive.tokens().free_since(shard, since_ns) && !drive.tokens().wanted() && drive.is_active(shard)
    }
}

struct Steward<'a, S> {
    watch: &'a Watch,
    drive: &'a dyn Drive,
    shard: usize,
    sleeper: &'a Arc<Sleeper>,
    sleep: S,
}

impl<S: Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64> Steward<'_, S> {
    /// Keeps watch until its own shard is neglected, or all is over. If another keeps watch, only tells which it is.
    fn keeps_watch(&self) -> bool {
        let watch = self.watch;
        if watch.kept.swap(true, Ordering::AcqRel) {
            return self.is_neglected();
        }
        while !watch.has_ended() && !self.is_neglected() {
            // Its own timer alone ends it: waiters never pay a system call to keep it quiet. Where all shards are kept, who
            // releases one pays.
            let tokens = self.drive.tokens();
            let look_ns = self.drive.now_ns().saturating_add(watch.grace_ns);
            let look_ns = Some(look_ns).filter(|_| !tokens.all_kept());
            // SYNC tokens.kept: the announcement of sleep is the barrier before this look.
            let stays = || look_ns.is_some() || tokens.all_kept();
            self.sleep_while(look_ns, || !watch.has_ended() && stays());
            self.wake_neglected();
        }
        // Not a plain store: a model takes that to come before the attempts of others that it in truth comes behind.
        watch.kept.swap(false, Ordering::AcqRel);
        // SYNC watch.kept: either this sees a steward at rest, or that steward sees that nobody keeps watch.
        fence(Ordering::SeqCst);
        let next = shards_of(watch.resting.load(Ordering::Relaxed)).next();
        if let Some(next) = next.filter(|_| LEAVE.holds()) {
            self.drive.tokens().wake_steward(next);
        }
        true
    }

    /// Sleeps until there may be something to do, or nobody keeps watch.
    fn rest(&self) {
        let watch = self.watch;
        let late = !REST.holds();
        let announce = || watch.resting.fetch_or(1 << self.shard, Ordering::Relaxed);
        if !late {
            announce();
        }
        // SYNC watch.kept: the announcement of sleep is the barrier between that of rest and this look.
        self.sleep_while(None, || {
            let stays = !watch.has_ended() && watch.kept.load(Ordering::Acquire) && !self.is_neglected();
            if late {
                announce();
            }
            stays
        });
        watch.resting.fetch_and(!(1 << self.shard), Ordering::Relaxed);
    }

    fn wake_neglected(&self) {
        let resting = self.watch.resting.load(Ordering::Relaxed);
        for shard in shards_of(resting).filter(|&shard| self.watch.is_neglected(self.drive, shard)) {
            self.drive.tokens().wake_steward(shard);
        }
    }

    fn is_neglected(&self) -> bool {
        self.watch.is_neglected(self.drive, self.shard)
    }

    /// Announces sleep, and sleeps unless there is no reason to any more.
    fn sleep_while(&self, until_ns: Option<u64>, stays: impl FnOnce() -> bool) {
        self.sleeper.prepare();
        if stays() {
            (self.sleep)(self.drive, 0, self.sleeper, until_ns);
        }
        self.sleeper.finish();
    }
}

/// Drives one shard as its steward, until a waiter wants it or `over` says so. At once, if somebody else drives it.
///
/// `over` becomes true by another thread that then calls `sleeper.wake()`. The sleeper is the one that was named by
/// [`super::Tokens::set_steward`].
pub fn drive_shard(drive: &dyn Drive, shard: usize, sleeper: &Arc<Sleeper>, over: impl Fn() -> bool) {
    drive_shard_with(drive, shard, sleeper, over, sleep_on_descriptors);
}

/// The algorithm, with the sleep itself left open: a model checker cannot sleep in the kernel.
pub(crate) fn drive_shard_with(
    drive: &dyn Drive,
    shard: usize,
    sleeper: &Arc<Sleeper>,
    over: impl Fn() -> bool,
    sleep: impl Fn(&dyn Drive, u64, &Sleeper, Option<u64>) -> u64,
) {
    let tokens = drive.tokens();
    let duty = Duty::begin(drive, shard);
    if !duty.has_token {
        return;
    }
    let stop = || over() || tokens.steward_called_off(shard);
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

/// A steward on duty, with the token if it was free; dropping it ends both.
struct Duty<'a> {
    drive: &'a dyn Drive,
    shard: usize,
    has_token: bool,
}

impl Duty<'_> {
    fn begin(drive: &dyn Drive, shard: usize) -> Duty<'_> {
        drive.tokens().steward_begins(shard);
        let has_token = drive.tokens().claim(shard);
        Duty { drive, shard, has_token }
    }
}

impl Drop for Duty<'_> {
    fn drop(&mut self) {
        if self.has_token {
            self.drive.tokens().release(self.shard, self.drive.now_ns());
        }
        self.drive.tokens().steward_ends(self.shard);
    }
}
