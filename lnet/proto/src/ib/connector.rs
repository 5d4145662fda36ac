//! The active side of a connection (lnet-wire 33 and 34).

use crate::ProtoError;

use super::head::{check_nid, check_stamp};
use super::{
    Body, ConnParams, End, Head, Link, Message, MessageKind, QUEUE_DEPTH_V1, Reject, RejectReason, Version,
};

/// The limit for consecutive retries that a peer may cause: the number of races that kernel nodes
/// lose before they stop giving way. Version, depth and fragments take one retry each, so only a
/// misbehaving peer reaches the limit.
pub const RETRIES_MAX: u32 = 20;

/// The requested connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The connecting interface.
    pub local: End,
    /// The peer's interface; its stamp is that of its last known incarnation, 0 if none is known.
    pub peer: End,
    /// The version to request first.
    pub version: Version,
    /// The oldest version to fall back to; [`Version::V1`] only where the driver keeps its credit
    /// rules as well.
    pub oldest: Version,
    /// The parameters to request first: this node's `peer_credits`, [`super::RDMA_FRAGMENTS_MAX`],
    /// [`super::MESSAGE_MAX`].
    pub params: ConnParams,
}

/// The active side of one connection, through all its attempts.
///
/// Send [`Connector::request`] as private data of a connection request, and pass the result to
/// [`Connector::accepted`] or [`Connector::rejected`]. The caller must set a deadline for each
/// attempt (12.5 s on kernel nodes), and may stop because no message waits for the connection any
/// more, or because a connection from the peer has come.
#[derive(Clone, Debug)]
pub struct Connector {
    attempt: Attempt,
    request: [u8; MessageKind::ConnReq.min_len()],
    retries: u32,
}

/// The connection that both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// The version and the ends of the connection.
    pub link: Link,
    /// The agreed parameters: the credits are `queue_depth`, and no transfer has more than
    /// `max_fragments`.
    pub params: ConnParams,
}

/// A rejection, as the connection manager reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection<'a> {
    /// The peer's driver rejected the request; this is the private data of the rejection.
    Record(&'a [u8]),
    /// The peer's connection manager still has state of an old connection.
    StaleConnection,
    /// The service has no listener.
    NoListener,
}

/// The next action after a rejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterRejection {
    /// Send the changed [`Connector::request`] at once.
    Now,
    /// The peer is connecting itself: use its connection. If none comes, send the request again
    /// after a while.
    Later,
    /// The connection cannot be established.
    Fail(ProtoError),
}

impl Connector {
    /// Starts the first attempt.
    ///
    /// # Errors
    /// [`ProtoError::Attempt`] for an end that is not one interface, a version older than the
    /// oldest, and parameters that no peer may accept; [`ProtoError::LargeNid`] for an end that
    /// messages cannot encode.
    pub fn new(attempt: Attempt) -> Result<Connector, ProtoError> {
        attempt.check()?;
        Ok(Connector { attempt, request: attempt.request()?, retries: 0 })
    }

    /// Returns the CONNREQ, the private data of the connection request.
    #[must_use]
    pub const fn request(&self) -> &[u8] {
        &self.request
    }

    /// Returns the next, or current, attempt. The queue pair is made for its parameters.
    #[must_use]
    pub const fn attempt(&self) -> &Attempt {
        &self.attempt
    }

    /// Parses the CONNACK, the private data of the peer's acceptance.
    ///
    /// # Errors
    /// The active side's checks of lnet-wire 34. The caller must close the connection, although it
    /// is established.
    pub fn accepted(&self, private_data: &[u8]) -> Result<Established, ProtoError> {
        let Attempt { local, peer, version, params: asked, .. } = self.attempt;
        let Message { head, body } = Message::parse(private_data)?;
        let Body::ConnAck(params) = body else {
            return Err(ProtoError::WrongKind { kind: body.kind(), wanted: MessageKind::ConnAck });
        };
        if head.version != version {
            let (value, only) = (head.version as u32, version as u32);
            return Err(ProtoError::Version { object: "CONNACK", value, min: only, max: only });
        }
        params.check_within(&asked)?;
        check_nid("srcnid", head.src, peer)?;
        check_nid("dstnid", head.dst, local)?;
        check_stamp("dststamp", head.dst, local)?;
        Ok(Established { link: Link { version, local, peer: head.src }, params })
    }

    /// Parses a rejection, and changes the request so that another attempt may succeed.
    pub fn rejected(&mut self, rejection: Rejection<'_>) -> AfterRejection {
        match self.retry(rejection) {
            Ok(next) => next,
            Err(cause) => AfterRejection::Fail(cause),
        }
    }

    fn retry(&mut self, rejection: Rejection<'_>) -> Result<AfterRejection, ProtoError> {
        let (attempt, next) = match rejection {
            Rejection::Record(bytes) => self.attempt.after(&Reject::parse(bytes)?)?,
            Rejection::StaleConnection => (self.attempt, AfterRejection::Now),
            Rejection::NoListener => return Err(ProtoError::NoListener { nid: self.attempt.peer.nid }),
        };
        if self.retries == RETRIES_MAX {
            return Err(ProtoError::RetriesExhausted { nid: attempt.peer.nid, limit: RETRIES_MAX });
        }
        *self = Connector { attempt, request: attempt.request()?, retries: self.retries + 1 };
        Ok(next)
    }
}

impl Attempt {
    fn check(&self) -> Result<(), ProtoError> {
        for (field, nid) in [("local NID", self.local.nid), ("peer", self.peer.nid)] {
            if nid.is_any() || nid.is_loopback() {
                return Err(refused(field, nid));
            }
        }
        if self.version < self.oldest {
            return Err(refused("version", format_args!("{:#x}", self.version as u16)));
        }
        let limits = ConnParams { queue_depth: deepest(self.version), ..ConnParams::DEFAULT };
        self.params.check_within(&limits).map_err(|cause| refused("parameter", cause))
    }

    fn request(&self) -> Result<[u8; MessageKind::ConnReq.min_len()], ProtoError> {
        let mut bytes = [0; MessageKind::ConnReq.min_len()];
        let head = Head { version: self.version, credits: 0, checksum: 0, src: self.local, dst: self.peer };
        Message { head, body: Body::ConnReq(self.params) }.emit(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the next attempt by the table of lnet-wire 33, or the error if there is none.
    fn after(&self, record: &Reject) -> Result<(Attempt, AfterRejection), ProtoError> {
        let rejected = ProtoError::Rejected { reason: record.reason };
        let offered = record.params.unwrap_or(ConnParams::UNKNOWN);
        let params = self.params;
        let next = match record.reason {
            RejectReason::ConnRace => return Ok((*self, AfterRejection::Later)),
            RejectReason::Fatal if record.version < self.version => self.with_version(record.version),
            RejectReason::ConnUncompat if record.version != self.version => self.with_version(record.version),
            RejectReason::ConnStale => {
                let peer = End { stamp: record.stamp, ..self.peer };
                Attempt { peer, ..*self }.with_version(record.version)
            }
            RejectReason::RdmaFrags => smaller(offered.max_fragments, params.max_fragments)
                .map(|max_fragments| Attempt { params: ConnParams { max_fragments, ..params }, ..*self }),
            RejectReason::MsgQueueSize => smaller(offered.queue_depth, params.queue_depth)
                .map(|queue_depth| Attempt { params: ConnParams { queue_depth, ..params }, ..*self }),
            RejectReason::NoResources
            | RejectReason::Fatal
            | RejectReason::ConnUncompat
            | RejectReason::InvalidSrvId
            | RejectReason::Early => None,
        };
        next.map(|attempt| (attempt, AfterRejection::Now)).ok_or(rejected)
    }

    /// Returns the attempt in this version, if it is allowed.
    fn with_version(self, version: Version) -> Option<Attempt> {
        let queue_depth = self.params.queue_depth.min(deepest(version));
        let params = ConnParams { queue_depth, ..self.params };
        (version >= self.oldest).then_some(Attempt { version, params, ..self })
    }
}

/// Returns the offered value if a retry can request it: it must be less than `asked`, and not 0.
fn smaller(offered: u16, asked: u16) -> Option<u16> {
    (1..asked).contains(&offered).then_some(offered)
}

/// Returns the deepest queue that can be requested.
const fn deepest(version: Version) -> u16 {
    match version {
        Version::V1 => QUEUE_DEPTH_V1,
        Version::V2 => u16::MAX,
    }
}

fn refused(field: &'static str, value: impl ToString) -> ProtoError {
    ProtoError::Attempt { field, value: value.to_string() }
}
