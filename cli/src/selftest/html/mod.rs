//! The report as one self-contained page: pictures, table, machine, and the command to run it
//! again. It has no script and loads nothing; it is light or dark by the reader's setting, and can
//! be printed.
//!
//! | module | holds |
//! | --- | --- |
//! | `page` | the page from top to bottom |
//! | `latency` | the histogram of a phase's latencies |
//! | `throughput` | a phase's rate over time |
//!
//! [`crate::svg`] has the parts that all reports share.

mod latency;
mod page;
mod throughput;

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::machine::Machine;
use super::result::Outcome;
use crate::failure::{Context, Failure};
use crate::svg::Frame;

/// The frame of both pictures of a phase. Above the bars there is room for the names of
/// percentiles.
const FRAME: Frame =
    Frame { width: 560.0, height: 244.0, left: 52.0, right: 548.0, top: 56.0, bottom: 222.0 };

/// Approximate number of steps of the vertical axis.
const STEPS: u32 = 4;

/// Writes the page to a file.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(outcome: &Outcome, path: &Path) -> Result<(), Failure> {
    let page = page::page(outcome, &Machine::this());
    fs::write(path, page).context(&refused(path))
}

/// Checks that the page can be written, before a long test runs in vain. The content of the file
/// stays until then.
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
