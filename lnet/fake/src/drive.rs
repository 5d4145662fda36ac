//! Time that a test sets by hand, and that passes while somebody sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::{Clock, Drive, Tokens};

/// A clock that stands still until it is moved: by the test, or by whoever sleeps until a deadline on its [`FakeDrive`].
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
/// [`lnet_api::wait_until`] on it returns at once if there is what it waits for. If there is not, it takes no time either
/// to wait until a deadline: the clock goes there at once. So timeouts of any length can be tested, and a test of one thread
/// takes the same course each time:
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
/// Without a deadline a wait sleeps until another thread wakes it. A thread that should wait for another on this clock waits so:
/// its deadline would pass before the other has done anything.
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

    /// Nobody else moves the clock meanwhile: it goes there, if it has not passed already.
    fn sleep_ns(&self, until_ns: u64) -> u64 {
        self.clock.now_ns.fetch_max(until_ns, Ordering::Relaxed);
        0
    }
}
