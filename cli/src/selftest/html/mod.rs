//! The report as one self-contained page: pictures, table, machine, and how to run it again. No script, nothing loaded from
//! elsewhere; light or dark as the reader has it, and fit for paper.
//!
//! | module | holds |
//! | --- | --- |
//! | `page` | the page from top to bottom |
//! | `figure` | a picture's frame: where its axes are |
//! | `latency` | the histogram of a phase's latencies |
//! | `throughput` | its rate over time |
//!
//! What all reports share is in [`crate::svg`].

mod figure;
mod latency;
mod page;
mod throughput;

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::machine::Machine;
use super::result::Outcome;
use crate::failure::{Context, Failure};

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
