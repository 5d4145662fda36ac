//! Rates over time, from samples of cumulative counts.

use std::time::Duration;

use super::{Anchor, PAIR, STEPS};
use crate::units::{in_thousands, three_digits};

/// Shortest span: a shorter one would reflect the sampling more than the network.
const SHORTEST: Duration = Duration::from_millis(50);

/// Largest number of spans that can be distinguished.
const SPANS_MAX: u32 = 240;

/// The classes of the curves of a picture.
const CLASSES: [&str; 2] = ["rate", "rate second"];

/// A cumulative count at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// Time since the beginning.
    pub(crate) at: Duration,
    /// The count until then.
    pub(crate) total: f64,
}

/// A rate over time.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    /// Its name in front of the mean; empty for a picture of one curve.
    pub(crate) name: &'static str,
    pub(crate) samples: Vec<Sample>,
    /// The mean per second.
    pub(crate) mean: f64,
    /// The mean with its unit.
    pub(crate) words: String,
}

/// The rate in a span of time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Span {
    from: Duration,
    to: Duration,
    per_s: f64,
}

/// Returns a picture of one or two curves. With one, a line shows its mean.
pub(crate) fn over_time(title: &str, curves: &[Curve]) -> String {
    let means: Vec<String> = curves
        .iter()
        .map(|curve| {
            if curve.name.is_empty() {
                curve.words.clone()
            } else {
                format!("{} {}", curve.name, curve.words)
            }
        })
        .collect();
    let means = means.join(", ");
    let label = format!("{title}: {means}");
    let spans: Vec<Vec<Span>> = curves.iter().map(|curve| spans(&curve.samples, SPANS_MAX)).collect();
    if spans.iter().all(|spans| spans.len() < 2) {
        return PAIR.nothing(label, "too short for a curve");
    }
    let all = || spans.iter().flatten();
    let means_max = curves.iter().map(|curve| curve.mean).fold(0.0, f64::max);
    let upright = PAIR.upright(all().map(|span| span.per_s).fold(means_max, f64::max), STEPS);
    let across = PAIR.across(all().map(|span| span.to.as_secs_f64()).fold(0.0, f64::max));
    let times = across.labels(6, |s| format!("{} s", three_digits(s)));
    let mut svg = PAIR.picture(label, &upright.labels(STEPS, in_thousands), &times);
    for (spans, class) in spans.iter().zip(CLASSES) {
        // Each span has its own length, with a constant rate.
        let steps: Vec<(f64, f64)> = spans
            .iter()
            .flat_map(|span| {
                let y = upright.position(span.per_s);
                [span.from, span.to].map(|at| (across.position(at.as_secs_f64()), y))
            })
            .collect();
        if let (Some(first), Some(last), [_]) = (steps.first(), steps.last(), curves) {
            let ground = [(last.0, PAIR.bottom), (first.0, PAIR.bottom)];
            svg.path("area", steps.iter().copied().chain(ground));
        }
        svg.path(class, steps.iter().copied());
    }
    if let [curve] = curves {
        let y = upright.position(curve.mean);
        svg.line("mark", (PAIR.left, y), (PAIR.right, y));
    }
    svg.text("name", Anchor::End, (PAIR.right, PAIR.top - 8.0), format!("mean {means}"));
    svg.end()
}

/// Returns the rates between samples, in at most `limit` spans without gaps. Samples that do not
/// advance are skipped: they come from other nodes.
fn spans(samples: &[Sample], limit: u32) -> Vec<Span> {
    let end = samples.iter().map(|sample| sample.at).max().unwrap_or_default();
    let least = (end / limit.max(1)).max(SHORTEST);
    let mut last = Sample { at: Duration::ZERO, total: 0.0 };
    let mut edges = vec![last];
    for sample in samples {
        if sample.at >= last.at.saturating_add(least) && sample.total >= last.total {
            edges.push(*sample);
            last = *sample;
        }
    }
    // A remainder that is too short for a separate span extends the last one.
    let rest =
        samples.last().filter(|rest| edges.len() > 1 && rest.at >= last.at && rest.total >= last.total);
    if let (Some(rest), Some(edge)) = (rest, edges.last_mut()) {
        *edge = *rest;
    }
    edges.windows(2).map(|pair| span(&pair[0], &pair[1])).collect()
}

fn span(before: &Sample, after: &Sample) -> Span {
    let time = after.at - before.at;
    Span { from: before.at, to: after.at, per_s: (after.total - before.total) / time.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(ms: u64, total: u64) -> Sample {
        Sample { at: Duration::from_millis(ms), total: total as f64 }
    }

    #[test]
    fn a_span_has_what_was_done_in_it() {
        let found = spans(&[sample(100, 10), sample(300, 50)], 100);
        assert_eq!(found.iter().map(|span| span.per_s).collect::<Vec<_>>(), [100.0, 200.0]);
        assert_eq!(found[1].from, found[0].to);
    }

    #[test]
    fn samples_that_go_back_are_passed_over() {
        let all = [sample(100, 10), sample(90, 11), sample(200, 5), sample(300, 9), sample(400, 20)];
        let found = spans(&all, 100);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].from, found[1].to), (all[0].at, all[4].at));
        assert!(spans(&[], 100).is_empty() && spans(&[sample(0, 1)], 100).is_empty());
    }

    #[test]
    fn what_is_done_in_the_last_moment_counts() {
        let found = spans(&[sample(100, 10), sample(100, 30)], 100);
        assert_eq!(found.iter().map(|span| span.per_s).collect::<Vec<_>>(), [300.0]);
    }

    #[test]
    fn two_curves_share_their_axes() {
        let curve = |name, most: u64| Curve {
            name,
            samples: vec![sample(1000, most), sample(2000, 2 * most)],
            mean: most as f64,
            words: format!("{most}/s"),
        };
        let picture = over_time("Messages", &[curve("in", 1000), curve("out", 500)]);
        assert!(picture.contains("aria-label=\"Messages: in 1000/s, out 500/s\""), "{picture}");
        let y = |class: &str| {
            let path = picture.split(&format!("<path class=\"{class}\" d=\"M52.0 ")).nth(1).unwrap();
            path.split('L').next().unwrap().parse::<f64>().unwrap()
        };
        let (high, low) = (PAIR.bottom - y("rate"), PAIR.bottom - y("rate second"));
        assert!((high - 2.0 * low).abs() < 0.2, "{high} {low}");
    }

    proptest! {
        /// For any samples: spans are contiguous, at most `limit`, and cover the whole count.
        #[test]
        fn spans_hold_everything(steps in prop::collection::vec((0_u64..400, 0_u64..1000), 1..400), limit in 1_u32..50) {
            let mut at = sample(0, 0);
            let samples: Vec<Sample> = steps.iter().map(|&(ms, done)| {
                at = Sample { at: at.at + Duration::from_millis(ms), total: at.total + done as f64 };
                at
            }).collect();
            let found = spans(&samples, limit);
            prop_assert!(found.len() <= limit as usize);
            prop_assert!(found.windows(2).all(|pair| pair[0].to == pair[1].from));
            if let Some(last) = found.last() {
                prop_assert_eq!(last.to, at.at);
                let done: f64 = found.iter().map(|span| span.per_s * (span.to - span.from).as_secs_f64()).sum();
                prop_assert!((done - at.total).abs() < 1e-3 * (1.0 + done));
            } else {
                prop_assert!(at.at < SHORTEST.max(at.at / limit));
            }
        }
    }
}
