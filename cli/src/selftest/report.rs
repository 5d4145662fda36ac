//! What the self-test found out: a table for people, one JSON object for programs.

use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::failure::Failure;
use crate::output;

/// The result of one phase. Sizes in bytes, times in microseconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PhaseReport {
    pub phase: &'static str,
    pub size: u64,
    pub concurrency: u32,
    pub seconds: f64,
    pub operations: u64,
    pub operations_per_s: f64,
    pub mb_per_s: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
    pub errors: u64,
    /// The first thing that went wrong.
    pub first_error: Option<String>,
    pub verified_bytes: u64,
}

/// The whole result.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub client: String,
    pub server: String,
    pub passed: bool,
    pub errors: u64,
    pub verified_bytes: u64,
    /// What the server verified of what the client sent; part of no phase.
    pub server_verified_bytes: u64,
    pub phases: Vec<PhaseReport>,
}

/// What a phase counts while it runs.
pub(crate) struct Tally {
    latencies_ns: Histogram<u64>,
    pub operations: u64,
    pub bytes: u64,
    pub errors: u64,
    pub verified_bytes: u64,
    first_error: Option<String>,
}

impl Tally {
    pub(crate) fn new() -> Tally {
        // Three significant digits up to an hour: bounds that the crate accepts.
        const HOUR_NS: u64 = 3_600_000_000_000;
        let latencies_ns =
            Histogram::new_with_bounds(1, HOUR_NS, 3).expect("the bounds are constant and valid");
        Tally { latencies_ns, operations: 0, bytes: 0, errors: 0, verified_bytes: 0, first_error: None }
    }

    /// One operation that worked and moved `bytes` of payload.
    pub(crate) fn done(&mut self, latency: Duration, bytes: u64) {
        self.operations += 1;
        self.bytes += bytes;
        self.latencies_ns.saturating_record(latency.as_nanos() as u64);
    }

    /// Counts errors, and keeps what the first one was.
    pub(crate) fn fail(&mut self, errors: u64, what: impl FnOnce() -> String) {
        self.errors += errors;
        self.first_error.get_or_insert_with(what);
    }

    pub(crate) fn finish(
        &self,
        phase: &'static str,
        size: u64,
        concurrency: u32,
        elapsed: Duration,
    ) -> PhaseReport {
        let seconds = elapsed.as_secs_f64();
        let percentile = |q: f64| self.latencies_ns.value_at_quantile(q) as f64 / 1e3;
        PhaseReport {
            phase,
            size,
            concurrency,
            seconds,
            operations: self.operations,
            operations_per_s: self.operations as f64 / seconds,
            mb_per_s: self.bytes as f64 / seconds / 1e6,
            p50_us: percentile(0.5),
            p90_us: percentile(0.9),
            p99_us: percentile(0.99),
            p999_us: percentile(0.999),
            max_us: self.latencies_ns.max() as f64 / 1e3,
            errors: self.errors,
            first_error: self.first_error.clone(),
            verified_bytes: self.verified_bytes,
        }
    }
}

impl Report {
    /// Prints the table and the verdict.
    pub(crate) fn print(&self) -> Result<(), Failure> {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header([
            "phase",
            "bytes",
            "in flight",
            "operations",
            "op/s",
            "MB/s",
            "p50 µs",
            "p90 µs",
            "p99 µs",
            "p99.9 µs",
            "max µs",
            "errors",
            "verified",
        ]);
        for phase in &self.phases {
            let cells = [
                phase.phase.replace('_', " "),
                phase.size.to_string(),
                phase.concurrency.to_string(),
                phase.operations.to_string(),
                format!("{:.0}", phase.operations_per_s),
                format!("{:.1}", phase.mb_per_s),
                format!("{:.1}", phase.p50_us),
                format!("{:.1}", phase.p90_us),
                format!("{:.1}", phase.p99_us),
                format!("{:.1}", phase.p999_us),
                format!("{:.1}", phase.max_us),
                phase.errors.to_string(),
                in_bytes(phase.verified_bytes),
            ];
            let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
            let mut row: Vec<Cell> = cells.into_iter().map(right).collect();
            row[0] = Cell::new(phase.phase.replace('_', " "));
            table.add_row(row);
        }
        output::line(table)?;
        for phase in &self.phases {
            if let Some(error) = &phase.first_error {
                output::line(format_args!(
                    "{}: {} errors, the first: {error}",
                    phase.phase.replace('_', " "),
                    phase.errors
                ))?;
            }
        }
        let verdict = if self.passed { "passed" } else { "FAILED" };
        output::line(format_args!(
            "{verdict}: {} verified, {} errors, {} ⇄ {}",
            in_bytes(self.verified_bytes),
            self.errors,
            self.client,
            self.server
        ))
    }
}

/// Bytes with a decimal unit.
pub(crate) fn in_bytes(bytes: u64) -> String {
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.2} GB", value / 1e9),
    }
}
