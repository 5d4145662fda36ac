//! Throughput over time, from samples of cumulative counts.

use std::time::Duration;

use super::figures::per_second;
use super::result::Sample;

/// Shortest span: a shorter one would reflect the sampling more than the network.
const SHORTEST: Duration = Duration::from_millis(50);

/// The rates in a span of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) operations_per_s: f64,
    pub(crate) mb_per_s: f64,
}

/// Returns the rates between samples, in at most `limit` spans without gaps. Samples that do not
/// advance are skipped: they come from other nodes.
pub(crate) fn spans(samples: &[Sample], limit: u32) -> Vec<Span> {
    let end = samples.iter().map(|sample| sample.at).max().unwrap_or_default();
    let least = (end / limit.max(1)).max(SHORTEST);
    let mut last = Sample { at: Duration::ZERO, operations: 0, bytes: 0 };
    let mut edges = vec![last];
    for sample in samples {
        if sample.at >= last.at + least && sample.operations >= last.operations && sample.bytes >= last.bytes
        {
            edges.push(*sample);
            last = *sample;
        }
    }
    // A remainder that is too short for a separate span extends the last one.
    let rest = samples.last().filter(|rest| {
        edges.len() > 1
            && rest.at >= last.at
            && rest.operations >= last.operations
            && rest.bytes >= last.bytes
    });
    if let (Some(rest), Some(edge)) = (rest, edges.last_mut()) {
        *edge = *rest;
    }
    edges.windows(2).map(|pair| span(&pair[0], &pair[1])).collect()
}

fn span(before: &Sample, after: &Sample) -> Span {
    let time = after.at - before.at;
    Span {
        from: before.at,
        to: after.at,
        operations_per_s: per_second(after.operations - before.operations, time),
        mb_per_s: per_second(after.bytes - before.bytes, time) / 1e6,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(ms: u64, operations: u64, bytes: u64) -> Sample {
        Sample { at: Duration::from_millis(ms), operations, bytes }
    }

    #[test]
    fn a_span_has_what_was_done_in_it() {
        let found = spans(&[sample(100, 10, 1_000_000), sample(300, 50, 1_000_000)], 100);
        let rates: Vec<_> = found.iter().map(|span| (span.operations_per_s, span.mb_per_s)).collect();
        assert_eq!(rates, [(100.0, 10.0), (200.0, 0.0)]);
        assert_eq!(found[1].from, found[0].to);
    }

    #[test]
    fn samples_that_go_back_are_passed_over() {
        let all = [
            sample(100, 10, 10),
            sample(90, 11, 11),
            sample(200, 5, 20),
            sample(300, 20, 5),
            sample(400, 20, 20),
        ];
        let found = spans(&all, 100);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].from, found[1].to), (all[0].at, all[4].at));
        assert!(spans(&[], 100).is_empty() && spans(&[sample(0, 1, 1)], 100).is_empty());
    }

    #[test]
    fn what_is_done_in_the_last_moment_counts() {
        let found = spans(&[sample(100, 10, 10), sample(100, 30, 30)], 100);
        assert_eq!(found.iter().map(|span| span.operations_per_s).collect::<Vec<_>>(), [300.0]);
    }

    proptest! {
        /// For any samples: spans are contiguous, at most `limit`, and cover all operations.
        #[test]
        fn spans_hold_everything(steps in prop::collection::vec((0_u64..400, 0_u64..1000), 1..400), limit in 1_u32..50) {
            let mut at = sample(0, 0, 0);
            let samples: Vec<Sample> = steps.iter().map(|&(ms, operations)| {
                at = Sample { at: at.at + Duration::from_millis(ms), operations: at.operations + operations, bytes: 0 };
                at
            }).collect();
            let found = spans(&samples, limit);
            prop_assert!(found.len() <= limit as usize);
            prop_assert!(found.windows(2).all(|pair| pair[0].to == pair[1].from));
            if let Some(last) = found.last() {
                prop_assert_eq!(last.to, at.at);
                let done: f64 = found.iter().map(|span| span.operations_per_s * (span.to - span.from).as_secs_f64()).sum();
                prop_assert!((done - at.operations as f64).abs() < 1e-3 * (1.0 + done));
            } else {
                prop_assert!(at.at < SHORTEST.max(at.at / limit));
            }
        }
    }
}
