//! What the self-test found out: a table for people, one JSON object for programs.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;

use super::result::{Outcome, Phase};
use crate::failure::Failure;
use crate::output;

/// The result of one phase. Sizes in bytes, times in microseconds.
#[derive(Debug, Clone, Serialize)]
struct PhaseReport {
    phase: &'static str,
    size: u64,
    concurrency: u32,
    clients: u32,
    seconds: f64,
    operations: u64,
    operations_per_s: f64,
    mb_per_s: f64,
    min_us: f64,
    mean_us: f64,
    deviation_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    errors: u64,
    first_error: Option<String>,
    losses: u64,
    losses_injected: u64,
    delayed: u64,
    verified_bytes: u64,
}

/// The whole result.
#[derive(Debug, Serialize)]
struct Report {
    client: String,
    server: String,
    seed: u64,
    passed: bool,
    errors: u64,
    losses: u64,
    verified_bytes: u64,
    server_verified_bytes: u64,
    phases: Vec<PhaseReport>,
}

impl PhaseReport {
    fn of(phase: &Phase) -> PhaseReport {
        let seconds = phase.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let percentile = |q: f64| phase.latencies_ns.value_at_quantile(q) as f64 / 1e3;
        PhaseReport {
            phase: phase.name,
            size: phase.size,
            concurrency: phase.in_flight,
            clients: phase.clients,
            seconds,
            operations: phase.operations,
            operations_per_s: phase.operations as f64 / seconds,
            mb_per_s: phase.bytes as f64 / seconds / 1e6,
            min_us: phase.latency_ns.min() as f64 / 1e3,
            mean_us: phase.latency_ns.mean() / 1e3,
            deviation_us: phase.latency_ns.deviation() / 1e3,
            p50_us: percentile(0.5),
            p90_us: percentile(0.9),
            p99_us: percentile(0.99),
            p999_us: percentile(0.999),
            max_us: phase.latency_ns.max() as f64 / 1e3,
            errors: phase.errors,
            first_error: phase.first_error.clone(),
            losses: phase.lost,
            losses_injected: phase.dropped,
            delayed: phase.delayed,
            verified_bytes: phase.verified_bytes,
        }
    }
}

impl Report {
    fn of(outcome: &Outcome) -> Report {
        Report {
            client: outcome.clients.join(" "),
            server: outcome.servers.join(" "),
            seed: outcome.settings.seed,
            passed: outcome.passed(),
            errors: outcome.errors(),
            losses: outcome.lost(),
            verified_bytes: outcome.verified_bytes(),
            server_verified_bytes: outcome.served.verified_bytes,
            phases: outcome.phases.iter().map(PhaseReport::of).collect(),
        }
    }
}

/// Prints one JSON object.
pub(super) fn json(outcome: &Outcome) -> Result<(), Failure> {
    output::json(&Report::of(outcome))
}

/// Prints the table and the verdict.
pub(super) fn print(outcome: &Outcome) -> Result<(), Failure> {
    Report::of(outcome).print()
}

impl Report {
    /// Prints the table and the verdict.
    fn print(&self) -> Result<(), Failure> {
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
