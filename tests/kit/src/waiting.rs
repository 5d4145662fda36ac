//! Waiting for other threads and processes.

use std::time::{Duration, Instant};

/// Longer than any operation that succeeds; only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Yields to other threads until the condition is true.
///
/// # Panics
///
/// After [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: never");
        std::thread::yield_now();
    }
}
