//! The reason of the failure of the last connection to a peer.

use std::fmt;
use std::net::SocketAddr;

use lnet_api::Errno;
use lnet_nid::ProcessId;
use lnet_proto::ProtoError;
use lnet_proto::ib::RejectReason;
use tracing::debug;

use crate::counting::CountsLife;
use crate::{Peer, Protocol, Turn};

/// The steps of a connection, in order. A failure names the one at which it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnStep {
    /// Finding the peer's address and the route to it, over verbs.
    Resolve,
    /// Getting a socket and a source port, over TCP.
    Bind,
    /// Making queues and registering their memory, over verbs.
    Queues,
    /// The TCP connection; over verbs the request to connect and its answer (lnet-wire 34).
    Connect,
    /// Connection request and hello, over TCP (lnet-wire 24).
    Handshake,
    /// After the handshake: the connection was in use.
    Established,
}

impl fmt::Display for ConnStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnStep::Resolve => "address resolution",
            ConnStep::Bind => "preparing a connection",
            ConnStep::Queues => "queue setup",
            ConnStep::Connect => "connecting",
            ConnStep::Handshake => "handshake",
            ConnStep::Established => "connection",
        })
    }
}

/// The peer's mistake, where it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// No mistake of the peer is known: the errno describes the failure.
    #[default]
    Errno,
    /// The peer speaks another protocol than LNet: HTTP, SSH.
    NotLNet,
    /// The peer speaks LNet, in a version that is not supported here (lnet-wire 22 and 24).
    Version,
    /// The peer is another node than the one with the requested NID, or another incarnation of it.
    WrongNode,
    /// The peer rejected the connection for this reason, which peers over verbs report.
    Rejected(RejectReason),
    /// The peer speaks LNet, and breaks its rules.
    Protocol,
    /// The peer closed the connection between two messages, as a node that shuts down does.
    Closed,
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
            // The peer closed the connection, or does not listen.
            ProtoError::Closed { .. }
            | ProtoError::NoListener { .. }
            | ProtoError::RetriesExhausted { .. } => Cause::Errno,
            _ => Cause::Protocol,
        }
    }
}

/// The reason of the failure of the last connection to a peer, for log lines and tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerFailure {
    /// The peer of the connection.
    pub peer: ProcessId,
    /// The address that was connected to, or from which the peer connected.
    pub address: SocketAddr,
    /// The step at which the connection ended.
    pub step: ConnStep,
    /// The errno with which messages failed.
    pub errno: Errno,
    /// The peer's mistake, if any.
    pub cause: Cause,
    /// The observed symptom, if the errno is not specific enough.
    pub detail: String,
    /// Advice for the operator, in one sentence.
    pub advice: &'static str,
}

/// The reason of the failure of a connection, or of an attempt to open one.
#[derive(Debug, Clone)]
pub struct ConnFailure {
    /// The step at which the connection ended.
    pub step: ConnStep,
    /// The errno with which messages fail.
    pub errno: Errno,
    /// The peer's mistake, if any.
    pub cause: Cause,
    /// The observed symptom, if the errno is not specific enough.
    pub detail: String,
}

impl ConnFailure {
    /// Creates a failure of which only the errno and a description are known.
    pub fn new(step: ConnStep, errno: Errno, detail: impl ToString) -> ConnFailure {
        ConnFailure { step, errno, cause: Cause::Errno, detail: detail.to_string() }
    }

    /// Creates the failure for a peer that sent something invalid in this state.
    pub fn said(step: ConnStep, error: &ProtoError) -> ConnFailure {
        ConnFailure { cause: error.into(), ..ConnFailure::new(step, Errno::from_raw(error.errno()), error) }
    }

    /// Creates the failure of a connection that was in use.
    pub fn gone(errno: Errno, detail: impl ToString) -> ConnFailure {
        ConnFailure::new(ConnStep::Established, errno, detail)
    }

    /// Creates the failure for a peer that broke the protocol on a connection in use.
    pub fn broke(errno: Errno, detail: impl ToString) -> ConnFailure {
        ConnFailure { cause: Cause::Protocol, ..ConnFailure::gone(errno, detail) }
    }

    /// Returns the advice that holds for every kind of network.
    fn advice(&self) -> &'static str {
        match (self.step, self.errno, self.cause) {
            (_, _, Cause::Protocol) | (ConnStep::Established, Errno::EPROTO, _) => {
                "the node breaks the protocol: which release of LNet does it run?"
            }
            (ConnStep::Established, Errno::ECONNRESET, _) => {
                "the node went down or restarted; it is connected to again when needed"
            }
            (ConnStep::Established, errno, _) if is_timeout(errno) => {
                "the node no longer answers: is it up, and the network between?"
            }
            _ => "try again",
        }
    }
}

impl From<ProtoError> for ConnFailure {
    /// Creates the failure for a protocol error on a connection in use.
    fn from(error: ProtoError) -> ConnFailure {
        ConnFailure::broke(Errno::from_raw(error.errno()), error)
    }
}

impl<P: Protocol> Turn<'_, P> {
    /// Counts a failed attempt to connect to a peer, and records the reason.
    pub fn attempt_failed(self, peer: &Peer<P>, address: SocketAddr, failure: ConnFailure) {
        let failure = failure_of(peer, address, failure);
        debug!(%failure, "cannot connect");
        self.shard.counters.rx.connect_failures().one();
        peer.state.lock().failure = Some(failure);
    }

    /// Counts the failure of a connection in use, and records the reason.
    pub(crate) fn connection_failed(
        self,
        peer: &Peer<P>,
        address: SocketAddr,
        failure: ConnFailure,
    ) -> PeerFailure {
        let counters = &self.shard.counters.rx;
        match failure.cause {
            Cause::Errno | Cause::Closed if is_timeout(failure.errno) => counters.timeouts().one(),
            Cause::Errno | Cause::Closed => {}
            _ => counters.protocol_errors().one(),
        }
        let failure = failure_of(peer, address, failure);
        peer.state.lock().failure = Some(failure.clone());
        failure
    }
}

fn failure_of<P: Protocol>(peer: &Peer<P>, address: SocketAddr, failure: ConnFailure) -> PeerFailure {
    let special = || P::advice(&failure);
    let advice =
        (failure.cause != Cause::Protocol).then(special).flatten().unwrap_or_else(|| failure.advice());
    let ConnFailure { step, errno, cause, detail } = failure;
    PeerFailure { peer: peer.key.id, address, step, errno, cause, detail, advice }
}

/// Returns whether the errno means that nothing has moved for too long, as reported by the system
/// or by an LND. On an established connection the system reports an unreachable network or host
/// only when it gives up.
fn is_timeout(errno: Errno) -> bool {
    [Errno::ETIMEDOUT, Errno::EHOSTUNREACH, Errno::ENETUNREACH, Errno::EHOSTDOWN].contains(&errno)
}

impl fmt::Display for PeerFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} with {} failed: {}", self.peer, self.step, self.address, self.errno)?;
        if !self.detail.is_empty() {
            write!(f, " ({})", self.detail)?;
        }
        write!(f, "; {}", self.advice)
    }
}

impl From<PeerFailure> for Errno {
    fn from(failure: PeerFailure) -> Errno {
        failure.errno
    }
}
