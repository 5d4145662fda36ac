//! How long to look before sleeping.
//!
//! Looking for as long as sleep would cost is never worse than twice the best choice, whenever the event comes. What earlier
//! waits teach makes it better: where events come late, looking for them is given up until they come early again.

use core::hint::spin_loop;
use core::sync::atomic::Ordering::{self, Relaxed};
use core::sync::atomic::{AtomicU32, AtomicU64};
use core::time::Duration;
use std::sync::OnceLock;
use std::thread::{self, available_parallelism};
use std::time::Instant;

/// The longest that is spent looking, whatever sleep costs: a scheduler on a busy machine makes it cost milliseconds, and
/// those would be taken from whoever keeps it busy.
const LONGEST: Duration = Duration::from_micros(20);

/// Looks between two questions for the time, which cost as much as some looks.
const LOOKS: usize = 16;

/// How often sleep is measured. The median counts: one measurement may meet a busy processor. (There are few of them, as
/// each takes milliseconds where all processors are busy.)
const MEASUREMENTS: usize = 5;

/// A wait counts for this share of what is expected of the next.
const WEIGHT: u64 = 4;

/// No wait counts for more than so many times the limit: with [`WEIGHT`], two long waits in a row end the looking, and some
/// short ones bring it back.
const CUT: u32 = 4;

/// When to look, and how long. Its owner's alone, so plain numbers serve, which need no `&mut`.
#[derive(Debug)]
pub(super) struct Spin {
    limit: Duration,
    /// How long the next event is expected to take.
    expected_ns: AtomicU64,
    /// Since when it sleeps, in nanoseconds since `origin`.
    asleep_since_ns: AtomicU64,
    /// None if it never looks: then it asks no clock.
    origin: Option<Instant>,
}

impl Spin {
    /// Looks for as long as sleep costs in this process.
    pub(super) fn measured() -> Spin {
        // Time does not pass in a model.
        if cfg!(loom) { Spin::never() } else { Spin::of(cost_of_sleep()) }
    }

    pub(super) fn never() -> Spin {
        Spin::of(Duration::ZERO)
    }

    /// Looks for so long.
    fn of(limit: Duration) -> Spin {
        let origin = (!limit.is_zero()).then(Instant::now);
        Spin { limit, expected_ns: AtomicU64::new(0), asleep_since_ns: AtomicU64::new(0), origin }
    }

    /// How long to look now.
    fn budget(&self) -> Duration {
        let expected = Duration::from_nanos(self.expected_ns.load(Relaxed));
        if expected <= self.limit { self.limit } else { Duration::ZERO }
    }

    /// Learns how long an event took to come.
    fn learn(&self, waited: Duration) {
        let waited_ns = waited.min(self.limit * CUT).as_nanos() as u64;
        let expected_ns = (self.expected_ns.load(Relaxed) * (WEIGHT - 1) + waited_ns) / WEIGHT;
        self.expected_ns.store(expected_ns, Relaxed);
    }

    /// Looks. Returns whether it was found.
    pub(super) fn look(&self, deadline: Option<Instant>, mut is_ready: impl FnMut() -> bool) -> bool {
        let budget = self.budget();
        if budget.is_zero() {
            return false;
        }
        let start = Instant::now();
        let left = deadline.map_or(budget, |deadline| deadline.saturating_duration_since(start));
        while start.elapsed() < budget.min(left) {
            for _ in 0..LOOKS {
                if is_ready() {
                    self.learn(start.elapsed());
                    return true;
                }
                spin_loop();
            }
        }
        false
    }

    /// Sleep has been announced.
    pub(super) fn begin_sleep(&self) {
        if let Some(origin) = self.origin {
            self.asleep_since_ns.store(origin.elapsed().as_nanos() as u64, Relaxed);
        }
    }

    /// Sleep is over. The event came about when waking began: sooner than sleep ended, by what sleep costs.
    pub(super) fn end_sleep(&self) {
        if let Some(origin) = self.origin {
            let since = Duration::from_nanos(self.asleep_since_ns.load(Relaxed));
            self.learn(origin.elapsed().saturating_sub(since).saturating_sub(self.limit));
        }
    }
}

/// What it costs one thread to fall asleep and be woken by another, as measured by the first to ask; nothing where looking
/// would only keep the other from running.
fn cost_of_sleep() -> Duration {
    static COST: OnceLock<Duration> = OnceLock::new();
    *COST.get_or_init(|| {
        if available_parallelism().is_ok_and(|processors| processors.get() > 1) {
            measure().unwrap_or_default().min(LONGEST)
        } else {
            Duration::ZERO
        }
    })
}

/// Two threads wake each other in turn; half of the time that takes. None if there can be no second thread.
fn measure() -> Option<Duration> {
    let turn = AtomicU32::new(0);
    let first = thread::current();
    thread::scope(|scope| {
        let echo = || {
            for number in 0..MEASUREMENTS as u32 {
                park_until(&turn, 2 * number + 1);
                turn.store(2 * number + 2, Ordering::Release);
                first.unpark();
            }
        };
        let echo = thread::Builder::new().spawn_scoped(scope, echo).ok()?;
        let mut costs: [Duration; MEASUREMENTS] = core::array::from_fn(|number| {
            let start = Instant::now();
            turn.store(2 * number as u32 + 1, Ordering::Release);
            echo.thread().unpark();
            park_until(&turn, 2 * number as u32 + 2);
            start.elapsed() / 2
        });
        costs.sort_unstable();
        Some(costs[MEASUREMENTS / 2])
    })
}

fn park_until(turn: &AtomicU32, number: u32) {
    while turn.load(Ordering::Acquire) < number {
        thread::park();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Sleeper, Wake};

    const LIMIT: Duration = Duration::from_micros(10);

    /// A limit that no machine is too slow for.
    const FOR_EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn two_long_waits_end_the_looking_and_short_ones_bring_it_back() {
        let spin = Spin::of(LIMIT);
        assert_eq!(spin.budget(), LIMIT, "nothing is known yet");
        spin.learn(FOR_EVER);
        assert_eq!(spin.budget(), LIMIT, "one may be an exception");
        spin.learn(FOR_EVER);
        assert_eq!(spin.budget(), Duration::ZERO);
        let short = (1..100).find(|_| {
            spin.learn(Duration::ZERO);
            spin.budget() == LIMIT
        });
        assert!(short.is_some_and(|waits| waits < 8), "{short:?}");
    }

    proptest! {
        /// Never longer than sleep costs, and not at all when most waits are longer than that.
        #[test]
        fn looking_is_bounded_by_what_sleep_costs(
            limit_ns in 0..30_000u64,
            waits_ns in prop::collection::vec(0..200_000u64, 0..50),
        ) {
            let spin = Spin::of(Duration::from_nanos(limit_ns));
            for wait in waits_ns {
                spin.learn(Duration::from_nanos(wait));
                prop_assert!(spin.budget() <= Duration::from_nanos(limit_ns));
            }
            (0..8).for_each(|_| spin.learn(Duration::from_nanos(10 * limit_ns + 1)));
            prop_assert_eq!(spin.budget(), Duration::ZERO);
        }
    }

    #[test]
    fn what_comes_while_looking_needs_no_signal() {
        let mut looks = 0;
        let found = Spin::of(FOR_EVER).look(None, || {
            looks += 1;
            looks == 1000
        });
        assert!(found);
        assert!(!Spin::of(FOR_EVER).look(Some(Instant::now()), || true), "the deadline has passed");
        assert!(!Spin::of(Duration::ZERO).look(None, || unreachable!("no look at all")));
    }

    /// The measured limit is at most 20 µs, so this sleeps before long whatever the machine.
    #[test]
    fn looking_in_vain_is_followed_by_sleep() {
        let sleeper = Sleeper::new().unwrap().spinning();
        for _ in 0..10 {
            let mut woken = false;
            let slept = sleeper.sleep(None, || {
                sleeper.wake();
                woken = true;
                false
            });
            assert_eq!(slept, Ok(Wake::Signalled));
            assert!(woken);
        }
    }
}
