//! The counters of a client or a server during a test.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::command::{LATENCIES_MAX, Status};

/// An hour: no operation takes longer.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// Returns an empty histogram of latencies, with three significant digits.
pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are constant and valid")
}

/// Adds a part of another histogram: values with their counts. Another node may send any numbers, so
/// the sum of the counts is limited to 64 bits: the histogram adds counts to find quantiles.
pub(super) fn add(latencies_ns: &mut Histogram<u64>, part: &[(u64, u64)]) {
    for (value, count) in part {
        let room = u64::MAX - latencies_ns.len();
        latencies_ns.saturating_record_n(*value, (*count).min(room));
    }
}

/// Counters of a test.
pub(super) struct TestCounters {
    latencies_ns: Histogram<u64>,
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
            latencies: values.map(|value| (value.value_iterated_to(), value.count_at_value())).collect(),
            ..Status::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counters(latencies_ns: &[u64]) -> TestCounters {
        let mut counters = TestCounters::new();
        latencies_ns.iter().for_each(|ns| counters.done(Duration::from_nanos(*ns), 1));
        counters
    }

    /// Adds a node's latencies as they travel; returns the number of parts.
    fn travel(whole: &mut Histogram<u64>, node: &TestCounters) -> usize {
        let mut from = 0;
        for parts in 1.. {
            let part = node.status(from).latencies;
            add(whole, &part);
            from += part.len();
            if part.len() < LATENCIES_MAX {
                return parts;
            }
        }
        0
    }

    /// Returns whether a histogram of three digits has this value.
    fn close(found: f64, exact: f64) -> bool {
        (found - exact).abs() <= 2e-3 * exact.max(1.0)
    }

    /// No value, one, and five; times in nanoseconds.
    // Covers: MT-142, MT-146
    #[test]
    fn small_samples() {
        let none = counters(&[]).latencies_ns;
        assert_eq!((none.len(), none.min(), none.max(), none.mean(), none.stdev()), (0, 0, 0, 0.0, 0.0));
        let one = counters(&[7]).latencies_ns;
        assert_eq!((one.len(), one.min(), one.max(), one.mean(), one.stdev()), (1, 7, 7, 7.0, 0.0));
        let times = [500_000_000, 1_500_000_000, 2_500_000_000, 3_500_000_000, 4_500_000_000];
        let five = counters(&times).latencies_ns;
        assert!(close(five.mean(), 2.5e9) && close(five.stdev(), 2e18_f64.sqrt()), "{}", five.stdev());
        assert!(close(five.min() as f64, 0.5e9) && close(five.max() as f64, 4.5e9));
    }

    /// The largest integers saturate: their number is right, their value the longest latency.
    // Covers: MT-143
    #[test]
    fn large_values_overflow_nothing() {
        let mut many = latencies();
        for _ in 0..3 {
            add(&mut many, &[(u64::MAX, u64::MAX), (1, u64::MAX)]);
        }
        assert_eq!(many.len(), u64::MAX);
        assert!(close(many.max() as f64, LATENCY_MAX_NS as f64) && close(many.mean(), LATENCY_MAX_NS as f64));
    }

    /// A histogram of many values travels in several parts, and is the same again.
    // Covers: MT-147
    #[test]
    fn latencies_travel_in_parts() {
        let node = counters(&(0..100_000).map(|ns| 100 + ns * ns).collect::<Vec<_>>());
        let mut whole = latencies();
        assert!(travel(&mut whole, &node) > 1);
        assert_eq!(whole, node.latencies_ns);
    }

    proptest! {
        /// Any sample, split at any index, travels and merges to the same histogram, whose mean and
        /// deviation are those of the definition.
        // Covers: MT-142, MT-144, MT-145, MT-147
        #[test]
        fn parts_merge_exactly(
            values in prop::collection::vec(1..LATENCY_MAX_NS, 1..100),
            split: prop::sample::Index,
        ) {
            let (first, second) = values.split_at(split.index(values.len()));
            let mut merged = latencies();
            prop_assert!([first, second].iter().all(|part| travel(&mut merged, &counters(part)) == 1));
            prop_assert_eq!(&merged, &counters(&values).latencies_ns);
            let count = values.len() as f64;
            let mean = values.iter().map(|value| *value as f64).sum::<f64>() / count;
            let squares = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum::<f64>();
            prop_assert!(close(merged.mean(), mean));
            // Rounding each value by a thousandth changes the deviation by that of the largest.
            let largest = *values.iter().max().unwrap_or(&0) as f64;
            prop_assert!((merged.stdev() - (squares / count).sqrt()).abs() <= 2e-3 * largest);
        }
    }
}
