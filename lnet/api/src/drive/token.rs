//! One shard's token: who drives the shard, and how.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use nlx_sync::{Rule, rule};

use super::Sleeper;
use crate::drive::rules::{BEGIN, CALL, CLAIM, CLAIM_GIVEN, DOZE, DROP, GIVE, HAND_OVER, TAKE};
use crate::drive::sync::{AtomicBool, AtomicU64, Ordering};

/// How long a shard lies unpolled until another thread may take it from a driver that is awake, in nanoseconds. Longer than a poll
/// of small messages takes, so that threads whose handlers are short leave each other alone; shorter than a network's timeouts by
/// far. In a model a little time, which passes at a bidding.
pub(crate) const TAKEN_AFTER_NS: u64 = if cfg!(all(test, loom)) { 5 } else { 200_000 };

/// Nobody has the token.
pub(super) const FREE: u64 = 0;
/// A waiter that is awake has it and does something else at the moment: it polls another shard, or its handlers run.
const PARKED: u64 = 1;
/// A waiter that sleeps has it: news on the shard end the sleep.
const WATCHED: u64 = 2;
/// A waiter has it, and polls the shard.
const POLLED: u64 = 3;
/// Somebody has it alone until they release it.
const HELD: u64 = 4;
/// The bits of a token's word that say what its holder does; the others say who that is.
const WHAT: u64 = 7;

/// Whether the holder sees what comes on the shard, by a token's word: asleep, or because nobody else may drive it.
pub(super) fn is_attended(word: u64) -> bool {
    matches!(word & WHAT, WATCHED | HELD)
}

/// A wait, or a scheduler thread to whom a token is given: the address of something that it alone has as long as it may hold tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder(u64);

/// Something of which each wait has one, for its address.
#[derive(Debug, Default)]
#[repr(align(8))]
pub(crate) struct Mark {
    _place: u8,
}

const _: () = assert!(align_of::<Sleeper>() as u64 > WHAT, "what a holder does fits below an address");
const _: () = assert!(align_of::<Mark>() as u64 > WHAT, "what a holder does fits below an address");

impl Holder {
    pub(crate) fn of_wait(mark: &Mark) -> Holder {
        Holder(std::ptr::from_ref(mark).addr() as u64)
    }

    pub(crate) fn of_steward(sleeper: &Arc<Sleeper>) -> Holder {
        Holder(Arc::as_ptr(sleeper).addr() as u64)
    }
}

/// A token.
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
/// It stands on cache lines of its own: two CPUs that drive two shards must not slow each other down.
#[repr(align(128))]
pub(crate) struct Token {
    /// Who has it, and what they do.
    word: AtomicU64,
    /// When it was released, or its holder last polled the shard or woke up. Not loom's: that somebody takes a token a little
    /// earlier or later is no interleaving of its own.
    left_ns: std::sync::atomic::AtomicU64,
    /// The shard's scheduler thread drives, or is about to.
    pub(super) steward_on_duty: AtomicBool,
    /// A thread that polls found the scheduler thread on duty, and would rather drive itself.
    pub(super) steward_unwanted: AtomicBool,
    pub(super) sched_thread: OnceLock<Arc<Sleeper>>,
}

impl Token {
    pub(super) fn free() -> Token {
        Token {
            word: AtomicU64::new(FREE),
            left_ns: std::sync::atomic::AtomicU64::new(0),
            steward_on_duty: AtomicBool::new(false),
            steward_unwanted: AtomicBool::new(false),
            sched_thread: OnceLock::new(),
        }
    }

    pub(super) fn word(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// The same, where it does not matter that it may be old: who goes on to change it fails then, and who looks from time to time
    /// looks again. A model gives the newest word alone.
    pub(super) fn newest(&self) -> u64 {
        if !cfg!(all(test, loom)) {
            return self.word();
        }
        const NEVER: u64 = u64::MAX;
        self.word
            .compare_exchange(NEVER, NEVER, Ordering::Relaxed, Ordering::Relaxed)
            .unwrap_or_else(|word| word)
    }

    fn left_ns(&self) -> u64 {
        self.left_ns.load(Relaxed)
    }

    /// Puts one word in the place of another, in one step. Where a model breaks the step's rule, another thread may come between
    /// the look and the change.
    fn turn(&self, step: Rule, from: u64, to: u64) -> bool {
        rule!(
            step,
            self.word.compare_exchange(from, to, HAND_OVER.chain(), Ordering::Relaxed).is_ok(),
            broken = {
                let is_there = self.newest() == from;
                if is_there {
                    self.word.store(to, HAND_OVER.release());
                }
                is_there
            },
        )
    }

    pub(super) fn is_held(&self) -> bool {
        self.word() != FREE
    }

    /// Whether nobody has polled the shard since then although somebody could: it is free, or parked.
    pub(super) fn is_left_since(&self, since_ns: u64) -> bool {
        matches!(self.newest() & WHAT, FREE | PARKED) && self.left_ns() <= since_ns
    }

    /// Whether it lies there for whoever comes.
    fn can_be_taken(&self, word: u64, now_ns: u64) -> bool {
        word == FREE || word & WHAT == PARKED && self.left_ns().saturating_add(TAKEN_AFTER_NS) <= now_ns
    }

    pub(super) fn claim(&self) -> bool {
        // The line stays shared as long as somebody else holds it.
        self.newest() == FREE && self.turn(CLAIM, FREE, HELD)
    }

    /// The same, also from a waiter that has left it lying.
    pub(super) fn claim_left(&self, now_ns: u64) -> bool {
        let word = self.newest();
        self.can_be_taken(word, now_ns) && self.turn(CLAIM, word, HELD)
    }

    /// The same, if it was given to this scheduler thread.
    pub(super) fn claim_given(&self, sched_thread: Holder) -> bool {
        self.is_parked_by(sched_thread) && self.turn(CLAIM_GIVEN, sched_thread.0 | PARKED, HELD)
    }

    pub(super) fn is_parked_by(&self, holder: Holder) -> bool {
        self.newest() == holder.0 | PARKED
    }

    /// Ends [`Token::claim`].
    pub(super) fn release(&self, now_ns: u64) {
        self.left_ns.store(now_ns, Relaxed);
        self.word.store(FREE, HAND_OVER.release());
    }

    /// A waiter takes it, if it is free or its holder has left it lying.
    pub(super) fn take(&self, waiter: Holder, now_ns: u64) -> bool {
        let word = self.newest();
        let taken = self.can_be_taken(word, now_ns) && self.turn(TAKE, word, waiter.0 | PARKED);
        if taken {
            self.left_ns.store(now_ns, Relaxed);
        }
        taken
    }

    /// A waiter that has taken it is about to poll; false if somebody else has taken it since.
    pub(super) fn begin(&self, waiter: Holder) -> bool {
        self.turn(BEGIN, waiter.0 | PARKED, waiter.0 | POLLED)
    }

    /// It has polled, or is awake again.
    pub(super) fn end(&self, waiter: Holder, now_ns: u64) {
        self.left_ns.store(now_ns, Relaxed);
        self.word.store(waiter.0 | PARKED, HAND_OVER.release());
    }

    /// It is about to sleep; false if somebody else has taken the token.
    pub(super) fn doze(&self, waiter: Holder) -> bool {
        self.turn(DOZE, waiter.0 | PARKED, waiter.0 | WATCHED)
    }

    /// A waiter lets go of it, whatever it was doing; false if somebody else has taken it.
    pub(super) fn drop_by(&self, waiter: Holder, now_ns: u64) -> bool {
        let word = self.newest();
        let is_its_own = word & !WHAT == waiter.0;
        if is_its_own {
            self.left_ns.store(now_ns, Relaxed);
        }
        is_its_own && self.turn(DROP, word, FREE)
    }

    /// A waiter gives it to the shard's scheduler thread, if there is one, and wakes that.
    pub(super) fn give(&self, waiter: Holder, now_ns: u64) -> bool {
        let Some(sched_thread) = self.sched_thread.get() else { return false };
        self.left_ns.store(now_ns, Relaxed);
        let turn = || self.turn(GIVE, waiter.0 | PARKED, Holder::of_steward(sched_thread).0 | PARKED);
        rule!(
            CALL,
            turn().then(|| sched_thread.wake()).is_some(),
            broken = {
                sched_thread.wake();
                turn()
            }
        )
    }

    pub(super) fn call_off_steward(&self) {
        if self.steward_on_duty.load(Ordering::Relaxed) {
            self.wake_steward();
        }
    }

    pub(super) fn wake_steward(&self) {
        if let Some(sched_thread) = self.sched_thread.get() {
            sched_thread.wake();
        }
    }
}
