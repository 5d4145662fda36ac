//! Detection of an overcommitted machine, which has more runnable threads than processors. No
//! thread spins on it.
//!
//! A thread that spins for some microseconds and then sleeps cannot notice that other threads wait
//! for its processor: the scheduler prefers it to them at each wake-up. So one of the spinning
//! threads of a process reads the system's load from time to time.

#[cfg(test)]
use core::sync::atomic::AtomicBool;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;
use std::time::Instant;

use nix::unistd::{SysconfVar, sysconf};

/// The interval at which the load is read. A reading takes about 10 µs, a thousandth of the
/// interval.
const INTERVAL: Duration = Duration::from_millis(10);

/// The file whose number before the slash is that of the runnable threads: `0.20 0.18 0.12 1/80
/// 11206`.
const LOAD: &str = "/proc/loadavg";

/// The load at the last reading, shared by the threads of a process.
struct LoadCache {
    origin: Instant,
    /// The time of the last reading, in nanoseconds since `origin`.
    read_ns: AtomicU64,
    /// The number of runnable threads at the last reading.
    running: AtomicU64,
    processors: u64,
}

fn cache() -> &'static LoadCache {
    static CACHE: OnceLock<LoadCache> = OnceLock::new();
    CACHE.get_or_init(|| LoadCache {
        // An interval in the past, so that the first caller reads the load.
        origin: Instant::now().checked_sub(INTERVAL).unwrap_or_else(Instant::now),
        read_ns: AtomicU64::new(0),
        running: AtomicU64::new(0),
        processors: processors(),
    })
}

/// Returns the number of processors online, because the load counts the runnable threads of all of
/// them. (The affinity of this thread does not apply to the threads that it waits for.)
fn processors() -> u64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|online| u64::try_from(online).ok()).unwrap_or(u64::MAX)
}

/// Returns whether the machine has a single processor.
pub(super) fn has_one_processor() -> bool {
    cache().processors == 1
}

/// Returns whether there were more runnable threads than processors at the last reading, at most
/// [`INTERVAL`] ago.
pub(super) fn is_overcommitted(now: Instant) -> bool {
    runnable_threads(now) > cache().processors
}

/// Returns whether one more thread would find an idle processor, by the last reading of the load.
pub fn has_spare_processor() -> bool {
    runnable_threads(Instant::now()) < cache().processors
}

/// Returns the number of runnable threads at the last reading, at most [`INTERVAL`] ago.
fn runnable_threads(now: Instant) -> u64 {
    let cache = cache();
    let now_ns = now.saturating_duration_since(cache.origin).as_nanos() as u64;
    let read_ns = cache.read_ns.load(Ordering::Relaxed);
    let is_due = now_ns.saturating_sub(read_ns) >= INTERVAL.as_nanos() as u64;
    // Of the threads that find a reading due, only one makes it.
    let set = || cache.read_ns.compare_exchange(read_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed);
    if is_due && set().is_ok() {
        // If the load cannot be read, few threads are assumed to run.
        cache.running.store(running().unwrap_or(0), Ordering::Relaxed);
    }
    cache.running.load(Ordering::Relaxed)
}

/// Reads the number of runnable threads, this one included.
fn running() -> Option<u64> {
    let mut text = [0; 64];
    let length = File::open(LOAD).ok()?.read(&mut text).ok()?;
    parse(str::from_utf8(text.get(..length)?).ok()?)
}

fn parse(load: &str) -> Option<u64> {
    let (running, _) = load.split_whitespace().nth(3)?.split_once('/')?;
    running.parse().ok()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_read() {
        assert_eq!(parse("0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(parse("0.20 0.18 0.12 17/80"), Some(17));
        for bad in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 x/80", "0.20 0.18 0.12 3"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert!(running().is_some_and(|running| running > 0), "this thread runs");
    }

    #[test]
    fn more_threads_than_processors_overcommit_the_machine() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..=processors() {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        core::hint::spin_loop();
                    }
                });
            }
            while !is_overcommitted(Instant::now()) {
                std::thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
