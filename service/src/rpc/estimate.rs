//! The estimate of a time that changes slowly: the largest value of the last minutes.

/// The number of bins of the window.
pub const BINS: usize = 4;

/// The time that one bin covers, in nanoseconds: a minute. So a slow request raises the estimate for
/// three to four minutes: long enough to cover the pauses between bursts, short enough that retries
/// are soon fast again.
pub const BIN_NS: u64 = 60_000_000_000;

/// The largest value of the last [`BINS`] bins, in nanoseconds. A maximum, because a timeout must cover
/// the slow requests, not the average one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Estimate {
    largest_ns: [u64; BINS],
    /// The number of the latest bin since the start of the clock.
    latest: u64,
}

impl Estimate {
    /// Adds a value, at this time.
    pub(super) fn record(&mut self, now_ns: u64, value_ns: u64) {
        self.advance(now_ns);
        let largest_ns = &mut self.largest_ns[self.latest as usize % BINS];
        *largest_ns = value_ns.max(*largest_ns);
    }

    /// Returns the largest value of the window that ends at this time; 0 without one.
    pub(super) fn max_ns(&mut self, now_ns: u64) -> u64 {
        self.advance(now_ns);
        self.largest_ns.into_iter().fold(0, u64::max)
    }

    /// Empties the bins that began since the last call.
    fn advance(&mut self, now_ns: u64) {
        let bin = now_ns / BIN_NS;
        let begun = bin.saturating_sub(self.latest).min(BINS as u64);
        for number in 1..=begun {
            self.largest_ns[(self.latest + number) as usize % BINS] = 0;
        }
        self.latest = self.latest.max(bin);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_largest_value_of_the_last_bins(
            steps in prop::collection::vec((0..3 * BIN_NS, 0..1000_u64), 1..60),
        ) {
            let (mut estimate, mut values, mut now_ns) = (Estimate::default(), Vec::new(), 0);
            for (pause_ns, value_ns) in steps {
                now_ns += pause_ns;
                let first = (now_ns / BIN_NS).saturating_sub(BINS as u64 - 1);
                let in_window = |&&(bin, _): &&(u64, u64)| bin >= first;
                let largest_ns = values.iter().filter(in_window).map(|(_, value)| *value).max();
                prop_assert_eq!(estimate.max_ns(now_ns), largest_ns.unwrap_or(0));
                estimate.record(now_ns, value_ns);
                values.push((now_ns / BIN_NS, value_ns));
                prop_assert!(estimate.max_ns(now_ns) >= value_ns);
            }
        }
    }
}
