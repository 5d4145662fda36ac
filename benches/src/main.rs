//! Measures nlx side by side with its anchors in one run, and prints the ratios.
//!
//! A row measures the same work twice: *ours*, and an *anchor* that shows the machine's capability,
//! in plain code that reuses nothing of nlx (`anchors`). Both sides run alternately, A B A B,
//! pinned to the same two cores, each round with new processes, connections and memory; the row's
//! ratio is the median of the rounds' ratios. Absolute figures drift from run to run on shared
//! machines; the ratios are stable.
//!
//! ```text
//! cargo run --release -p nlx-bench                          # all rows
//! cargo run --release -p nlx-bench -- tcp/pingpong-64 --json
//! cargo run --release -p nlx-bench -- --list
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `options` | the command line |
//! | `rows` | the table of rows: name, both sides, goal |
//! | `measure` | rounds, interleaving, medians |
//! | `report` | the table, the JSON lines, and the table in Markdown |
//! | `anchors` | the code that nlx is compared with |
//! | `ours` | the same work, done by nlx |
//! | `peers` | the same sizes on libfabric and UCX, by their own programs |
//! | `server` | the other process of a measurement: another process of this program |
//! | `guest` | the machine of the rows over RDMA |
//! | `cores`, `meter` | pinning; time and processor time |
//! | `calls` | the system calls of one thread |
//! | `heap` | the program's heap, counted while a row measures it; with `calls`, `link` of `ours::helper` and `host` of `ours::o2ib` all the `unsafe` |
//! | `keys` | the keys of the rows `match/…`, the same on both sides |

#![deny(unsafe_code)]

mod anchors;
mod calls;
mod cores;
mod error;
#[cfg(feature = "verbs")]
mod guest;
mod heap;
mod keys;
mod measure;
mod meter;
mod options;
mod ours;
mod peers;
mod report;
mod rows;
mod server;

use std::process::ExitCode;

use clap::Parser;

use crate::cores::Cores;
use crate::error::BenchError;
use crate::measure::{Measurement, Round};
use crate::options::{Command, Options};
use crate::report::{Format, Report};

/// Returns the exit status: 0 measured, 1 a row could not be measured, 2 wrong usage.
fn main() -> ExitCode {
    let options = Options::parse();
    let result = match &options.command {
        Some(Command::Serve { name, cores, args }) => server::serve(name, *cores, args),
        None => measure_rows(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nlx-bench: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn measure_rows(options: &Options) -> Result<(), BenchError> {
    let rows = rows::select(&options.rows)?;
    if options.list {
        report::list(&rows);
        return Ok(());
    }
    let rows = if options.peers {
        peers::enter_namespace();
        peers::with_peers(&rows)
    } else {
        rows
    };
    let cores = Cores::choose()?;
    cores::pin(cores.client)?;
    let flag_ns = anchors::flag::pingpong(&Round { time: options.round_time(), cores })?.value;
    let format = match (options.json, options.markdown) {
        (true, _) => Format::Json,
        (_, true) => Format::Markdown,
        _ => Format::Table,
    };
    let mut report = Report::begin(format, &rows, cores, options.rounds(), flag_ns);
    let mut failed = 0;
    for row in rows {
        match Measurement::take(row, cores, options.rounds(), options.round_time()) {
            Ok(measurement) => report.row(row, &measurement),
            Err(error @ BenchError::Peer { .. }) => {
                eprintln!("nlx-bench: {}: not measured: {error}", row.name);
                report.not_measured(row, &error);
            }
            Err(error) => {
                eprintln!("nlx-bench: {}: {error}", row.name);
                failed += 1;
            }
        }
    }
    if failed > 0 { Err(BenchError::Rows { failed }) } else { Ok(()) }
}
