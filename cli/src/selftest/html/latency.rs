//! The histogram of a phase's latencies, on a logarithmic axis, for latencies vary by powers of
//! ten.

use hdrhistogram::Histogram;

use super::{FRAME, STEPS};
use crate::selftest::figures::Figures;
use crate::svg::{Anchor, Log, Svg};
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

/// Returns the picture.
pub(super) fn picture(figures: &Figures<'_>, latencies_ns: &Histogram<u64>) -> String {
    let label = format!("Latencies of {}: {}", figures.name(), in_words(figures));
    if latencies_ns.is_empty() {
        return FRAME.nothing(label, "no operation completed");
    }
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let across =
        Log::around(us(latencies_ns.min().max(1)), us(latencies_ns.max().max(1)), FRAME.left, FRAME.right);
    let counts = counts(latencies_ns, &across);
    let all = latencies_ns.len() as f64;
    let share = |count: u64| count as f64 / all * 100.0;
    let upright = FRAME.upright(share(counts.iter().copied().max().unwrap_or_default()), STEPS);
    let percent = upright.labels(STEPS, |value| format!("{} %", three_digits(value)));
    let mut svg = FRAME.picture(label, &percent, &across.labels(in_time));
    for (bar, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let edge = |at: usize| across.value(at as f64 / BARS as f64);
        let (low, high) = (edge(bar), edge(bar + 1));
        let height = (FRAME.bottom - upright.position(share(*count))).max(LEAST_HEIGHT);
        let more = format!(
            "{} to {}: {}, {:.3} %",
            in_time(low),
            in_time(high),
            counted(*count, "operation"),
            share(*count)
        );
        let width = across.position(high) - across.position(low) - 1.0;
        svg.bar("latency", (across.position(low) + 0.5, FRAME.bottom - height), (width, height), more);
    }
    percentiles(&mut svg, figures, &across);
    svg.end()
}

/// Returns the number of operations in each bar.
fn counts(latencies_ns: &Histogram<u64>, across: &Log) -> Vec<u64> {
    let mut counts = vec![0_u64; BARS];
    for value in latencies_ns.iter_recorded() {
        let share = (across.position(value.value_iterated_to() as f64 / 1e3) - FRAME.left)
            / (FRAME.right - FRAME.left);
        let bar = ((share * BARS as f64) as usize).min(BARS - 1);
        counts[bar] = counts[bar].saturating_add(value.count_since_last_iteration());
    }
    counts
}

/// Draws a line for each percentile, with its name in the first row that has room for it. If no row
/// has, only the table below has it.
fn percentiles(svg: &mut Svg, figures: &Figures<'_>, across: &Log) {
    let mut marks: Vec<(f64, String, f64)> = Vec::new();
    for (name, us) in figures.latencies_us() {
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
        let start = (x - width / 2.0).clamp(FRAME.left, FRAME.right - width);
        let row = ends.iter().position(|end| *end < start);
        let y = FRAME.top - 8.0 - row.unwrap_or(0) as f64 * ROW;
        svg.line("mark", (x, y + 3.0), (x, FRAME.bottom));
        if let Some(row) = row {
            ends[row] = start + width + LETTER;
            // The letters of a browser may be wider. At an edge the end of the name matters.
            let (anchor, at) = match x {
                x if x - width / 2.0 < FRAME.left => (Anchor::Start, FRAME.left),
                x if x + width / 2.0 > FRAME.right => (Anchor::End, FRAME.right),
                x => (Anchor::Middle, x),
            };
            names.push((anchor, (at, y), words));
        }
    }
    // On top of the lines.
    names.into_iter().for_each(|(anchor, at, words)| svg.text("name", anchor, at, words));
}

fn in_words(figures: &Figures<'_>) -> String {
    let all = figures.latencies_us().map(|(name, us)| format!("{name} {}", in_time(us)));
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_stands_in_a_bar() {
        let mut latencies = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        (0..5_000_u64).for_each(|at| latencies.record(40_000 + at * at).unwrap());
        let across = Log::around(40.0, 25_000.0, FRAME.left, FRAME.right);
        let counts = counts(&latencies, &across);
        assert_eq!(counts.iter().sum::<u64>(), 5_000);
        assert!(counts[0] > 0 && counts[BARS - 1] > 0);
    }
}
