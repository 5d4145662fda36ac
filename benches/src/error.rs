//! The errors of the program.

use std::io;

/// The reason why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// No row has this name.
    #[error("no such row: '{name}'; --list shows them all")]
    UnknownRow {
        /// The requested name.
        name: String,
    },
    /// No server has this name (this program starts its servers itself).
    #[error("no such server: '{name}'")]
    UnknownServer {
        /// The requested name.
        name: String,
    },
    /// Some rows could not be measured; the reasons were printed.
    #[error("{failed} row(s) could not be measured")]
    Rows {
        /// The number of these rows.
        failed: usize,
    },
    /// A system call failed.
    #[error("{action}: {source}")]
    System {
        /// The attempted action.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The other process ended early, or reported an unexpected line.
    #[error("server '{name}' {problem}")]
    Server {
        /// The server's name.
        name: String,
        /// The server's failure.
        problem: String,
    },
    /// A program of libfabric or UCX is missing, has failed or hung; or this machine lacks
    /// resources for a row.
    #[error("{program} {problem}")]
    Peer {
        /// The program's name, or "this machine".
        program: &'static str,
        /// The program's failure, or the reason why it is missing.
        problem: String,
    },
    /// A part of nlx returned an error.
    #[error("{action}: {source}")]
    Nlx {
        /// The attempted action.
        action: &'static str,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An awaited event did not occur in time.
    #[error("{event} did not happen within {seconds} s")]
    TimedOut {
        /// The awaited event.
        event: &'static str,
        /// The timeout.
        seconds: u64,
    },
    /// A checked value is not the expected one.
    #[error("{subject} is {value}, not {expected}")]
    Wrong {
        /// The name of the checked value.
        subject: &'static str,
        /// The value found.
        value: u64,
        /// The expected value.
        expected: u64,
    },
}

pub(crate) type Result<T, E = BenchError> = std::result::Result<T, E>;

impl BenchError {
    /// Returns a function for `map_err` that wraps an error of a system call.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> BenchError {
        move |source| BenchError::System { action, source: source.into() }
    }

    /// Returns a function for `map_err` that wraps an error of a part of nlx.
    pub(crate) fn nlx<E: std::error::Error + Send + Sync + 'static>(
        action: &'static str,
    ) -> impl Fn(E) -> BenchError {
        move |source| BenchError::Nlx { action, source: Box::new(source) }
    }

    /// Returns 2 for wrong usage, as the options' parser does; 1 for all other errors.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            BenchError::UnknownRow { .. } | BenchError::UnknownServer { .. } => 2,
            _ => 1,
        }
    }
}
