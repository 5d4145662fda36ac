//! Why the last connection to a peer failed.

use std::fmt;
use std::net::SocketAddr;

use lnet_api::Errno;
use lnet_nid::ProcessId;

/// How far a connection had come when it failed: the steps of one kind of network, each with the words for it.
pub trait FailedStep: Copy + fmt::Display {
    /// What a peer of that network can do wrong.
    type Cause: Copy;

    /// What to try, in one sentence.
    fn advice(failure: &Failure<Self>) -> &'static str;
}

/// Why the last connection to a peer failed: for people, and for the tools that show it to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure<S: FailedStep> {
    /// The peer.
    pub peer: ProcessId,
    /// Where it was looked for, or where it connected from.
    pub address: SocketAddr,
    /// The step that failed.
    pub step: S,
    /// The errno with which messages failed.
    pub errno: Errno,
    /// What the peer did wrong.
    pub cause: S::Cause,
    /// What was seen, if the errno does not say it all.
    pub detail: String,
}

impl<S: FailedStep> Failure<S> {
    /// What to try, in one sentence.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        S::advice(self)
    }
}

impl<S: FailedStep> fmt::Display for Failure<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} with {} failed: {}", self.peer, self.step, self.address, self.errno)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        write!(f, "; {}", self.advice())
    }
}

impl<S: FailedStep> From<Failure<S>> for Errno {
    fn from(failure: Failure<S>) -> Errno {
        failure.errno
    }
}
