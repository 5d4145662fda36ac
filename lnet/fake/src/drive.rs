//! A clock that a test sets, and that advances while a thread sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::{Clock, Drive, Tokens};

/// A clock that advances only when the test moves it, or when a thread sleeps until a deadline on
/// its [`FakeDrive`].
#[derive(Debug, Default)]
pub struct FakeClock {
    now_ns: AtomicU64,
}

impl FakeClock {
    /// Makes a clock at 0.
    pub fn new() -> Arc<FakeClock> {
        Arc::new(FakeClock::default())
    }

    /// Sets the time.
    ///
    /// # Panics
    /// If `now_ns` is in the past: a [`Clock`] never runs backwards.
    pub fn set_now_ns(&self, now_ns: u64) {
        let before_ns = self.now_ns.fetch_max(now_ns, Ordering::Relaxed);
        assert!(now_ns >= before_ns, "the clock would run backwards from {before_ns} ns to {now_ns} ns");
    }

    /// Advances the time.
    ///
    /// # Panics
    /// After 2^64 ns.
    pub fn advance_ns(&self, by_ns: u64) {
        let passed = |now_ns: u64| now_ns.checked_add(by_ns);
        let moved = self.now_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, passed);
        assert!(moved.is_ok(), "the clock cannot be moved by {by_ns} ns more");
    }
}

impl Clock for FakeClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }
}

/// A [`Drive`] without shards, on a clock that a test controls.
///
/// [`lnet_api::wait_until`] on it returns at once if its condition is true. If not, a wait until a
/// deadline takes no real time either: the clock advances to the deadline at once. So timeouts of
/// any length can be tested, and a test with one thread runs identically each time:
///
/// ```
/// use std::sync::Arc;
///
/// use lnet_api::{Clock, Sleeper, wait_until};
/// use lnet_fake::FakeDrive;
///
/// const HOUR_NS: u64 = 3_600_000_000_000;
///
/// let drive = FakeDrive::new();
/// let sleeper: Arc<Sleeper> = Arc::new(Sleeper::new()?);
/// assert!(!wait_until(&*drive, &sleeper, Some(HOUR_NS), || false));
/// assert_eq!(drive.now_ns(), HOUR_NS);
/// # Ok::<(), lnet_api::Errno>(())
/// ```
///
/// Without a deadline a wait sleeps until another thread wakes it. A thread that waits for another
/// on this clock must do that: a deadline would pass before the other thread has done anything.
pub struct FakeDrive {
    clock: Arc<FakeClock>,
    tokens: Tokens,
}

impl FakeDrive {
    /// Makes a drive with a new clock, at 0.
    pub fn new() -> Arc<FakeDrive> {
        FakeDrive::on(FakeClock::new())
    }

    /// Makes a drive on this clock.
    pub fn on(clock: Arc<FakeClock>) -> Arc<FakeDrive> {
        Arc::new(FakeDrive { clock, tokens: Tokens::new(0) })
    }

    /// Returns the clock that the drive uses.
    pub fn clock(&self) -> &FakeClock {
        &self.clock
    }
}

impl Clock for FakeDrive {
    fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
}

impl Drive for FakeDrive {
    fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Advances the clock to `until_ns`, unless it is later already: no other thread moves the
    /// clock during the sleep.
    fn sleep_ns(&self, until_ns: u64) -> u64 {
        self.clock.now_ns.fetch_max(until_ns, Ordering::Relaxed);
        0
    }
}
