//! Why the last connection to a peer failed.

use std::fmt;
use std::net::SocketAddr;

use lnet_api::Errno;
use lnet_nid::ProcessId;
use lnet_proto::ProtoError;
use lnet_proto::ib::RejectReason;

/// How far a connection had come when it failed: the steps of one kind of network, each with the words for it.
pub trait FailedStep: Copy + fmt::Display + Send + Sync {
    /// What to try, in one sentence.
    fn advice(failure: &Failure<Self>) -> &'static str;
}

/// What was wrong with what the peer said, where that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// Nothing that it said: the errno tells it.
    #[default]
    Errno,
    /// It speaks something else than LNet: HTTP, SSH.
    NotLNet,
    /// It speaks LNet, in a version that is not spoken here (lnet-wire 22 and 24).
    Version,
    /// It is another node than the one that was asked for, or another life of it.
    WrongNode,
    /// It rejects the connection for this reason, which peers over verbs tell.
    Rejected(RejectReason),
    /// It speaks LNet, and breaks its rules.
    Protocol,
}

impl From<&ProtoError> for Cause {
    fn from(error: &ProtoError) -> Cause {
        match error {
            ProtoError::Magic { .. } => Cause::NotLNet,
            ProtoError::Version { .. } | ProtoError::RequestRefused { .. } => Cause::Version,
            ProtoError::WrongNid { .. }
            | ProtoError::WrongPid { .. }
            | ProtoError::WrongEnd { .. }
            | ProtoError::Stale { .. } => Cause::WrongNode,
            ProtoError::Rejected { reason } => Cause::Rejected(*reason),
            // It hung up, or nobody is there.
            ProtoError::Closed { .. }
            | ProtoError::NoListener { .. }
            | ProtoError::RetriesExhausted { .. } => Cause::Errno,
            _ => Cause::Protocol,
        }
    }
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
    pub cause: Cause,
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
    pub cause: Cause,
    /// What was seen, if the errno does not say it all.
    pub detail: String,
}

impl<S: FailedStep> Miss<S> {
    /// One of which nothing is known but the errno, and what was seen.
    pub fn new(step: S, errno: Errno, detail: impl ToString) -> Miss<S> {
        Miss { step, errno, cause: Cause::default(), detail: detail.to_string() }
    }

    /// What a peer has said makes no sense here.
    pub fn said(step: S, error: &ProtoError) -> Miss<S> {
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

/// A tunable has a value that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}: it must be {rule}")]
pub struct BadTunable {
    /// LNet's name of the tunable.
    pub field: &'static str,
    /// Its value.
    pub value: u32,
    /// What is allowed: "at least 1 s".
    pub rule: String,
}

impl BadTunable {
    /// One that breaks this rule.
    pub fn new(field: &'static str, value: u32, rule: impl ToString) -> BadTunable {
        BadTunable { field, value, rule: rule.to_string() }
    }
}
