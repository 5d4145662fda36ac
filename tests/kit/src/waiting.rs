//! Waiting for other threads and processes.

use std::time::{Duration, Instant};

/// Longer than any operation that succeeds; only a failing test waits this long.
pub const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Yields to other threads until the condition is true.
///
/// # Panics
///
/// After [`TIME_LIMIT`].
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < TIME_LIMIT, "{what}: never");
        std::thread::yield_now();
    }
}
