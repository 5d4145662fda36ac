//! Waiting for what other threads and processes do.

use std::time::{Duration, Instant};

/// Longer than anything takes that ends; only a test that fails waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Lets others run until something is so.
///
/// # Panics
/// If it never becomes so.
#[track_caller]
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: never");
        std::thread::yield_now();
    }
}
