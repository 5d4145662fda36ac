//! Detection of users that hold a thread up.
//!
//! The elapsed time of a turn says little: the thread may have been preempted. System calls return
//! its processor time, whether it has blocked, and how long it has waited for a processor; they are
//! made only for a while after a long turn.

use std::fs::File;
use std::io::Read;

use nix::sys::resource::{Usage, UsageWho, getrusage};

use super::worker::ns;
use super::{LONG_TURN, REST_FACTOR, REST_MAX, WARY};
use crate::signals::take_excused_ns;

/// The measurements of a thread's turns.
#[derive(Debug, Default)]
pub(super) struct TurnMeter {
    began_ns: u64,
    /// The thread's usage when the turn began, if it is being measured.
    before: Option<Spent>,
    wary_until_ns: u64,
}

/// The resource usage of a thread so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spent {
    cpu_ns: u64,
    /// Voluntary context switches: times that it has blocked.
    waits: i64,
    /// Time that it was ready to run while others had the processors, where the system reports it.
    queued_ns: Option<u64>,
}

impl TurnMeter {
    /// Starts the measurement of a turn.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
        take_excused_ns();
        self.before = (now_ns < self.wary_until_ns).then(Spent::now).flatten();
    }

    /// Ends the measurement of a turn. Returns the rest of its user in nanoseconds; `None` if the
    /// user need not rest.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<u64> {
        let took_ns = now_ns.saturating_sub(self.began_ns);
        if took_ns < ns(LONG_TURN) {
            return None;
        }
        let excused_ns = take_excused_ns();
        if took_ns.saturating_sub(excused_ns) < ns(LONG_TURN) {
            return None;
        }
        let spent = self.before.zip(Spent::now());
        let rest_ns = spent.and_then(|(before, after)| rest_ns(took_ns, excused_ns, before, after));
        // Extended by the rest: otherwise the next long turn of a user that has rested for long
        // would be a first one again.
        self.wary_until_ns = now_ns.saturating_add(ns(WARY)).saturating_add(rest_ns.unwrap_or(0));
        rest_ns
    }
}

impl Spent {
    fn now() -> Option<Spent> {
        getrusage(UsageWho::RUSAGE_THREAD).ok().map(|usage| Spent::of(&usage))
    }

    fn of(usage: &Usage) -> Spent {
        let ns = [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1_000);
        Spent { cpu_ns: ns[0] + ns[1], waits: usage.voluntary_context_switches(), queued_ns: queued_ns() }
    }
}

/// Returns the time that this thread has waited for a processor so far; `None` where the system
/// does not count it.
fn queued_ns() -> Option<u64> {
    // Two numbers of up to 20 digits, and one more. No allocation: there may be no memory.
    let mut text = [0; 64];
    let length = File::open("/proc/thread-self/schedstat").and_then(|mut file| file.read(&mut text)).ok()?;
    read_queued_ns(std::str::from_utf8(&text[..length]).ok()?)
}

/// Parses `schedstat`: the time on a processor, the time spent waiting for one, and the number of
/// times on one. All are 0 where the system does not count them.
fn read_queued_ns(schedstat: &str) -> Option<u64> {
    let mut numbers = schedstat.split_ascii_whitespace().map_while(|number| number.parse::<u64>().ok());
    numbers.next().filter(|&ran_ns| ran_ns > 0)?;
    numbers.next()
}

/// Returns the rest of a turn's user in nanoseconds; `None` for no rest. A thread that has not
/// blocked has delayed others only for its processor time: the rest of the time another thread had
/// its processor. A thread that has blocked has delayed others for the whole time, except while it
/// was ready and had no processor. Time spent on signals to other clients is excused.
fn rest_ns(took_ns: u64, excused_ns: u64, before: Spent, after: Spent) -> Option<u64> {
    let worked_ns = after.cpu_ns.saturating_sub(before.cpu_ns).min(took_ns);
    let queued_ns = before.queued_ns.zip(after.queued_ns);
    let queued_ns = queued_ns.map_or(0, |(before_ns, after_ns)| after_ns.saturating_sub(before_ns));
    let has_waited = after.waits > before.waits;
    let own_ns = if has_waited { took_ns.saturating_sub(queued_ns).max(worked_ns) } else { worked_ns };
    rest_for(own_ns.saturating_sub(excused_ns))
}

/// Returns the rest in nanoseconds of a user that has held a thread up for `own_ns`; `None` if that
/// is less than [`LONG_TURN`].
pub(super) fn rest_for(own_ns: u64) -> Option<u64> {
    (own_ns >= ns(LONG_TURN)).then(|| own_ns.saturating_mul(REST_FACTOR).min(ns(REST_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn spent(cpu_ms: u64, waits: i64) -> Spent {
        Spent { cpu_ns: cpu_ms * MS, waits, queued_ns: None }
    }

    /// Returns the usage with a known time of waiting for a processor.
    fn queued(cpu_ms: u64, waits: i64, queued_ms: u64) -> Spent {
        Spent { queued_ns: Some(queued_ms * MS), ..spent(cpu_ms, waits) }
    }

    #[test]
    fn a_turn_that_stood_still_for_others_is_no_fault_of_its_user() {
        let before = spent(1000, 7);
        for (took_ms, after, rest_ms) in [
            // Another thread had the processor.
            (500, spent(1001, 7), None),
            (500, spent(1009, 7), None),
            // The thread has used processor time.
            (500, spent(1100, 7), Some(2000)),
            (10, spent(1010, 7), Some(200)),
            // The thread has blocked.
            (500, spent(1001, 8), Some(10_000)),
            (100, spent(1000, 9), Some(2000)),
            (9, spent(1001, 8), None),
            (100_000, spent(101_000, 7), Some(10_000)),
        ] {
            let rest_ns = rest_ns(took_ms * MS, 0, before, after);
            assert_eq!(rest_ns, rest_ms.map(|ms: u64| ms * MS), "{took_ms} ms, {after:?}");
        }
    }

    /// A thread that has blocked for a moment, and then waited for a processor that others had.
    #[test]
    fn a_turn_that_waited_for_a_processor_is_no_fault_of_its_user() {
        let before = queued(1000, 7, 300);
        for (took_ms, after, rest_ms) in [
            (500, queued(1001, 8, 798), None),
            (500, queued(1001, 8, 791), None),
            (500, queued(1001, 8, 790), Some(200)),
            (100, queued(1000, 9, 300), Some(2000)),
            // The thread has blocked, and has used processor time, too.
            (500, queued(1100, 8, 700), Some(2000)),
            // A waiting time that exceeds the rest of the turn does not reduce the processor time.
            (100, queued(1100, 8, 700), Some(2000)),
            // Not counted at one of the two times.
            (100, spent(1000, 8), Some(2000)),
        ] {
            let rest_ns = rest_ns(took_ms * MS, 0, before, after);
            assert_eq!(rest_ns, rest_ms.map(|ms: u64| ms * MS), "{took_ms} ms, {after:?}");
        }
    }

    /// A sender to a client that makes signals long does not rest for it.
    #[test]
    fn signals_to_others_are_excused() {
        let before = spent(1000, 7);
        for (excused_ms, after, rest_ms) in [
            (91, spent(1100, 7), None),
            (90, spent(1100, 7), Some(200)),
            (90, spent(1100, 8), Some(200)),
            (100, spent(1010, 7), None),
        ] {
            let rest_ns = rest_ns(100 * MS, excused_ms * MS, before, after);
            assert_eq!(rest_ns, rest_ms.map(|ms: u64| ms * MS), "{excused_ms} ms, {after:?}");
        }
    }

    #[test]
    fn the_time_without_a_processor_is_read() {
        assert_eq!(read_queued_ns("7205913 1234567 42\n"), Some(1_234_567));
        for unknown in ["0 0 0\n", "", "12\n", "12 x 3\n"] {
            assert_eq!(read_queued_ns(unknown), None, "{unknown:?}");
        }
        // Of this thread, where the system counts it.
        if let Some(earlier_ns) = queued_ns() {
            assert!(queued_ns().is_some_and(|later_ns| later_ns >= earlier_ns));
        }
    }

    /// The first long turn starts the measurement; one that comes long after that is a first one
    /// again.
    #[test]
    fn turns_are_measured_after_a_long_one() {
        let mut meter = TurnMeter::default();
        let mut turn = |began_ns: u64, took_ns: u64| {
            meter.begin(began_ns);
            let measured = meter.before.is_some();
            // As if the thread had blocked.
            meter.before = meter.before.map(|before| Spent { waits: before.waits - 1, ..before });
            (measured, meter.end(began_ns + took_ns))
        };
        assert_eq!(turn(MS, MS), (false, None));
        assert_eq!(turn(10 * MS, 50 * MS), (false, None));
        assert_eq!(turn(60 * MS, MS), (true, None));
        assert_eq!(turn(100 * MS, 50 * MS), (true, Some(1000 * MS)));
        // However long the user has rested.
        let rested_ns = 1150 * MS + ns(WARY) - 1;
        assert_eq!(turn(rested_ns, 1000 * MS), (true, Some(ns(REST_MAX))));
        let again_ns = rested_ns + 1000 * MS + ns(REST_MAX) + MS;
        assert_eq!(turn(again_ns, 50 * MS), (true, Some(1000 * MS)));
        let late_ns = again_ns + 1051 * MS + ns(WARY);
        assert_eq!(turn(late_ns, 50 * MS), (false, None));
        assert_eq!(turn(late_ns + 100 * MS, 50 * MS), (true, Some(1000 * MS)));
    }
}
