//! Latencies: their percentiles, and their histogram on a logarithmic axis, for latencies vary by
//! powers of ten.

use hdrhistogram::Histogram;
use nlx_service::Percentiles;
use serde::Serialize;

use super::{Anchor, Log, PAIR, STEPS, Svg};
use crate::units::{counted, in_time, three_digits};

/// Number of bars of a picture: narrow enough to show two peaks, wide enough to be pointed at.
const BARS: usize = 72;

/// The rows above the bars for the percentiles' names.
const ROWS: usize = 4;
const ROW: f64 = 12.5;

/// Distance below which percentiles share a name.
const NEAR: f64 = 6.0;

/// Largest width of a letter of a name.
const LETTER: f64 = 6.2;

/// Smallest visible height: the few slowest operations matter most.
const LEAST_HEIGHT: f64 = 1.5;

/// The latencies of operations in microseconds; all 0 if there was none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) min_us: f64,
    pub(crate) mean_us: f64,
    pub(crate) deviation_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

impl From<&Histogram<u64>> for Latency {
    fn from(latencies_ns: &Histogram<u64>) -> Latency {
        let Percentiles { p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } = Percentiles::of(latencies_ns);
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        Latency {
            min_us: us(latencies_ns.min()),
            mean_us: latencies_ns.mean() / 1e3,
            deviation_us: latencies_ns.stdev() / 1e3,
            p50_us: us(p50_ns),
            p90_us: us(p90_ns),
            p99_us: us(p99_ns),
            p999_us: us(p999_ns),
            max_us: us(max_ns),
        }
    }
}

impl Latency {
    /// Returns the percentiles in their order, each with its name.
    pub(crate) fn percentiles_us(&self) -> [(&'static str, f64); 5] {
        [
            ("p50", self.p50_us),
            ("p90", self.p90_us),
            ("p99", self.p99_us),
            ("p99.9", self.p999_us),
            ("max", self.max_us),
        ]
    }

    /// Returns the percentiles as text.
    pub(crate) fn words(&self) -> String {
        self.percentiles_us().map(|(name, us)| format!("{name} {}", in_time(us))).join(", ")
    }
}

/// Returns the histogram of the latencies of `name`, with their percentiles.
pub(crate) fn latencies(name: &str, latencies_ns: &Histogram<u64>) -> String {
    let latency = Latency::from(latencies_ns);
    let label = format!("Latencies of {name}: {}", latency.words());
    if latencies_ns.is_empty() {
        return PAIR.nothing(label, "no operation completed");
    }
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let across =
        Log::around(us(latencies_ns.min().max(1)), us(latencies_ns.max().max(1)), PAIR.left, PAIR.right);
    let counts = counts(latencies_ns, &across);
    let all = latencies_ns.len() as f64;
    let share = |count: u64| count as f64 / all * 100.0;
    let upright = PAIR.upright(share(counts.iter().copied().max().unwrap_or_default()), STEPS);
    let percent = upright.labels(STEPS, |value| format!("{} %", three_digits(value)));
    let mut svg = PAIR.picture(label, &percent, &across.labels(in_time));
    for (bar, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let edge = |at: usize| across.value(at as f64 / BARS as f64);
        let (low, high) = (edge(bar), edge(bar + 1));
        let height = (PAIR.bottom - upright.position(share(*count))).max(LEAST_HEIGHT);
        let more = format!(
            "{} to {}: {}, {:.3} %",
            in_time(low),
            in_time(high),
            counted(*count, "operation"),
            share(*count)
        );
        let width = across.position(high) - across.position(low) - 1.0;
        svg.bar("latency", (across.position(low) + 0.5, PAIR.bottom - height), (width, height), more);
    }
    percentiles(&mut svg, &latency, &across);
    svg.end()
}

/// Returns the number of operations in each bar.
fn counts(latencies_ns: &Histogram<u64>, across: &Log) -> Vec<u64> {
    let mut counts = vec![0_u64; BARS];
    for value in latencies_ns.iter_recorded() {
        let share =
            (across.position(value.value_iterated_to() as f64 / 1e3) - PAIR.left) / (PAIR.right - PAIR.left);
        let bar = ((share * BARS as f64) as usize).min(BARS - 1);
        counts[bar] = counts[bar].saturating_add(value.count_since_last_iteration());
    }
    counts
}

/// Draws a line for each percentile, with its name in the first row that has room for it. If no row
/// has, only the table below has it.
fn percentiles(svg: &mut Svg, latency: &Latency, across: &Log) {
    let mut marks: Vec<(f64, String, f64)> = Vec::new();
    for (name, us) in latency.percentiles_us() {
        let x = across.position(us);
        match marks.last_mut().filter(|(before, ..)| x - before < NEAR) {
            Some((position, names, value)) => {
                (*position, *names, *value) = (x, format!("{names}, {name}"), us)
            }
            None => marks.push((x, name.to_string(), us)),
        }
    }
    let mut ends = [f64::MIN; ROWS];
    let mut names = Vec::new();
    for (x, name, us) in marks {
        let words = format!("{name} {}", in_time(us));
        let width = words.chars().count() as f64 * LETTER;
        let start = (x - width / 2.0).clamp(PAIR.left, PAIR.right - width);
        let row = ends.iter().position(|end| *end < start);
        let y = PAIR.top - 8.0 - row.unwrap_or(0) as f64 * ROW;
        svg.line("mark", (x, y + 3.0), (x, PAIR.bottom));
        if let Some(row) = row {
            ends[row] = start + width + LETTER;
            // The letters of a browser may be wider. At an edge the end of the name matters.
            let (anchor, at) = match x {
                x if x - width / 2.0 < PAIR.left => (Anchor::Start, PAIR.left),
                x if x + width / 2.0 > PAIR.right => (Anchor::End, PAIR.right),
                x => (Anchor::Middle, x),
            };
            names.push((anchor, (at, y), words));
        }
    }
    // On top of the lines.
    names.into_iter().for_each(|(anchor, at, words)| svg.text("name", anchor, at, words));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_stands_in_a_bar() {
        let mut latencies = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        (0..5_000_u64).for_each(|at| latencies.record(40_000 + at * at).unwrap());
        let across = Log::around(40.0, 25_000.0, PAIR.left, PAIR.right);
        let counts = counts(&latencies, &across);
        assert_eq!(counts.iter().sum::<u64>(), 5_000);
        assert!(counts[0] > 0 && counts[BARS - 1] > 0);
    }
}
