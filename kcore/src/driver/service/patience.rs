//! Users that hold a thread up.
//!
//! The time that a turn takes says little: the thread may have stood still for others. What it has worked, and whether it has
//! waited for something by itself, the system tells by a call; so that is asked for only in the time after a long turn.

use nix::sys::resource::{Usage, UsageWho, getrusage};

use super::worker::ns;
use super::{LONG_TURN, REST_FACTOR, REST_MAX, WARY};

/// What a thread knows of its turns.
#[derive(Debug, Default)]
pub(super) struct Patience {
    began_ns: u64,
    /// What the thread had spent when the turn began, while it is wary.
    before: Option<Spent>,
    wary_until_ns: u64,
}

/// What a thread has spent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spent {
    cpu_ns: u64,
    /// Times that it has waited by itself.
    waits: i64,
}

impl Patience {
    /// A turn begins.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
        self.before = (now_ns < self.wary_until_ns).then(Spent::now).flatten();
    }

    /// The turn is over. Gives how long its user is to rest, if that is to be.
    pub(super) fn end(&mut self, now_ns: u64) -> Option<u64> {
        let took_ns = now_ns.saturating_sub(self.began_ns);
        if took_ns < ns(LONG_TURN) {
            return None;
        }
        self.wary_until_ns = now_ns.saturating_add(ns(WARY));
        self.before.zip(Spent::now()).and_then(|(before, after)| rest_ns(took_ns, before, after))
    }
}

impl Spent {
    fn now() -> Option<Spent> {
        getrusage(UsageWho::RUSAGE_THREAD).ok().map(|usage| Spent::of(&usage))
    }

    fn of(usage: &Usage) -> Spent {
        let ns = [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_usec() as u64 * 1_000);
        Spent { cpu_ns: ns[0] + ns[1], waits: usage.voluntary_context_switches() }
    }
}

/// How long the user of a turn is to rest. A thread that has not waited by itself was only in the way of others for as long as it has
/// worked: the rest of the time another thread had its processor.
fn rest_ns(took_ns: u64, before: Spent, after: Spent) -> Option<u64> {
    let worked_ns = after.cpu_ns.saturating_sub(before.cpu_ns).min(took_ns);
    let own_ns = if after.waits > before.waits { took_ns } else { worked_ns };
    (own_ns >= ns(LONG_TURN)).then(|| own_ns.saturating_mul(REST_FACTOR).min(ns(REST_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn spent(cpu_ms: u64, waits: i64) -> Spent {
        Spent { cpu_ns: cpu_ms * MS, waits }
    }

    #[test]
    fn a_turn_that_stood_still_for_others_is_no_fault_of_its_user() {
        let before = spent(1000, 7);
        for (took_ms, after, rest_ms) in [
            // Another thread had the processor.
            (500, spent(1001, 7), None),
            (500, spent(1009, 7), None),
            // It has worked.
            (500, spent(1100, 7), Some(2000)),
            (10, spent(1010, 7), Some(200)),
            // It has waited, whatever else there was.
            (500, spent(1001, 8), Some(10_000)),
            (100, spent(1000, 9), Some(2000)),
            (9, spent(1001, 8), None),
            (100_000, spent(101_000, 7), Some(10_000)),
        ] {
            let rest_ns = rest_ns(took_ms * MS, before, after);
            assert_eq!(rest_ns, rest_ms.map(|ms: u64| ms * MS), "{took_ms} ms, {after:?}");
        }
    }

    /// The first long turn makes a thread wary; one that comes long after that is the first one again.
    #[test]
    fn turns_are_measured_after_a_long_one() {
        let mut patience = Patience::default();
        let mut turn = |began_ns: u64, took_ns: u64| {
            patience.begin(began_ns);
            let measured = patience.before.is_some();
            // As if the thread had waited.
            patience.before = patience.before.map(|before| Spent { waits: before.waits - 1, ..before });
            (measured, patience.end(began_ns + took_ns))
        };
        assert_eq!(turn(MS, MS), (false, None));
        assert_eq!(turn(10 * MS, 50 * MS), (false, None));
        assert_eq!(turn(60 * MS, MS), (true, None));
        assert_eq!(turn(100 * MS, 50 * MS), (true, Some(1000 * MS)));
        let late_ns = 151 * MS + ns(WARY);
        assert_eq!(turn(late_ns, 50 * MS), (false, None));
        assert_eq!(turn(late_ns + 100 * MS, 50 * MS), (true, Some(1000 * MS)));
    }
}
