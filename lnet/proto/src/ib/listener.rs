//! The passive side of a connection (lnet-wire 34): judges the CONNREQ of a peer, and builds the
//! CONNACK or the rejection. It owns no connection; the driver calls [`AcceptRules::judge`], then
//! [`ConnOffer::check_known`], then [`ConnOffer::accept`] or [`ConnOffer::refuse`].

use lnet_nid::Nid;

use crate::ProtoError;

use super::head::parse_start;
use super::{
    Body, ConnParams, End, Link, Message, MessageKind, PRIVILEGED_PORT_MAX, QUEUE_DEPTH_V1, Reject,
    RejectReason, Version,
};

/// The rules of the passive side, the same for all connections.
///
/// `L` returns what a NID refers to on the device at which a request arrived: `Fn(Nid) ->
/// `[`Destination`].
#[derive(Clone, Copy, Debug)]
pub struct AcceptRules<L> {
    /// True if source ports must be privileged; false by default.
    pub require_privileged: bool,
    /// The oldest version accepted. [`Version::V1`] is allowed only where the driver also
    /// implements its credit rules.
    pub oldest: Version,
    /// The lookup of a NID on the device.
    pub destination: L,
}

/// An interface of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalInterface {
    /// The NID and the incarnation of the interface.
    pub end: End,
    /// The upper limits of a connection: its `peer_credits`, [`super::RDMA_FRAGMENTS_MAX`],
    /// [`super::MESSAGE_MAX`].
    pub limits: ConnParams,
}

/// The meaning of a NID on the device at which a request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// An interface of this node on this device.
    Ready(LocalInterface),
    /// The device has no interface yet, or this one is not active.
    NotReady,
    /// The NID is not one of this node, or is that of another device.
    Unknown,
}

/// A rejection of a request: the record is its private data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    /// The record for the peer.
    pub record: Reject,
    /// The reason, for this node's own messages and errno.
    pub cause: ProtoError,
}

/// A request that this node can grant. The caller decides, with [`ConnOffer::accept`] or
/// [`ConnOffer::refuse`].
///
/// The caller must call [`ConnOffer::check_known`] first. Then it may refuse with
/// [`RejectReason::ConnRace`] if it is connecting to the peer itself; but releases differ in which
/// of two attempts wins, so accepting is safer: two nodes may have several connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnOffer {
    /// The version and the ends of the connection.
    pub link: Link,
    /// The parameters that the peer requests, within this node's limits.
    pub asked: ConnParams,
    limits: ConnParams,
}

/// The state of a peer known from other connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The peer's version.
    pub version: Version,
    /// The peer's incarnation.
    pub stamp: u64,
}

impl<L: Fn(Nid) -> Destination> AcceptRules<L> {
    /// Judges a connection request by its private data and source port.
    ///
    /// # Errors
    /// The rejection to send, by the table of lnet-wire 34.
    pub fn judge(&self, source_port: u16, private_data: &[u8]) -> Result<ConnOffer, RequestRefusal> {
        let fatal = |version, cause| RequestRefusal::new(version, None, RejectReason::Fatal, cause);
        if self.require_privileged && source_port > PRIVILEGED_PORT_MAX {
            let cause = ProtoError::Unprivileged { port: source_port, limit: PRIVILEGED_PORT_MAX };
            return Err(fatal(Version::V2, cause));
        }
        // A request that cannot be answered in its own version is answered in the newest.
        let version = match parse_start("connection request", private_data) {
            Ok((_, version)) if version >= self.oldest => version,
            Ok((_, version)) => return Err(fatal(Version::V2, self.too_old(version))),
            Err(cause) => return Err(fatal(Version::V2, cause)),
        };
        let message = Message::parse(private_data).map_err(|cause| fatal(version, cause))?;
        let interface = self.find(&message)?;
        ConnOffer::new(&message, interface)
    }

    fn too_old(&self, version: Version) -> ProtoError {
        let (min, max) = (self.oldest as u32, Version::V2 as u32);
        ProtoError::Version { object: "connection request", value: version as u32, min, max }
    }

    fn find(&self, message: &Message<'_>) -> Result<LocalInterface, RequestRefusal> {
        let (version, nid) = (message.head.version, message.head.dst.nid);
        let names_one = !nid.is_any() && !nid.is_loopback();
        match names_one.then(|| (self.destination)(nid)) {
            Some(Destination::Ready(interface)) => Ok(interface),
            Some(Destination::NotReady) => {
                Err(RequestRefusal::new(version, None, RejectReason::Early, ProtoError::NotReady { nid }))
            }
            Some(Destination::Unknown) | None => {
                Err(RequestRefusal::new(version, None, RejectReason::Fatal, ProtoError::NotMine { nid }))
            }
        }
    }
}

impl ConnOffer {
    fn new(message: &Message<'_>, interface: LocalInterface) -> Result<ConnOffer, RequestRefusal> {
        let (head, local, limits) = (&message.head, interface.end, interface.limits);
        let version = head.version;
        let refusal = |reason, cause| RequestRefusal::new(version, Some(interface), reason, cause);
        if head.dst.stamp != 0 && head.dst.stamp != local.stamp {
            let cause = ProtoError::Stale { field: "dststamp", got: head.dst.stamp, wanted: local.stamp };
            return Err(refusal(RejectReason::ConnStale, cause));
        }
        let Body::ConnReq(asked) = message.body else {
            let (kind, wanted) = (message.body.kind(), MessageKind::ConnReq);
            return Err(refusal(RejectReason::Fatal, ProtoError::WrongKind { kind, wanted }));
        };
        let depth_limit = if version == Version::V1 { QUEUE_DEPTH_V1 } else { limits.queue_depth };
        // A value of zero is invalid, and a smaller offer would not help.
        let too_deep = match version {
            Version::V2 if asked.queue_depth > depth_limit => RejectReason::MsgQueueSize,
            _ => RejectReason::Fatal,
        };
        let too_many = match asked.max_fragments {
            0 => RejectReason::Fatal,
            _ => RejectReason::RdmaFrags,
        };
        asked.check_depth(depth_limit).map_err(|cause| refusal(too_deep, cause))?;
        asked.check_fragments(limits.max_fragments).map_err(|cause| refusal(too_many, cause))?;
        asked.check_message(limits.max_message).map_err(|cause| refusal(RejectReason::Fatal, cause))?;
        Ok(ConnOffer { link: Link { version, local, peer: head.src }, asked, limits })
    }

    /// Compares the peer with its state known from live connections.
    ///
    /// # Errors
    /// The rejection to send. The caller must close all old connections to the peer, which will try
    /// again.
    pub fn check_known(&self, known: Option<Known>) -> Result<(), RequestRefusal> {
        let (version, got) = (self.link.version, self.link.peer.stamp);
        let cause = match known {
            Some(known) if known.stamp != got => {
                ProtoError::Stale { field: "srcstamp", got, wanted: known.stamp }
            }
            Some(known) if known.version != version => {
                let only = known.version as u32;
                ProtoError::Version {
                    object: "connection request",
                    value: version as u32,
                    min: only,
                    max: only,
                }
            }
            _ => return Ok(()),
        };
        Err(RequestRefusal { record: self.refuse(RejectReason::ConnStale), cause })
    }

    /// Returns the CONNACK, the private data of the acceptance. `granted` are the parameters of the
    /// queue pair: at most those requested; they apply to the connection.
    ///
    /// # Errors
    /// [`ProtoError::Parameter`] if a value is larger than requested, or 0.
    pub fn accept(&self, granted: ConnParams) -> Result<[u8; MessageKind::ConnAck.min_len()], ProtoError> {
        granted.check_within(&self.asked)?;
        let mut bytes = [0; MessageKind::ConnAck.min_len()];
        Message { head: self.link.head(0), body: Body::ConnAck(granted) }.emit(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the record that rejects the request for a reason of the caller's.
    #[must_use]
    pub const fn refuse(&self, reason: RejectReason) -> Reject {
        record(self.link.version, Some((self.link.local.stamp, self.limits)), reason)
    }
}

impl RequestRefusal {
    fn new(
        version: Version,
        interface: Option<LocalInterface>,
        reason: RejectReason,
        cause: ProtoError,
    ) -> RequestRefusal {
        let known = interface.map(|interface| (interface.end.stamp, interface.limits));
        RequestRefusal { record: record(version, known, reason), cause }
    }
}

const fn record(version: Version, interface: Option<(u64, ConnParams)>, reason: RejectReason) -> Reject {
    let (stamp, params) = match interface {
        Some(known) => known,
        None => (0, ConnParams::UNKNOWN),
    };
    let params = match version {
        Version::V1 => None,
        Version::V2 => Some(params),
    };
    Reject { version, reason, stamp, params }
}
