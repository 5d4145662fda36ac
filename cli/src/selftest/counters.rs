//! The counters of a client or a server during a test.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::command::{LATENCIES_MAX, Status};
use super::stats::Statistics;

/// An hour: no operation takes longer.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// Returns an empty histogram of latencies, with three significant digits.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are constant and valid")
}

/// Counters of a test.
pub(super) struct TestCounters {
    latencies_ns: Histogram<u64>,
    latency_ns: Statistics,
    pub(super) operations: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) lost: u64,
    pub(super) retries: u64,
    pub(super) late: u64,
    pub(super) verified_bytes: u64,
    first_error: Option<String>,
}

impl TestCounters {
    pub(super) fn new() -> TestCounters {
        TestCounters {
            latencies_ns: latencies(),
            latency_ns: Statistics::default(),
            operations: 0,
            bytes: 0,
            errors: 0,
            lost: 0,
            retries: 0,
            late: 0,
            verified_bytes: 0,
            first_error: None,
        }
    }

    /// Counts one operation that succeeded and moved `bytes` of payload.
    pub(super) fn done(&mut self, latency: Duration, bytes: u64) {
        self.operations += 1;
        self.bytes += bytes;
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latencies_ns.saturating_record(nanoseconds);
        self.latency_ns.add(nanoseconds);
    }

    /// Counts an error, and keeps the first one's text.
    pub(super) fn fail(&mut self, text: impl FnOnce() -> String) {
        self.errors += 1;
        self.first_error.get_or_insert_with(text);
    }

    /// Keeps the text as that of the first error, without counting it: its operation will be
    /// counted.
    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        self.first_error.get_or_insert_with(text);
    }

    /// Returns the status for the console, with latencies from index `from` on.
    pub(super) fn status(&self, from: usize) -> Status {
        let values = self.latencies_ns.iter_recorded().skip(from).take(LATENCIES_MAX);
        Status {
            operations: self.operations,
            bytes: self.bytes,
            errors: self.errors,
            first_error: self.first_error.clone().unwrap_or_default(),
            lost: self.lost,
            retries: self.retries,
            late: self.late,
            verified_bytes: self.verified_bytes,
            latency_ns: self.latency_ns,
            latencies: values.map(|value| (value.value_iterated_to(), value.count_at_value())).collect(),
            ..Status::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merged from parts it is the same histogram.
    #[test]
    fn latencies_travel_in_parts() {
        let mut counters = TestCounters::new();
        for operation in 0..10_000_u64 {
            counters.done(Duration::from_nanos(100 + operation * operation), 1);
        }
        let (mut whole, mut parts, mut from) = (latencies(), 0, 0);
        loop {
            let part = counters.status(from).latencies;
            part.iter().for_each(|(value, count)| whole.record_n(*value, *count).unwrap());
            from += part.len();
            parts += 1;
            if part.len() < LATENCIES_MAX {
                break;
            }
        }
        assert!(parts > 1);
        assert_eq!(whole, counters.latencies_ns);
        assert_eq!(whole.len(), counters.status(0).latency_ns.count());
    }
}
