//! Time that a test sets by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::{Clock, Drive, Tokens};

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct FakeClock {
    now_ns: AtomicU64,
}

impl FakeClock {
    /// A clock at 0.
    pub fn new() -> Arc<FakeClock> {
        Arc::new(FakeClock::default())
    }

    /// Sets the time.
    ///
    /// # Panics
    /// If it lies in the past: a [`Clock`] never runs backwards.
    pub fn set_now_ns(&self, now_ns: u64) {
        let before_ns = self.now_ns.fetch_max(now_ns, Ordering::Relaxed);
        assert!(now_ns >= before_ns, "the clock would run backwards from {before_ns} ns to {now_ns} ns");
    }

    /// Lets this much time pass.
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

/// A [`Drive`] without shards, on a clock that a test sets by hand.
///
/// [`lnet_api::wait_until`] on it returns at once if there is what it waits for or the deadline has passed. Else it
/// sleeps until another thread wakes it, and a clock that stands still never reaches a deadline: so set the clock first,
/// then wait.
pub struct FakeDrive {
    clock: Arc<FakeClock>,
    tokens: Tokens,
}

impl FakeDrive {
    /// A drive with a clock of its own, at 0.
    pub fn new() -> Arc<FakeDrive> {
        FakeDrive::on(FakeClock::new())
    }

    /// A drive on this clock.
    pub fn on(clock: Arc<FakeClock>) -> Arc<FakeDrive> {
        Arc::new(FakeDrive { clock, tokens: Tokens::new(0) })
    }

    /// Its clock.
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
}
