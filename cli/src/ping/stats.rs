//! The statistics of repeated pings.

use std::fmt;
use std::time::Duration;

use lnet_nid::Nid;
use serde_json::{Value, json};

/// The statistics of a node that was pinged repeatedly.
#[derive(Debug, Clone, Default)]
pub(super) struct PingStats {
    sent: u64,
    answered: u64,
    least: Duration,
    most: Duration,
    /// Sum of the times, in nanoseconds: 64 bits would hold 584 years.
    sum_ns: u128,
}

impl PingStats {
    pub(super) fn answered(&mut self, time: Duration) {
        self.least = if self.answered == 0 { time } else { self.least.min(time) };
        self.most = self.most.max(time);
        self.sum_ns += time.as_nanos();
        self.sent += 1;
        self.answered += 1;
    }

    pub(super) fn lost(&mut self) {
        self.sent += 1;
    }

    /// Returns whether there were pings, all of them answered.
    pub(super) fn is_complete(&self) -> bool {
        self.sent > 0 && self.sent == self.answered
    }

    fn average(&self) -> Duration {
        let average_ns = self.sum_ns / u128::from(self.answered.max(1));
        Duration::from_nanos(u64::try_from(average_ns).unwrap_or(u64::MAX))
    }

    pub(super) fn to_json(&self, nid: Nid) -> Value {
        let time = |time: Duration| (self.answered > 0).then(|| super::microseconds(time));
        json!({ "summary": {
            "nid": nid.to_string(),
            "sent": self.sent,
            "answered": self.answered,
            "min_us": time(self.least),
            "avg_us": time(self.average()),
            "max_us": time(self.most),
        }})
    }
}

/// Formats the statistics as ping(8) does.
impl fmt::Display for PingStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self.sent - self.answered;
        let percent = lost as f64 * 100.0 / self.sent.max(1) as f64;
        write!(f, "{} sent, {} answered, {percent:.0}% lost", self.sent, self.answered)?;
        if self.answered == 0 {
            return Ok(());
        }
        let [least, average, most] = [self.least, self.average(), self.most].map(milliseconds);
        write!(f, "\nmin/avg/max {least}/{average}/{most} ms")
    }
}

/// Formats a time in milliseconds, to the microsecond.
pub(super) fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_answers() {
        let mut stats = PingStats::default();
        assert!(!stats.is_complete());
        assert_eq!(stats.to_string(), "0 sent, 0 answered, 0% lost");
        for micros in [300, 100, 200] {
            stats.answered(Duration::from_micros(micros));
        }
        assert!(stats.is_complete());
        stats.lost();
        assert!(!stats.is_complete());
        assert_eq!(stats.to_string(), "4 sent, 3 answered, 25% lost\nmin/avg/max 0.100/0.200/0.300 ms");
    }
}
