//! Incarnations: numbers that differ between successive starts of an NI (lnet-wire 24).

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The last incarnation of this process.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Returns an incarnation that no earlier start of an NI had: the wall clock in nanoseconds, as in
/// the reference, or a random number if the clock is not set. Within a process all are distinct,
/// however the clock is set.
pub fn next_incarnation() -> u64 {
    after(
        &LAST,
        since_1970_ns(SystemTime::now()).unwrap_or_else(|| RandomState::new().hash_one(std::process::id())),
    )
}

/// Returns `None` before 1970: then the clock is not set, and may have shown the same time in
/// earlier starts.
fn since_1970_ns(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_nanos() as u64)
}

/// Returns `wish`, or the successor of the last number if that is greater.
fn after(last: &AtomicU64, wish: u64) -> u64 {
    let next = |last: u64| if wish > last { wish } else { last.wrapping_add(1) };
    let mut seen = last.load(Ordering::Relaxed);
    loop {
        match last.compare_exchange_weak(seen, next(seen), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return next(seen),
            Err(other) => seen = other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_other_lives_all_the_same() {
        let last = AtomicU64::new(0);
        let clock = [5, 5, 5, 3, 9, 9, u64::MAX];
        let lives: HashSet<u64> = clock.map(|now_ns| after(&last, now_ns)).into();
        assert_eq!(lives.len(), clock.len(), "{lives:?}");
    }

    #[test]
    fn a_clock_before_1970_says_nothing() {
        assert_eq!(since_1970_ns(UNIX_EPOCH - Duration::from_secs(1)), None);
        assert_eq!(since_1970_ns(UNIX_EPOCH + Duration::from_secs(1)), Some(1_000_000_000));
    }

    #[test]
    fn threads_that_ask_at_once_get_different_ones() {
        const EACH: usize = 1000;
        let ask = || (0..EACH).map(|_| next_incarnation()).collect::<Vec<u64>>();
        let all: HashSet<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(all.len(), 4 * EACH);
    }
}
