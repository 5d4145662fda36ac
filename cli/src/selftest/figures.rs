//! The numbers of a phase as all reports show them: rates and percentiles.

use std::time::Duration;

use serde::Serialize;

use super::result::Phase;

/// The numbers of a phase. Sizes in bytes, latencies in microseconds, rates in operations and in
/// millions of bytes of payload per second.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures<'a> {
    pub(crate) phase: &'static str,
    pub(crate) size: u64,
    /// Operations in flight of each client.
    pub(crate) concurrency: u32,
    pub(crate) clients: u32,
    pub(crate) seconds: f64,
    pub(crate) operations: u64,
    pub(crate) operations_per_s: f64,
    pub(crate) mb_per_s: f64,
    pub(crate) min_us: f64,
    pub(crate) mean_us: f64,
    pub(crate) deviation_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<&'a str>,
    /// Operations that were lost because a rule dropped their message.
    pub(crate) losses: u64,
    /// Messages that rules dropped; each loses an operation.
    pub(crate) losses_injected: u64,
    /// Messages that rules delayed.
    pub(crate) delayed: u64,
    pub(crate) verified_bytes: u64,
}

impl<'a> From<&'a Phase> for Figures<'a> {
    fn from(phase: &'a Phase) -> Figures<'a> {
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        // A histogram returns the upper end of a bucket, which may lie above the largest recorded
        // value.
        let at = |quantile| us(phase.latencies_ns.value_at_quantile(quantile).min(phase.latency_ns.max()));
        Figures {
            phase: phase.name,
            size: phase.size,
            concurrency: phase.in_flight,
            clients: phase.clients,
            seconds: phase.elapsed.as_secs_f64(),
            operations: phase.operations,
            operations_per_s: per_second(phase.operations, phase.elapsed),
            mb_per_s: per_second(phase.bytes, phase.elapsed) / 1e6,
            min_us: us(phase.latency_ns.min()),
            mean_us: phase.latency_ns.mean() / 1e3,
            deviation_us: phase.latency_ns.deviation() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(phase.latency_ns.max()),
            errors: phase.errors,
            first_error: phase.first_error.as_deref(),
            losses: phase.lost,
            losses_injected: phase.dropped,
            delayed: phase.delayed,
            verified_bytes: phase.verified_bytes,
        }
    }
}

impl Figures<'_> {
    /// Returns the phase's name for people.
    pub(crate) fn name(&self) -> String {
        self.phase.replace('_', " ")
    }

    /// Returns the percentiles in their order, each with its name.
    pub(crate) fn latencies_us(&self) -> [(&'static str, f64); 5] {
        [
            ("p50", self.p50_us),
            ("p90", self.p90_us),
            ("p99", self.p99_us),
            ("p99.9", self.p999_us),
            ("max", self.max_us),
        ]
    }
}

/// Returns a rate per second; 0 if no time has passed.
pub(crate) fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
