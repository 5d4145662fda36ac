//! Why the last connection to a peer failed.

use std::fmt;
use std::net::SocketAddr;

use lnet_api::Errno;
use lnet_nid::ProcessId;
use lnet_proto::ProtoError;

/// How far a connection had come when it failed: the steps of one kind of network, each with the words for it.
pub trait FailedStep: Copy + fmt::Display + Send + Sync {
    /// What a peer of that network can do wrong; by default nothing is known but the errno.
    type Cause: Copy + Default + Send + Sync;

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

/// Why an attempt to connect to a peer failed, or a connection.
#[derive(Debug, Clone)]
pub struct Miss<S: FailedStep> {
    /// The step that failed.
    pub step: S,
    /// The errno with which messages fail.
    pub errno: Errno,
    /// What the peer did wrong.
    pub cause: S::Cause,
    /// What was seen, if the errno does not say it all.
    pub detail: String,
}

impl<S: FailedStep> Miss<S> {
    /// One of which nothing is known but the errno, and what was seen.
    pub fn new(step: S, errno: Errno, detail: impl ToString) -> Miss<S> {
        Miss { step, errno, cause: S::Cause::default(), detail: detail.to_string() }
    }

    /// What a peer has said makes no sense here.
    pub fn said(step: S, error: &ProtoError) -> Miss<S>
    where
        S::Cause: for<'a> From<&'a ProtoError>,
    {
        Miss { cause: error.into(), ..Miss::new(step, Errno::from_raw(error.errno()), error) }
    }

    /// The same of this peer, that was looked for there.
    pub fn of(self, peer: ProcessId, address: SocketAddr) -> Failure<S> {
        let Miss { step, errno, cause, detail } = self;
        Failure { peer, address, step, errno, cause, detail }
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
