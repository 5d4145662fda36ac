//! The report as one self-contained page: pictures, table, machine, and how to run it again. No script, nothing loaded from
//! elsewhere; light or dark as the reader has it, and fit for paper.
//!
//! | module | holds |
//! | --- | --- |
//! | `page` | the page from top to bottom |
//! | `latency` | the histogram of a phase's latencies |
//! | `throughput` | its rate over time |
//!
//! What all reports share is in [`crate::svg`].

mod latency;
mod page;
mod throughput;

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::machine::Machine;
use super::result::Outcome;
use crate::failure::{Context, Failure};
use crate::svg::Frame;

/// Of both pictures of a phase. Above the bars there is room for the names of percentiles.
const FRAME: Frame =
    Frame { width: 560.0, height: 244.0, left: 52.0, right: 548.0, top: 56.0, bottom: 222.0 };

/// About as many steps as the upright axis has.
const STEPS: u32 = 4;

/// Writes the page to a file.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(outcome: &Outcome, path: &Path) -> Result<(), Failure> {
    let page = page::page(outcome, &Machine::this());
    fs::write(path, page).context(&refused(path))
}

/// Makes sure that the page can be written, before a long test is run in vain. What the file holds stays until then.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn reserve(path: &Path) -> Result<(), Failure> {
    OpenOptions::new().append(true).create(true).open(path).map(drop).context(&refused(path))
}

fn refused(path: &Path) -> String {
    format!("cannot write the report to {}", path.display())
}

#[cfg(test)]
mod tests;
