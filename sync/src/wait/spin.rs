//! Adaptive spinning before sleep; [`crate::wait`] has the rules.

use core::hint::spin_loop;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU32};
use core::time::Duration;
use std::time::Instant;

use super::load;

/// The default spin limit: longer than a round trip to another node if both sides spin, and about
/// twice the cost of a sleep.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(50);

/// The maximum spin limit. A program that is to poll for longer polls in a loop of its own.
pub const MAX_SPIN: Duration = Duration::from_millis(10);

/// The assumed latency of a wake-up, subtracted from the length of a sleep to estimate when its
/// event came.
const COST_OF_SLEEP_NS: u32 = 20_000;

/// The divisor of a wait's weight: the estimate is a moving average in which each wait has the
/// weight 1/`WEIGHT`.
const WEIGHT: u32 = 4;

/// The multiple of the limit at which the length of a wait is cut, so that two long waits in a row
/// turn spinning off and a few short ones turn it on.
const CUT: u32 = 4;

/// The binary logarithm of the maximum pause between retries: while spinning does not pay, it is
/// retried after 2, 4, 8, … waits.
const RETRY_SHIFT_MAX: u32 = 8;

/// The duration above which a poll counts as preempted; a poll of sockets takes a few microseconds.
const PREEMPTED: Duration = Duration::from_micros(50);

/// Number of polls of memory between two readings of the clock, which cost about the same as one
/// reading.
const POLLS_PER_CLOCK: usize = 16;

/// The spin state of a waiter: its limit, and the estimate of how long its waits take. One thread
/// at a time uses it.
///
/// Example of a waiter that does its polls and sleeps without a [`Sleeper`](crate::Sleeper):
///
/// ```
/// use nlx_sync::{DEFAULT_SPIN, Spin};
///
/// let spin = Spin::new(DEFAULT_SPIN);
/// # let mut news = [false, false, false, true].into_iter();
/// # let mut poll = || news.next().unwrap();
/// # let sleep = || ();
/// let mut spinning = spin.wait();
/// while !poll() {
///     if !spinning.goes_on() {
///         sleep();
///         spinning.slept();
///     }
/// }
/// spinning.event();
/// ```
#[derive(Debug, Default)]
pub struct Spin {
    /// The maximum time to spin; 0 turns spinning off.
    limit_ns: AtomicU32,
    /// The estimated length of the next wait.
    expected_ns: AtomicU32,
    /// Number of consecutive retries of spinning during which no event came.
    failed_retries: AtomicU32,
    /// Set if the waiter spins on an overcommitted machine, too.
    ignores_load: AtomicBool,
    /// Number of waits until the next retry of spinning.
    pause: AtomicU32,
}

impl Spin {
    /// Creates the state with this limit, see [`Spin::set`].
    pub fn new(limit: Duration) -> Spin {
        let spin = Spin::default();
        spin.set(limit);
        spin
    }

    /// Sets the limit: zero turns spinning off, [`MAX_SPIN`] is the maximum. With a single
    /// processor spinning stays off, because it would keep the awaited thread from running.
    pub fn set(&self, limit: Duration) {
        // Spinning stays off in a model, because time does not pass there.
        let never = cfg!(loom) || limit.is_zero() || load::has_one_processor();
        let limit_ns = if never { 0 } else { limit.min(MAX_SPIN).as_nanos() as u32 };
        self.limit_ns.store(limit_ns, Relaxed);
    }

    /// Returns the limit in force.
    pub fn limit(&self) -> Duration {
        Duration::from_nanos(self.limit_ns.load(Relaxed).into())
    }

    fn is_overcommitted(&self, now: Instant) -> bool {
        !self.ignores_load.load(Relaxed) && load::is_overcommitted(now)
    }

    /// Returns the maximum time for which the next wait may spin.
    fn budget(&self) -> Duration {
        let limit_ns = self.limit_ns.load(Relaxed);
        if self.expected_ns.load(Relaxed) > limit_ns && !self.retries() {
            return Duration::ZERO;
        }
        Duration::from_nanos(limit_ns.into())
    }

    /// Returns whether this wait spins although its estimate exceeds the limit. Two peers that both
    /// sleep make each other's waits long, and only a retry can show that they would be short.
    fn retries(&self) -> bool {
        let pause = self.pause.load(Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Relaxed);
            return false;
        }
        let failed_retries = (self.failed_retries.load(Relaxed) + 1).min(RETRY_SHIFT_MAX);
        self.failed_retries.store(failed_retries, Relaxed);
        self.pause.store(1 << failed_retries, Relaxed);
        true
    }

    /// Adds the length of a wait to the estimate. `spun`: the event came during the spin.
    fn learn(&self, waited: Duration, spun: bool) {
        let limit_ns = self.limit_ns.load(Relaxed);
        let most_ns = limit_ns.saturating_mul(CUT);
        let waited_ns = u32::try_from(waited.as_nanos()).unwrap_or(u32::MAX).min(most_ns);
        let expected_ns = self.expected_ns.load(Relaxed).min(most_ns);
        let pays = spun && waited_ns <= limit_ns;
        if pays {
            self.failed_retries.store(0, Relaxed);
        }
        let expected_ns = if pays && expected_ns > limit_ns {
            waited_ns
        } else {
            // Subtracted, because the division rounds: long waits reach `most_ns`, even if it is small.
            expected_ns - expected_ns / WEIGHT + waited_ns / WEIGHT
        };
        self.expected_ns.store(expected_ns, Relaxed);
    }

    /// Records that the thread was preempted during a spin: other threads need the processor.
    fn preempted(&self) {
        self.expected_ns.store(u32::MAX, Relaxed);
        self.failed_retries.store(RETRY_SHIFT_MAX, Relaxed);
        self.pause.store(1 << RETRY_SHIFT_MAX, Relaxed);
    }

    /// Makes the waiter spin on an overcommitted machine, too: for tests, which must not depend on
    /// other load.
    #[doc(hidden)]
    pub fn ignore_load(&self) {
        self.ignores_load.store(true, Relaxed);
    }

    /// Starts a wait, which spins before it sleeps.
    pub fn wait(&self) -> SpinWait<'_> {
        SpinWait { spin: self, since: None, last: None, budget: Duration::ZERO, slept: false }
    }
}

/// A wait that spins before it sleeps, from [`Spin::wait`].
#[derive(Debug)]
pub struct SpinWait<'a> {
    spin: &'a Spin,
    /// The time of the first poll that found nothing.
    since: Option<Instant>,
    /// The time of the last poll that found nothing.
    last: Option<Instant>,
    /// The maximum time to spin, counted from `since`.
    budget: Duration,
    slept: bool,
}

impl SpinWait<'_> {
    /// Called after a poll that found nothing. Returns `true` if the waiter is to poll again at
    /// once, and `false` if it is to sleep.
    pub fn goes_on(&mut self) -> bool {
        if self.spin.limit_ns.load(Relaxed) == 0 {
            return false;
        }
        let now = Instant::now();
        let Some(since) = self.since else {
            let budget = self.spin.budget();
            self.budget =
                if !budget.is_zero() && self.spin.is_overcommitted(now) { Duration::ZERO } else { budget };
            (self.since, self.last) = (Some(now), Some(now));
            return !self.budget.is_zero();
        };
        if self.budget.is_zero() {
            return false;
        }
        let took = self.last.replace(now).map_or(Duration::ZERO, |last| now - last);
        if took >= PREEMPTED.max(self.budget / 4) {
            self.spin.preempted();
            self.budget = Duration::ZERO;
        } else if now - since >= self.budget {
            self.budget = Duration::ZERO;
        }
        !self.budget.is_zero()
    }

    /// Spins on `is_ready`, a cheap check of memory. Returns `true` once `is_ready` does, and
    /// `false` if the waiter is to sleep or the deadline has passed.
    pub fn until(&mut self, deadline: Option<Instant>, mut is_ready: impl FnMut() -> bool) -> bool {
        while self.goes_on() && deadline.is_none_or(|deadline| self.last < Some(deadline)) {
            for _ in 0..POLLS_PER_CLOCK {
                if is_ready() {
                    self.event();
                    return true;
                }
                spin_loop();
            }
        }
        false
    }

    /// Records that the waiter has slept, for whatever reason the sleep ended.
    pub fn slept(&mut self) {
        self.slept = true;
        self.budget = Duration::ZERO;
    }

    /// Records that the waiter sleeps now and will not report when its event came: the wait counts
    /// as a long one.
    pub fn unknown(&mut self) {
        if self.since.take().is_some() {
            self.spin.learn(Duration::MAX, false);
        }
    }

    /// Records that an event came. The next poll that finds nothing starts a new wait.
    pub fn event(&mut self) {
        let Some(since) = self.since.take() else { return };
        let cost = if self.slept { Duration::from_nanos(COST_OF_SLEEP_NS.into()) } else { Duration::ZERO };
        self.spin.learn(since.elapsed().saturating_sub(cost), !self.slept);
        self.slept = false;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Sleeper, Wake};

    const LIMIT: Duration = Duration::from_micros(10);

    /// A time limit longer than any delay of a slow machine.
    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// Returns a state whose limit does not depend on the number of processors.
    fn spin_of(limit: Duration) -> Spin {
        let spin = Spin::default();
        spin.limit_ns.store(limit.as_nanos() as u32, Relaxed);
        spin
    }

    fn tries(spin: &Spin, waits: usize) -> Vec<usize> {
        (0..waits).filter(|_| !spin.budget().is_zero()).collect()
    }

    #[test]
    fn two_long_waits_turn_spinning_off_and_short_ones_turn_it_on() {
        let spin = spin_of(LIMIT);
        assert_eq!(spin.budget(), LIMIT, "nothing is known yet");
        spin.learn(FOR_EVER, false);
        assert_eq!(spin.budget(), LIMIT, "one may be an exception");
        spin.learn(FOR_EVER, false);
        assert!(spin.expected_ns.load(Relaxed) > LIMIT.as_nanos() as u32);
        let short = (1..100).find(|_| {
            spin.learn(Duration::ZERO, false);
            spin.expected_ns.load(Relaxed) <= LIMIT.as_nanos() as u32
        });
        assert!(short.is_some_and(|waits| waits < 8), "{short:?}");
    }

    #[test]
    fn retries_get_rarer_until_one_pays() {
        let spin = spin_of(LIMIT);
        (0..2).for_each(|_| spin.learn(FOR_EVER, false));
        assert_eq!(tries(&spin, 20), [0, 3, 8, 17], "after 2, 4 and 8 waits");
        let later = tries(&spin, 2000);
        assert!(later.windows(2).all(|pair| pair[1] - pair[0] <= (1 << RETRY_SHIFT_MAX) + 1));
        assert_eq!(later[later.len() - 1] - later[later.len() - 2], (1 << RETRY_SHIFT_MAX) + 1);
        spin.learn(LIMIT / 2, true);
        assert_eq!(tries(&spin, 3), [0, 1, 2]);
    }

    #[test]
    fn a_preempted_waiter_pauses_spinning() {
        let spin = spin_of(LIMIT);
        spin.preempted();
        assert_eq!(tries(&spin, 1 << RETRY_SHIFT_MAX), []);
        assert_eq!(tries(&spin, 2).len(), 1, "then there is a retry");
    }

    proptest! {
        /// A wait spins up to the limit; after long waits, hardly any wait spins.
        #[test]
        fn spinning_is_bounded(
            limit_ns in 0..30_000u64,
            waits_ns in prop::collection::vec((0..200_000u64, any::<bool>()), 0..50),
        ) {
            let spin = spin_of(Duration::from_nanos(limit_ns));
            for (wait_ns, was_seen) in waits_ns {
                spin.learn(Duration::from_nanos(wait_ns), was_seen);
                prop_assert!(spin.budget() <= Duration::from_nanos(limit_ns));
            }
            (0..8).for_each(|_| spin.learn(Duration::from_nanos(10 * limit_ns + 10), false));
            prop_assert!(tries(&spin, 1000).len() <= 14);
        }
    }

    #[test]
    fn an_event_while_spinning_needs_no_signal() {
        let spin_until = |limit, deadline, is_ready: &mut dyn FnMut() -> bool| {
            let spin = spin_of(limit);
            let mut spinning = spin.wait();
            spinning.since = (!limit.is_zero()).then(Instant::now);
            spinning.budget = limit;
            spinning.until(deadline, is_ready)
        };
        let mut polls = 0;
        let mut ready_late = || {
            polls += 1;
            polls == 100
        };
        assert!(spin_until(MAX_SPIN, None, &mut ready_late));
        assert!(!spin_until(MAX_SPIN, Some(Instant::now()), &mut || true), "the deadline has passed");
        assert!(!spin_until(Duration::ZERO, None, &mut || unreachable!("it does not spin at all")));
    }

    #[test]
    fn spinning_in_vain_is_followed_by_sleep() {
        let sleeper = Sleeper::new().unwrap().spinning(DEFAULT_SPIN);
        for _ in 0..10 {
            let mut woken = false;
            let slept = sleeper.sleep(None, || {
                // The sleeper is woken only once it has announced sleep.
                woken |= sleeper.word().is_announced();
                if woken {
                    sleeper.wake();
                }
                false
            });
            assert_eq!(slept, Ok(Wake::Signalled));
            assert!(woken);
        }
    }
}
