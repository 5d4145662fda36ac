//! Standard output that may be closed or full: a tool must say so, not panic.

use std::fmt::Display;
use std::io::{ErrorKind, Write, stdout};

use serde::Serialize;

use crate::failure::Failure;

/// Prints a line. A reader that has gone away ends the program quietly, as it would any other tool.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    let mut out = stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::quiet()),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
    }
}

/// Prints one JSON value on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(value)?)
}

/// Prints a line on standard error, where nobody can be told that nobody listens.
pub(crate) fn complain(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
