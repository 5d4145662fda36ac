//! How long to look before sleeping.
//!
//! Looking for as long as sleep would cost is never worse than twice the best choice, whenever the event comes. What earlier
//! waits teach makes it better: where events come late, looking for them is given up until they come early again.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering};
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
const WEIGHT: u32 = 4;

/// No wait counts for more than so many times the limit: with [`WEIGHT`], two long waits in a row end the looking, and some
/// short ones bring it back.
const CUT: u32 = 4;

/// When to look, and how long.
#[derive(Debug)]
pub(crate) struct Spin {
    limit: Duration,
    /// How long the next event is expected to take.
    expected: Duration,
    asleep_since: Option<Instant>,
}

impl Spin {
    /// Looks for as long as sleep costs in this process.
    pub(crate) fn measured() -> Spin {
        Spin::of(cost_of_sleep())
    }

    /// Looks for so long.
    pub(crate) fn of(limit: Duration) -> Spin {
        Spin { limit, expected: Duration::ZERO, asleep_since: None }
    }

    pub(crate) fn never() -> Spin {
        Spin::of(Duration::ZERO)
    }

    /// How long to look now.
    pub(crate) fn budget(&self) -> Duration {
        if self.expected <= self.limit { self.limit } else { Duration::ZERO }
    }

    /// Learns how long an event took to come.
    pub(crate) fn learn(&mut self, waited: Duration) {
        let waited = waited.min(self.limit * CUT);
        self.expected = (self.expected * (WEIGHT - 1) + waited) / WEIGHT;
    }

    /// Looks. Whether it was found.
    pub(crate) fn look(&mut self, deadline: Option<Instant>, mut is_ready: impl FnMut() -> bool) -> bool {
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

    pub(crate) fn begin_sleep(&mut self) {
        self.asleep_since = (!self.limit.is_zero()).then(Instant::now);
    }

    /// The event came about when waking began: sooner than sleep ended, by what sleep costs.
    pub(crate) fn end_sleep(&mut self) {
        if let Some(since) = self.asleep_since.take() {
            self.learn(since.elapsed().saturating_sub(self.limit));
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
