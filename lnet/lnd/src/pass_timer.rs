//! Coarse timers: one pass checks all connections and peers of a shard.

use lnet_api::Upcalls;
use lnet_nid::Nid;
use smallvec::SmallVec;

/// Passes per timeout: detection takes at most 1.25 times the timeout.
const PASSES_PER_TIMEOUT: u64 = 4;

/// While messages wait for credits of an NI, a connection that holds some and makes no progress is
/// closed after this part of the timeout: 12.5 s by default. A peer that takes nothing for the time
/// in which TCP repeats a segment five times is stuck; a slow peer takes something, and a
/// connection whose credits no message waits for gets the whole timeout.
pub const SHORT_PART: u64 = 4;

/// The number of peers without connections that are kept for the reason of their last failure.
pub const FAILURES_KEPT: usize = 1024;

/// The time of the next pass.
#[derive(Debug)]
pub struct PassTimer {
    next_ns: Option<u64>,
    /// The time between passes while there are connections.
    period_ns: u64,
}

impl PassTimer {
    /// Makes timers with nothing due. While there are connections, a pass is due as often as their
    /// shortest timeout demands; `longest_ns` is an upper bound for all timeouts.
    #[must_use]
    pub const fn new(longest_ns: u64) -> PassTimer {
        PassTimer { next_ns: None, period_ns: longest_ns / PASSES_PER_TIMEOUT }
    }

    /// Schedules the next pass at this time, unless an earlier one is scheduled.
    pub fn note(&mut self, at_ns: u64) {
        self.next_ns = Some(self.next_ns.map_or(at_ns, |next_ns| next_ns.min(at_ns)));
    }

    /// Schedules a pass for the connections of an NI with this timeout.
    pub fn note_activity(&mut self, now_ns: u64, timeout_ns: u64) {
        self.period_ns = self.period_ns.min(timeout_ns / PASSES_PER_TIMEOUT);
        self.note_period(now_ns);
    }

    /// Schedules the next pass one period from now, while there are connections.
    pub fn note_period(&mut self, now_ns: u64) {
        self.note(now_ns.saturating_add(self.period_ns));
    }

    /// Returns the time of the next pass, if one is scheduled.
    #[must_use]
    pub const fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Begins a pass if one is due, and returns whether it was. The pass schedules the next one by
    /// what it finds.
    pub fn begin(&mut self, now_ns: u64) -> bool {
        let is_due = self.next_ns.is_some_and(|next_ns| next_ns <= now_ns);
        if is_due {
            self.next_ns = None;
        }
        is_due
    }
}

/// A cache of whether messages wait for credits, by NI, for the duration of one pass.
#[derive(Debug, Default)]
pub struct Shortages(SmallVec<[(Nid, bool); 4]>);

impl Shortages {
    /// Returns whether messages wait for credits of an NI. Queries the engine once per pass. The
    /// query may visit all partitions, so this must not be called under the lock of a connection.
    pub fn is_short(&mut self, ni: Nid, upcalls: &dyn Upcalls) -> bool {
        if let Some((_, short)) = self.0.iter().find(|(known, _)| *known == ni) {
            return *short;
        }
        let short = upcalls.is_short(ni);
        self.0.push((ni, short));
        short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_due_as_often_as_the_shortest_timeout_demands() {
        let mut timers = PassTimer::new(400);
        assert!(!timers.begin(u64::MAX), "there is nothing to look at");
        timers.note_period(1000);
        assert_eq!(timers.next_ns(), Some(1100));
        timers.note_activity(1000, 40);
        timers.note(1090);
        assert_eq!(timers.next_ns(), Some(1010));
        assert!(!timers.begin(1009) && timers.begin(1010) && !timers.begin(1010));
        timers.note_period(1010);
        assert_eq!(timers.next_ns(), Some(1020));
    }
}
