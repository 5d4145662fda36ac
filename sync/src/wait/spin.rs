//! How long to look before sleeping.
//!
//! Sleep costs some microseconds, and on some machines thirty; who looks for what comes instead finds it at once. Looking pays where
//! what is waited for mostly comes soon, and a processor is free for it. So each waiter keeps an estimate of how long it waits, and all
//! of a process share a seldom look at how many threads want to run ([`super::crowd`]).

use core::hint::spin_loop;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use std::time::Instant;

use super::crowd;

/// How long a waiter looks before it sleeps, unless something else is set: more than a message to another node and its answer take
/// when both sides look, and little more than what sleep costs on a slow machine.
pub const DEFAULT_SPIN: Duration = Duration::from_micros(50);

/// The longest time that can be set: a waiter that looks for longer is no waiter.
pub const MAX_SPIN: Duration = Duration::from_millis(10);

/// What sleep is taken to cost: an event that ended a sleep came so much sooner than the sleep was over.
const COST_OF_SLEEP_NS: u32 = 20_000;

/// A wait counts for this share of what is expected of the next.
const WEIGHT: u32 = 4;

/// No wait counts for more than so many times the limit: with [`WEIGHT`], two long waits in a row end the looking, and some short
/// ones bring it back.
const CUT: u32 = 4;

/// Between two attempts to look all the same, when looking does not pay, lie 2, 4, 8 waits and so on, up to 2 to the power of this.
const RAREST: u32 = 8;

/// A look that took so long was interrupted: another thread had the processor. (Looks cost microseconds at the most, those at sockets
/// too.)
const INTERRUPTED: Duration = Duration::from_micros(50);

/// Looks between two questions for the time, where a look costs less than the question.
const LOOKS: usize = 16;

/// Whether a waiter is to look before it sleeps, and for how long: what it has learned of its waits. It is one thread's at a time, so
/// plain numbers serve, which need no `&mut`.
///
/// For a waiter whose sleep is a call of its own, and whose look is more than to read memory:
///
/// ```
/// use nlx_sync::{DEFAULT_SPIN, Spin};
///
/// let spin = Spin::new(DEFAULT_SPIN);
/// # let mut news = [false, false, false, true].into_iter();
/// # let mut look = || news.next().unwrap();
/// # let sleep = || ();
/// let mut looking = spin.looking();
/// while !look() {
///     if !looking.once_more() {
///         sleep();
///         looking.slept();
///     }
/// }
/// looking.found();
/// ```
#[derive(Debug, Default)]
pub struct Spin {
    /// 0: never.
    limit_ns: AtomicU32,
    /// How long the next event is expected to take.
    expected_ns: AtomicU32,
    /// How often in a row looking all the same was in vain.
    vain: AtomicU32,
    /// Waits until that is tried again.
    pause: AtomicU32,
}

impl Spin {
    /// Looks for so long at the most, see [`Spin::set`].
    pub fn new(limit: Duration) -> Spin {
        let spin = Spin::default();
        spin.set(limit);
        spin
    }

    /// From now on waits look for so long at the most, [`MAX_SPIN`] and never longer; zero: they sleep at once. So they do on a machine with one
    /// processor, where looking keeps from running who is waited for.
    pub fn set(&self, limit: Duration) {
        // Time does not pass in a model.
        let never = cfg!(loom) || limit.is_zero() || crowd::has_one_processor();
        let limit_ns = if never { 0 } else { limit.min(MAX_SPIN).as_nanos() as u32 };
        self.limit_ns.store(limit_ns, Relaxed);
    }

    /// How long to look now.
    fn budget(&self) -> Duration {
        let limit_ns = self.limit_ns.load(Relaxed);
        if self.expected_ns.load(Relaxed) > limit_ns && !self.tries_again() {
            return Duration::ZERO;
        }
        Duration::from_nanos(limit_ns.into())
    }

    /// Looking does not pay. Whether to do so all the same: what is waited for may come faster if somebody looks for it, as a
    /// message does whose sender waits for the one before.
    fn tries_again(&self) -> bool {
        let pause = self.pause.load(Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Relaxed);
            return false;
        }
        let vain = (self.vain.load(Relaxed) + 1).min(RAREST);
        self.vain.store(vain, Relaxed);
        self.pause.store(1 << vain, Relaxed);
        true
    }

    /// Learns how long an event took to come, and whether somebody looked when it did.
    fn learn(&self, waited: Duration, was_seen: bool) {
        let limit_ns = self.limit_ns.load(Relaxed);
        let most_ns = limit_ns.saturating_mul(CUT);
        let waited_ns = u32::try_from(waited.as_nanos()).unwrap_or(u32::MAX).min(most_ns);
        let expected_ns = self.expected_ns.load(Relaxed).min(most_ns);
        let pays = was_seen && waited_ns <= limit_ns;
        if pays {
            self.vain.store(0, Relaxed);
        }
        let expected_ns = if pays && expected_ns > limit_ns {
            waited_ns
        } else {
            (expected_ns / WEIGHT) * (WEIGHT - 1) + waited_ns / WEIGHT
        };
        self.expected_ns.store(expected_ns, Relaxed);
    }

    /// Another thread had the processor while this one looked: looking takes it from somebody.
    fn interrupted(&self) {
        self.expected_ns.store(u32::MAX, Relaxed);
        self.vain.store(RAREST, Relaxed);
        self.pause.store(1 << RAREST, Relaxed);
    }

    /// A wait begins.
    pub fn looking(&self) -> Looking<'_> {
        Looking { spin: self, since: None, last: None, budget: Duration::ZERO, slept: false }
    }
}

/// The looks of a waiter at what it waits for, from [`Spin::looking`].
#[derive(Debug)]
pub struct Looking<'a> {
    spin: &'a Spin,
    /// When the first look was in vain.
    since: Option<Instant>,
    /// The last look but one.
    last: Option<Instant>,
    /// What there is to look for from the first look on.
    budget: Duration,
    slept: bool,
}

impl Looking<'_> {
    /// Nothing was found: whether to look again at once. Else the waiter is to sleep.
    pub fn once_more(&mut self) -> bool {
        if self.spin.limit_ns.load(Relaxed) == 0 {
            return false;
        }
        let now = Instant::now();
        let Some(since) = self.since else {
            let budget = self.spin.budget();
            self.budget = if !budget.is_zero() && crowd::is_there(now) { Duration::ZERO } else { budget };
            (self.since, self.last) = (Some(now), Some(now));
            return !self.budget.is_zero();
        };
        if self.budget.is_zero() {
            return false;
        }
        let took = self.last.replace(now).map_or(Duration::ZERO, |last| now - last);
        if took >= INTERRUPTED.max(self.budget / 4) {
            self.spin.interrupted();
            self.budget = Duration::ZERO;
        } else if now - since >= self.budget {
            self.budget = Duration::ZERO;
        }
        !self.budget.is_zero()
    }

    /// Looks until it is time to sleep, or the deadline has passed. Returns whether it was found. For what lies in memory.
    pub fn look(&mut self, deadline: Option<Instant>, mut is_ready: impl FnMut() -> bool) -> bool {
        while self.once_more() && deadline.is_none_or(|deadline| self.last < Some(deadline)) {
            for _ in 0..LOOKS {
                if is_ready() {
                    self.found();
                    return true;
                }
                spin_loop();
            }
        }
        false
    }

    /// The waiter has slept, whatever ended that.
    pub fn slept(&mut self) {
        self.slept = true;
        self.budget = Duration::ZERO;
    }

    /// The waiter sleeps now, and does not learn here what ended that: as if it had been for long.
    pub fn gave_up(&mut self) {
        if self.since.take().is_some() {
            self.spin.learn(Duration::MAX, false);
        }
    }

    /// Something has come. The next look in vain begins anew.
    pub fn found(&mut self) {
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

    /// A time that no machine is too slow for.
    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// One that looks for so long, however many processors there are.
    fn spin_of(limit: Duration) -> Spin {
        let spin = Spin::default();
        spin.limit_ns.store(limit.as_nanos() as u32, Relaxed);
        spin
    }

    fn tries(spin: &Spin, waits: usize) -> Vec<usize> {
        (0..waits).filter(|_| !spin.budget().is_zero()).collect()
    }

    #[test]
    fn two_long_waits_end_the_looking_and_short_ones_bring_it_back() {
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
    fn looking_all_the_same_gets_rarer_until_it_pays_once() {
        let spin = spin_of(LIMIT);
        (0..2).for_each(|_| spin.learn(FOR_EVER, false));
        assert_eq!(tries(&spin, 20), [0, 3, 8, 17], "after 2, 4 and 8 waits");
        let later = tries(&spin, 2000);
        assert!(later.windows(2).all(|pair| pair[1] - pair[0] <= (1 << RAREST) + 1));
        assert_eq!(later[later.len() - 1] - later[later.len() - 2], (1 << RAREST) + 1);
        spin.learn(LIMIT / 2, true);
        assert_eq!(tries(&spin, 3), [0, 1, 2]);
    }

    #[test]
    fn who_was_interrupted_does_not_look_for_long() {
        let spin = spin_of(LIMIT);
        spin.interrupted();
        assert_eq!(tries(&spin, 1 << RAREST), []);
        assert_eq!(tries(&spin, 2).len(), 1, "then it is tried again");
    }

    proptest! {
        /// Never longer than the limit; and if most waits are longer, hardly ever.
        #[test]
        fn looking_is_bounded(
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
    fn what_comes_while_looking_needs_no_signal() {
        let look = |limit, deadline, is_ready: &mut dyn FnMut() -> bool| {
            let spin = spin_of(limit);
            let mut looking = spin.looking();
            looking.since = (!limit.is_zero()).then(Instant::now);
            looking.budget = limit;
            looking.look(deadline, is_ready)
        };
        let mut looks = 0;
        let mut ready_late = || {
            looks += 1;
            looks == 100
        };
        assert!(look(MAX_SPIN, None, &mut ready_late));
        assert!(!look(MAX_SPIN, Some(Instant::now()), &mut || true), "the deadline has passed");
        assert!(!look(Duration::ZERO, None, &mut || unreachable!("no look at all")));
    }

    #[test]
    fn looking_in_vain_is_followed_by_sleep() {
        let sleeper = Sleeper::new().unwrap().spinning(DEFAULT_SPIN);
        for _ in 0..10 {
            let mut woken = false;
            let slept = sleeper.sleep(None, || {
                // Told only when it has announced sleep.
                woken |= sleeper.is_announced();
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
