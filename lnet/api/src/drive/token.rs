//! One shard's token: its holder, and the holder's activity.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use nlx_sync::{Rule, rule};

use super::Sleeper;
use crate::drive::rules::{BEGIN, CALL, CLAIM, CLAIM_GIVEN, DOZE, DROP, GIVE, HAND_OVER, TAKE};
use crate::drive::sync::{AtomicBool, AtomicU64, Ordering, newest};

/// The time for which a shard must be unpolled before another thread may take it from a driver that
/// is awake, in nanoseconds. Longer than a poll of small messages takes, so that threads with short
/// handlers do not take shards from each other; far shorter than a network's timeouts. In a model
/// it is a small number of the model's clock, which advances explicitly.
pub(crate) const TAKEN_AFTER_NS: u64 = if cfg!(all(test, loom)) { 5 } else { 200_000 };

/// The token has no holder.
pub(super) const FREE: u64 = 0;
/// Held by a waiter that is awake but does not poll the shard at the moment: it polls another
/// shard, or its handlers run.
const PARKED: u64 = 1;
/// Held by a sleeping waiter: events on the shard end the sleep.
const WATCHED: u64 = 2;
/// Held by a waiter that polls the shard.
const POLLED: u64 = 3;
/// Held by a thread exclusively, until that thread releases it.
const HELD: u64 = 4;
/// Mask of the bits of a token's word that encode the holder's activity; the other bits identify
/// the holder.
const ACTIVITY: u64 = 7;

/// Returns whether the holder of a token with this word gets the shard's events: it sleeps on the
/// shard, or has the token exclusively.
pub(super) fn is_attended(word: u64) -> bool {
    matches!(word & ACTIVITY, WATCHED | HELD)
}

/// Identifies a wait, or a scheduler thread that is given tokens, by an address that is unique
/// while it may hold tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder(u64);

/// An object of each wait whose address identifies the wait.
#[derive(Debug, Default)]
#[repr(align(8))]
pub(crate) struct Mark {
    _place: u8,
}

const _: () = assert!(align_of::<Sleeper>() as u64 > ACTIVITY, "what a holder does fits below an address");
const _: () = assert!(align_of::<Mark>() as u64 > ACTIVITY, "what a holder does fits below an address");

impl Holder {
    pub(crate) fn of_wait(mark: &Mark) -> Holder {
        Holder(std::ptr::from_ref(mark).addr() as u64)
    }

    pub(crate) fn of_sched_thread(sleeper: &Arc<Sleeper>) -> Holder {
        Holder(Arc::as_ptr(sleeper).addr() as u64)
    }
}

/// The token of a shard.
///
/// | from | by | to |
/// | --- | --- | --- |
/// | free | `claim` | held |
/// | free; or parked by another, for [`TAKEN_AFTER_NS`] | `claim_left` | held |
/// | free; or parked by another, for [`TAKEN_AFTER_NS`] | `take` | parked by the taker |
/// | parked by a waiter | its `begin`; then its `end` | polled; then parked again |
/// | parked by a waiter | its `doze`; then its `end` | watched; then parked again |
/// | parked by a waiter | its `give` | parked by the scheduler thread |
/// | parked by the scheduler thread | its `claim_given` | held |
/// | held, or a waiter's | `release`, or its `drop_by` | free |
///
/// It has its own cache lines: two CPUs that drive two shards must not slow each other down.
#[repr(align(128))]
pub(crate) struct Token {
    /// The holder of the token, and the holder's activity.
    word: AtomicU64,
    /// The time of the token's release, or of its holder's last poll or wake-up. Not loom's atomic:
    /// the exact moment at which a token is taken makes no difference between interleavings.
    left_ns: std::sync::atomic::AtomicU64,
    /// Set while the shard's scheduler thread drives, or is about to.
    pub(super) on_duty: AtomicBool,
    /// Set when a polling thread has found the scheduler thread on duty, and is to drive in its
    /// place.
    pub(super) unwanted: AtomicBool,
    pub(super) sched_thread: OnceLock<Arc<Sleeper>>,
}

impl Token {
    pub(super) fn free() -> Token {
        Token {
            word: AtomicU64::new(FREE),
            left_ns: std::sync::atomic::AtomicU64::new(0),
            on_duty: AtomicBool::new(false),
            unwanted: AtomicBool::new(false),
            sched_thread: OnceLock::new(),
        }
    }

    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// Returns the word like [`Token::word`], for callers to which an old value is harmless,
    /// because a change based on it fails or the check is repeated. In a loom model this is always
    /// the newest value.
    pub(super) fn newest(&self) -> u64 {
        newest(&self.word)
    }

    fn left_ns(&self) -> u64 {
        self.left_ns.load(Relaxed)
    }

    /// Replaces the word `from` by `to` in one step. In a model that breaks the step's rule,
    /// another thread may run between the check and the change.
    fn exchange(&self, step: Rule, from: u64, to: u64) -> bool {
        rule!(
            step,
            self.word.compare_exchange(from, to, HAND_OVER.chain(), Ordering::Relaxed).is_ok(),
            broken = (self.newest() == from).then(|| self.word.store(to, HAND_OVER.release())).is_some(),
        )
    }

    pub(super) fn is_held(&self) -> bool {
        self.word() != FREE
    }

    /// Returns whether the shard has not been polled since this time although a thread could: it is
    /// free or parked.
    pub(super) fn is_left_since(&self, since_ns: u64) -> bool {
        matches!(self.newest() & ACTIVITY, FREE | PARKED) && self.left_ns() <= since_ns
    }

    /// Returns whether any thread may take the token: it is free, or its holder has not polled the
    /// shard for a while.
    fn can_be_taken(&self, word: u64, now_ns: u64) -> bool {
        word == FREE || word & ACTIVITY == PARKED && self.left_ns().saturating_add(TAKEN_AFTER_NS) <= now_ns
    }

    pub(super) fn claim(&self) -> bool {
        // Checked first with a load, so that the cache line stays shared while another thread holds
        // the token.
        self.newest() == FREE && self.exchange(CLAIM, FREE, HELD)
    }

    /// Claims the token like [`Token::claim`], even from a waiter that has not polled the shard for
    /// a while.
    pub(super) fn claim_left(&self, now_ns: u64) -> bool {
        let word = self.newest();
        self.can_be_taken(word, now_ns) && self.exchange(CLAIM, word, HELD)
    }

    /// Claims a token that was given to this scheduler thread.
    pub(super) fn claim_given(&self, sched_thread: Holder) -> bool {
        self.is_parked_by(sched_thread) && self.exchange(CLAIM_GIVEN, sched_thread.0 | PARKED, HELD)
    }

    pub(super) fn is_parked_by(&self, holder: Holder) -> bool {
        self.newest() == holder.0 | PARKED
    }

    /// Releases a token that was claimed.
    pub(super) fn release(&self, now_ns: u64) {
        self.left_ns.store(now_ns, Relaxed);
        self.word.store(FREE, HAND_OVER.release());
    }

    /// Takes the token for a waiter, if it is free or its holder has not polled the shard for a
    /// while.
    pub(super) fn take(&self, waiter: Holder, now_ns: u64) -> bool {
        let word = self.newest();
        let taken = self.can_be_taken(word, now_ns) && self.exchange(TAKE, word, waiter.0 | PARKED);
        if taken {
            self.left_ns.store(now_ns, Relaxed);
        }
        taken
    }

    /// Marks the shard as polled by a waiter that has taken it; false if another thread has taken
    /// it since.
    pub(super) fn begin(&self, waiter: Holder) -> bool {
        self.exchange(BEGIN, waiter.0 | PARKED, waiter.0 | POLLED)
    }

    /// Marks the end of the waiter's poll or sleep.
    pub(super) fn end(&self, waiter: Holder, now_ns: u64) {
        self.left_ns.store(now_ns, Relaxed);
        self.word.store(waiter.0 | PARKED, HAND_OVER.release());
    }

    /// Marks the waiter as asleep on the shard; false if another thread has taken the token.
    pub(super) fn doze(&self, waiter: Holder) -> bool {
        self.exchange(DOZE, waiter.0 | PARKED, waiter.0 | WATCHED)
    }

    /// Releases the waiter's token, in any state; false if another thread has taken it.
    pub(super) fn drop_by(&self, waiter: Holder, now_ns: u64) -> bool {
        let word = self.newest();
        let is_its_own = word & !ACTIVITY == waiter.0;
        if is_its_own {
            self.left_ns.store(now_ns, Relaxed);
        }
        is_its_own && self.exchange(DROP, word, FREE)
    }

    /// Gives a waiter's token to the shard's scheduler thread, if there is one, and wakes that
    /// thread.
    pub(super) fn give(&self, waiter: Holder, now_ns: u64) -> bool {
        let Some(sched_thread) = self.sched_thread.get() else { return false };
        self.left_ns.store(now_ns, Relaxed);
        let give =
            || self.exchange(GIVE, waiter.0 | PARKED, Holder::of_sched_thread(sched_thread).0 | PARKED);
        rule!(CALL, give().then(|| sched_thread.wake()).is_some(), broken = (sched_thread.wake(), give()).1)
    }

    pub(super) fn call_off(&self) {
        if self.on_duty.load(Ordering::Relaxed) {
            self.wake_sched_thread();
        }
    }

    pub(super) fn wake_sched_thread(&self) {
        if let Some(sched_thread) = self.sched_thread.get() {
            sched_thread.wake();
        }
    }
}
