//! Whether more threads want to run than there are processors: then nobody looks for what it could sleep for.
//!
//! A thread that looks for some microseconds and then sleeps does not notice that others wait for its processor: it is preferred to
//! them each time it is woken. So once in a while one of those who want to look asks the system.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;
use std::time::Instant;

use nix::unistd::{SysconfVar, sysconf};

/// How often one asks, which takes some microseconds: one in a thousand of those in which processors are looked away.
const INTERVAL: Duration = Duration::from_millis(10);

/// Where the system says how many threads run or want to: `0.20 0.18 0.12 1/80 11206`, the number before the slash.
const LOAD: &str = "/proc/loadavg";

/// What is known of the crowd.
struct Crowd {
    origin: Instant,
    /// When it was looked at, in nanoseconds since `origin`.
    seen_ns: AtomicU64,
    is_there: AtomicBool,
    processors: u64,
}

fn crowd() -> &'static Crowd {
    static CROWD: OnceLock<Crowd> = OnceLock::new();
    CROWD.get_or_init(|| Crowd {
        // So that the first look is at once.
        origin: Instant::now().checked_sub(INTERVAL).unwrap_or_else(Instant::now),
        seen_ns: AtomicU64::new(0),
        is_there: AtomicBool::new(false),
        processors: processors(),
    })
}

/// All that the system uses: those who want to run are counted on all of them. (What this thread may use says nothing of where those
/// run for whom it waits.)
fn processors() -> u64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|online| u64::try_from(online).ok()).unwrap_or(u64::MAX)
}

/// Whether there is one processor alone.
pub(super) fn has_one_processor() -> bool {
    crowd().processors == 1
}

/// Whether there was one when somebody looked last, which is not long ago.
pub(super) fn is_there(now: Instant) -> bool {
    let crowd = crowd();
    let now_ns = now.saturating_duration_since(crowd.origin).as_nanos() as u64;
    let seen_ns = crowd.seen_ns.load(Ordering::Relaxed);
    let is_due = now_ns.saturating_sub(seen_ns) >= INTERVAL.as_nanos() as u64;
    // One of those who find it due.
    let set = || crowd.seen_ns.compare_exchange(seen_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed);
    if is_due && set().is_ok() {
        // A system that does not say it has none.
        let is_there = running().is_some_and(|running| running > crowd.processors);
        crowd.is_there.store(is_there, Ordering::Relaxed);
    }
    crowd.is_there.load(Ordering::Relaxed)
}

/// How many threads run or want to, this one included.
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
    fn the_systems_word_is_read() {
        assert_eq!(parse("0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(parse("0.20 0.18 0.12 17/80"), Some(17));
        for bad in ["", "0.20 0.18 0.12", "0.20 0.18 0.12 x/80", "0.20 0.18 0.12 3"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert!(running().is_some_and(|running| running > 0), "this thread runs");
    }

    #[test]
    fn more_threads_than_processors_are_a_crowd() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..=processors() {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        core::hint::spin_loop();
                    }
                });
            }
            while !is_there(Instant::now()) {
                std::thread::yield_now();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
