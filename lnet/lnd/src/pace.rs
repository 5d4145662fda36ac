//! Back-off between attempts to connect to a peer.

/// The number of consecutive short-lived connections without a pause: a peer that has just
/// restarted is connected to again at once.
const BRIEF_MAX: u32 = 2;

/// The reason and end of a pause between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// The peer requested a later attempt, is connecting itself, or has short-lived connections;
    /// messages wait.
    Retry {
        /// The end of the pause, in nanoseconds.
        until_ns: u64,
    },
    /// The last attempt failed; messages without a connection fail.
    Backoff {
        /// The end of the pause, in nanoseconds.
        until_ns: u64,
    },
}

impl Pause {
    /// Returns the end of the pause, in nanoseconds.
    #[must_use]
    pub const fn until_ns(self) -> u64 {
        match self {
            Pause::Retry { until_ns } | Pause::Backoff { until_ns } => until_ns,
        }
    }
}

/// The pauses between the attempts to connect to one peer, which double with each failure.
#[derive(Debug)]
pub struct Backoff {
    min_ns: u64,
    max_ns: u64,
    /// The pause after the next failure.
    next_ns: u64,
    pause: Option<Pause>,
    /// The number of consecutive connections, opened by this side, that lasted less than the
    /// shortest pause.
    brief: u32,
}

impl Backoff {
    /// Makes a back-off with these shortest and longest pauses.
    #[must_use]
    pub const fn new(min_ns: u64, max_ns: u64) -> Backoff {
        Backoff { min_ns, max_ns, next_ns: min_ns, pause: None, brief: 0 }
    }

    /// Returns the pause that is in effect at this time.
    #[must_use]
    pub fn pause(&self, now_ns: u64) -> Option<Pause> {
        self.pause.filter(|pause| now_ns < pause.until_ns())
    }

    /// Records an established connection. It ends the pause, unless the connections before it were
    /// short-lived.
    pub fn established(&mut self) {
        if self.brief < BRIEF_MAX {
            self.next_ns = self.min_ns;
            self.pause = None;
        }
    }

    /// Delays the next attempt by the shortest pause, because the peer is to be tried later.
    pub fn delay_retry(&mut self, now_ns: u64) {
        self.pause = Some(Pause::Retry { until_ns: now_ns.saturating_add(self.min_ns) });
    }

    /// Records a failed attempt, after which there is a pause.
    pub fn failed(&mut self, now_ns: u64) {
        self.pause = Some(Pause::Backoff { until_ns: self.back_off(now_ns) });
    }

    /// Records the end of a connection that this side opened at `since_ns`. If connections
    /// repeatedly end soon after they were opened, there are pauses as after failures: a peer that
    /// accepts and drops every connection must not keep both sides busy. If `stays`, a pause
    /// already in effect is kept.
    pub fn lost(&mut self, since_ns: u64, now_ns: u64, stays: bool) {
        let brief = now_ns.saturating_sub(since_ns) < self.min_ns;
        self.brief = if brief { self.brief.saturating_add(1) } else { 0 };
        if self.brief >= BRIEF_MAX && !(stays && self.pause(now_ns).is_some()) {
            self.pause = Some(Pause::Retry { until_ns: self.back_off(now_ns) });
        }
    }

    /// Returns the end of a pause that begins now, and doubles the next pause.
    fn back_off(&mut self, now_ns: u64) -> u64 {
        let until_ns = now_ns.saturating_add(self.next_ns);
        self.next_ns = self.next_ns.saturating_mul(2).min(self.max_ns);
        until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_until_there_is_a_connection() {
        let mut backoff = Backoff::new(10, 35);
        for (now_ns, until_ns) in [(0, 10), (100, 120), (200, 235), (300, 335)] {
            backoff.failed(now_ns);
            assert_eq!(backoff.pause(until_ns - 1), Some(Pause::Backoff { until_ns }));
            assert_eq!(backoff.pause(until_ns), None);
        }
        backoff.established();
        assert_eq!(backoff.pause(300), None);
        backoff.delay_retry(300);
        assert_eq!(backoff.pause(309), Some(Pause::Retry { until_ns: 310 }));
    }

    #[test]
    fn connections_that_do_not_last_make_pauses_that_a_connection_does_not_end() {
        let mut backoff = Backoff::new(10, 35);
        backoff.lost(0, 9, false);
        assert_eq!(backoff.pause(9), None, "a peer has restarted");
        backoff.lost(9, 18, false);
        assert_eq!(backoff.pause(18), Some(Pause::Retry { until_ns: 28 }));
        backoff.established();
        assert_eq!(backoff.pause(27), Some(Pause::Retry { until_ns: 28 }));
        backoff.lost(20, 25, true);
        assert_eq!(backoff.pause(25), Some(Pause::Retry { until_ns: 28 }), "it stays");
        backoff.lost(30, 40, false);
        backoff.established();
        assert_eq!(backoff.pause(40), None, "that one has lasted");
    }
}
