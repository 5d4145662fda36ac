//! A phase's rate over time, which shows whether it was steady.

use super::{FRAME, STEPS};
use crate::selftest::figures::Figures;
use crate::selftest::result::Sample;
use crate::selftest::series::{Span, spans};
use crate::svg::Anchor;
use crate::units::{in_thousands, three_digits};

/// Largest number of points that can be distinguished.
const POINTS: u32 = 240;

/// Operations of at least this size are measured in bytes, smaller ones in operations.
const BULK_BYTES: u64 = 4096;

/// Returns the unit of a phase's rate.
pub(super) fn unit(figures: &Figures<'_>) -> &'static str {
    if figures.size >= BULK_BYTES { "MB/s" } else { "op/s" }
}

/// Returns the phase's rate as text, and its unit.
pub(super) fn rate_text(figures: &Figures<'_>) -> (String, &'static str) {
    /// Rate from which it is shown in thousands.
    const MANY_MB: f64 = 10e3;
    match rate(figures) {
        rate if unit(figures) == "MB/s" && rate >= MANY_MB => (in_thousands(rate / 1e3), "GB/s"),
        rate => (in_thousands(rate), unit(figures)),
    }
}

fn rate(figures: &Figures<'_>) -> f64 {
    if figures.size >= BULK_BYTES { figures.mb_per_s } else { figures.operations_per_s }
}

/// Returns the picture.
pub(super) fn picture(figures: &Figures<'_>, samples: &[Sample]) -> String {
    let (unit, mean, (rate_text, of)) = (unit(figures), rate(figures), rate_text(figures));
    let label = format!("Throughput of {} over {:.1} s: {rate_text} {of}", figures.name(), figures.seconds);
    let spans = spans(samples, POINTS);
    if spans.len() < 2 {
        return FRAME.nothing(label, "too short for a curve");
    }
    let value = |span: &Span| if unit == "MB/s" { span.mb_per_s } else { span.operations_per_s };
    let upright = FRAME.upright(spans.iter().map(value).fold(mean, f64::max), STEPS);
    let end = spans.last().map_or(0.0, |span| span.to.as_secs_f64());
    let across = FRAME.across(end);
    let times = across.labels(6, |s| format!("{} s", three_digits(s)));
    let mut svg = FRAME.picture(label, &upright.labels(STEPS, in_thousands), &times);
    // Each span has its own length, with a constant rate.
    let steps: Vec<(f64, f64)> = spans
        .iter()
        .flat_map(|span| {
            let y = upright.position(value(span));
            [span.from, span.to].map(|at| (across.position(at.as_secs_f64()), y))
        })
        .collect();
    let ground = [(across.position(end), FRAME.bottom), (FRAME.left, FRAME.bottom)];
    svg.path("area", steps.iter().copied().chain(ground));
    svg.path("rate", steps.iter().copied());
    let y = upright.position(mean);
    svg.line("mark", (FRAME.left, y), (FRAME.right, y));
    svg.text("name", Anchor::End, (FRAME.right, FRAME.top - 8.0), format!("mean {rate_text} {of}"));
    svg.end()
}
