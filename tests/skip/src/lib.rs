//! Reports of tests that this machine cannot run, or not completely.
//!
//! `./test` prints all these reports at its end; with CI=true they make it fail.

#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that collects the reports of a run, one line each. `./test` sets it.
pub const REPORTS: &str = "NLX_SKIPS";

/// Reports that `what` is not tested on this machine, and why.
///
/// # Panics
/// If the file of reports cannot be written: every skip must be visible.
pub fn skipped(what: &str, reason: &str) {
    eprintln!("skipped: {what}: {reason}");
    if let Some(file) = std::env::var_os(REPORTS) {
        let line = format!("{what}: {reason}\n");
        // One write of the whole line: tests run concurrently.
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&file)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            panic!("the skip of {what} cannot be written to {}: {error}", file.display());
        }
    }
}
