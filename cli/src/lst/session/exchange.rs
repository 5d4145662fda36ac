//! What a command and the console of its session say to each other: objects of JSON, one on each line.
//!
//! A connection is one command: a [`Request`], then any number of [`Answer`]s up to [`Answer::End`].
//! A command that closes its connection is cancelled.

use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixStream;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failure::{Context, Failure};

/// Maximum length in bytes of a line: the result of a command for all nodes of a session, or the words of
/// a command in JSON.
const OBJECT_MAX: u64 = 64 << 20;

/// The words of a command line, as `nlx lst` sends them to the console's process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) words: Vec<String>,
}

/// A part of what a command prints.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The texts of a result, and its code.
    Printed { output: String, errors: String, code: u8 },
    /// A warning, for stderr.
    Warning { text: String },
    /// The command could not be run.
    Failed { message: String },
    /// The last answer: the command has ended.
    End,
}

/// Sends an object.
pub(super) fn send(mut stream: &UnixStream, object: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(object)? + "\n";
    stream.write_all(line.as_bytes()).context("cannot reach the other end of the session's socket")
}

/// Receives an object; `None` at the end of the stream.
pub(super) fn receive<T: DeserializeOwned>(reader: &mut impl BufRead) -> Result<Option<T>, Failure> {
    let mut line = String::new();
    let read = reader.take(OBJECT_MAX).read_line(&mut line);
    let length = read.context("cannot read from the session's socket")?;
    if length == 0 {
        return Ok(None);
    }
    serde_json::from_str(&line).map(Some).context("what came from the session's socket cannot be read")
}
