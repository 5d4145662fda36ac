//! The lines that this program reads and writes.

use std::io::Write;
use std::str::FromStr;

/// Writes a line to standard output, with one write.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The test that reads it may be gone; this process then ends with its standard input.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A parsed `COMMAND JOB key=value…`.
pub(crate) struct Words<'a> {
    pub(crate) command: &'a str,
    pub(crate) job: u32,
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(crate) fn new(line: &'a str) -> Result<Words<'a>, String> {
        let mut parts = line.splitn(3, ' ');
        let command = parts.next().unwrap_or_default();
        let job = parts.next().and_then(|text| text.parse().ok());
        let job = job.ok_or_else(|| format!("no job in {line:?}"))?;
        Ok(Words { command, job, rest: parts.next().unwrap_or_default() })
    }

    /// Returns the value of a key that must be present.
    pub(crate) fn value<T: FromStr>(&self, key: &str) -> Result<T, String> {
        value_in(self.rest.split(' '), key)?.ok_or_else(|| format!("{} without {key}", self.command))
    }

    pub(crate) fn value_or<T: FromStr>(&self, key: &str, default: T) -> Result<T, String> {
        Ok(value_in(self.rest.split(' '), key)?.unwrap_or(default))
    }
}

fn value_in<'a, T: FromStr>(pairs: impl Iterator<Item = &'a str>, key: &str) -> Result<Option<T>, String> {
    let mut values = pairs.filter_map(|pair| pair.split_once('=')).filter(|(name, _)| *name == key);
    let Some((_, text)) = values.next() else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("{key}={text}: not understood"))
}
