//! How a test reports that this machine cannot run it, or a part of it.
//!
//! `./test` prints all these reports at its end, and fails because of them where CI=true.

#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write;

/// Names the file that collects the reports of a run, one line each. `./test` sets it.
pub const REPORTS: &str = "NLX_SKIPS";

/// Reports that `what` is not tested here, and why.
///
/// # Panics
/// If the file of reports cannot be written: a skip must not stay unseen.
pub fn skipped(what: &str, reason: &str) {
    eprintln!("skipped: {what}: {reason}");
    if let Some(file) = std::env::var_os(REPORTS) {
        let line = format!("{what}: {reason}\n");
        // One write of the whole line: tests run beside each other.
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
