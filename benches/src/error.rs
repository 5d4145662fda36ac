use std::io;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// There is no row of that name.
    #[error("no such row: '{name}'; --list shows them all")]
    UnknownRow {
        /// What was asked for.
        name: String,
    },
    /// There is no server of that name (this program starts its servers itself).
    #[error("no such server: '{name}'")]
    UnknownServer {
        /// What was asked for.
        name: String,
    },
    /// Some rows could not be measured; each has said why.
    #[error("{failed} row(s) could not be measured")]
    Rows {
        /// How many.
        failed: usize,
    },
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The other process ended early, or said something else than expected.
    #[error("server '{name}' {what}")]
    Server {
        /// Its name.
        name: String,
        /// What it did.
        what: String,
    },
    /// A program of libfabric or UCX is missing, has failed or hung; or this machine lacks what a row needs.
    #[error("{program} {what}")]
    Peer {
        /// Its name.
        program: &'static str,
        /// What it did, or why it cannot be had.
        what: String,
    },
    /// A part of nlx refused.
    #[error("{what}: {source}")]
    Nlx {
        /// What was attempted.
        what: &'static str,
        /// nlx's reason.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing came for longer than any measurement takes.
    #[error("{what} did not come within {seconds} s")]
    TimedOut {
        /// What was awaited.
        what: &'static str,
        /// For how long.
        seconds: u64,
    },
    /// What arrived is not what was sent.
    #[error("{what} is {value}, not {expected}")]
    Wrong {
        /// What was checked.
        what: &'static str,
        /// What it is.
        value: u64,
        /// What it should be.
        expected: u64,
    },
}

pub(crate) type Result<T, E = BenchError> = std::result::Result<T, E>;

impl BenchError {
    /// For `map_err`: the system refused what was attempted.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> BenchError {
        move |source| BenchError::System { what, source: source.into() }
    }

    /// For `map_err`: a part of nlx refused.
    pub(crate) fn nlx<E: std::error::Error + Send + Sync + 'static>(
        what: &'static str,
    ) -> impl Fn(E) -> BenchError {
        move |source| BenchError::Nlx { what, source: Box::new(source) }
    }

    /// 2 for wrong usage, as the options' parser has it; 1 for everything else.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            BenchError::UnknownRow { .. } | BenchError::UnknownServer { .. } => 2,
            _ => 1,
        }
    }
}
