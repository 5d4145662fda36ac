//! Messages in flight, as the rooms of the engine pass them to each other. These structs have no
//! rules, so their fields are visible in the crate.

use std::sync::Arc;

use lnet_api::{AckRequest, Event, EventKind, Get, Lnd, Put, RxContext, Tx, TxToken};
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use lnet_proto::{Body, Header, MessageType, PING_PORTAL, WireHandle};
use lnet_region::ReadVec;
use smallvec::SmallVec;

use crate::common::Common;
use crate::keys::Hasher;
use crate::names::MdName;
use crate::slab::Key;

/// A path to another node, or to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// A path to this node: no LND, no credits (lnet-wire 14).
    Here,
    /// Over an NI to a next hop, which belongs to this partition.
    Over { ni: Key, peer: ProcessId, partition: usize },
}

impl Path {
    /// Returns the NI over which the message leaves; `None` for a message to this node.
    pub(crate) fn ni(&self) -> Option<Key> {
        match *self {
            Path::Here => None,
            Path::Over { ni, .. } => Some(ni),
        }
    }

    /// Returns whether the path uses this NI.
    pub(crate) fn goes_over(&self, ni: Key) -> bool {
        self.ni() == Some(ni)
    }
}

/// The key of a peer: a next hop over an NI, with the hash of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerName {
    pub(crate) ni: Key,
    pub(crate) id: ProcessId,
    pub(crate) hash: u32,
}

impl PeerName {
    pub(crate) fn new(hasher: &Hasher, ni: Key, id: ProcessId) -> PeerName {
        let id = peer_id(id);
        PeerName { ni, id, hash: hasher.process(id, u64::from(ni.index)) }
    }
}

/// Returns a process as it identifies a peer: its PID counts only if it names a connection
/// (lnet-wire 27).
pub(crate) fn peer_id(id: ProcessId) -> ProcessId {
    if id.pid.is_userspace() { id } else { ProcessId::new(id.nid, Pid::LNET) }
}

/// A PUT or GET without its MD.
#[derive(Clone, Copy)]
pub(crate) struct NewOperation {
    pub(crate) op: MessageOp,
    /// The local NID to send from, if the program has chosen one.
    pub(crate) via: Option<Nid>,
    pub(crate) target: ProcessId,
    /// The kind of the expected answer; `None` if no answer is expected.
    pub(crate) answer: Option<EventKind>,
    /// The target's portal. On portal 0 LNet nodes exchange pings and pushes.
    pub(crate) portal: u32,
    match_bits: MatchBits,
    offset: u32,
    /// `hdr_data` of a PUT; 0 for a GET.
    hdr_data: u64,
}

impl NewOperation {
    pub(crate) fn of_put<M>(put: &Put<M>) -> NewOperation {
        let &Put { source: via, ack, target, portal, match_bits, offset, hdr_data, .. } = put;
        let answer = (ack == AckRequest::Ack).then_some(EventKind::Ack);
        NewOperation {
            op: MessageOp::Put,
            via,
            target,
            answer,
            portal: portal.get(),
            match_bits,
            offset,
            hdr_data,
        }
    }

    pub(crate) fn of_get<M>(get: &Get<M>) -> NewOperation {
        let &Get { source: via, target, portal, match_bits, offset, .. } = get;
        let (answer, portal) = (Some(EventKind::Reply), portal.get());
        NewOperation { op: MessageOp::Get, via, target, answer, portal, match_bits, offset, hdr_data: 0 }
    }

    /// Returns the body of the request's header for an MD of this length; an answer echoes
    /// `handle`.
    pub(crate) fn body(&self, length: u32, handle: WireHandle) -> Body {
        let &NewOperation { op, answer, portal, match_bits, offset, hdr_data, .. } = self;
        match op {
            MessageOp::Put => {
                let ack_wmd = answer.map_or(WireHandle::NONE, |_| handle);
                Body::Put { ack_wmd, match_bits, hdr_data, portal, offset }
            }
            _ => {
                let (src_offset, sink_length) = (offset, length);
                Body::Get { return_wmd: handle, match_bits, portal, src_offset, sink_length }
            }
        }
    }

    /// Returns the SEND event of the request.
    pub(crate) fn event(&self, common: &Common, length: u32) -> Event {
        let &NewOperation { target, portal, match_bits, offset, hdr_data, .. } = self;
        Event {
            target,
            portal,
            match_bits,
            hdr_data,
            rlength: length,
            mlength: length,
            offset: u64::from(offset),
            ..common.event(EventKind::Send)
        }
    }
}

/// The route of an outgoing message to its target.
pub(crate) struct Route {
    pub(crate) path: Path,
    /// The NID from which it is sent.
    pub(crate) source: Nid,
    /// The primary NID of the target node.
    pub(crate) primary: Nid,
    /// The peer that will owe the answer; `None` if this node itself owes it.
    pub(crate) debtor: Option<PeerName>,
}

/// The kind of an outgoing message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageOp {
    Put,
    Get,
    /// A GET whose data the network writes directly into memory.
    DirectGet,
    Ack,
    /// The REPLY to a GET of another node.
    Reply,
}

impl MessageOp {
    /// Returns the message type under which the operation is counted.
    pub(crate) fn kind(self) -> MessageType {
        match self {
            MessageOp::Put => MessageType::Put,
            MessageOp::Get | MessageOp::DirectGet => MessageType::Get,
            MessageOp::Ack => MessageType::Ack,
            MessageOp::Reply => MessageType::Reply,
        }
    }

    /// Returns whether the message answers a request of another node.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, MessageOp::Ack | MessageOp::Reply)
    }
}

/// An outgoing message. It ends once: when its LND finalises it, its deadline in a queue passes, or
/// its NI ends.
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) op: MessageOp,
    /// The MD that the message uses; none for an ACK.
    pub(crate) md: Option<MdName>,
    /// The event for the MD's owner, without the status.
    pub(crate) event: Event,
    /// The expected ACK or REPLY.
    pub(crate) response: Key,
}

impl OutgoingMessage {
    /// Returns the number of payload bytes that follow the header.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self.op {
            MessageOp::Put | MessageOp::Reply => u64::from(self.event.mlength),
            MessageOp::Get | MessageOp::DirectGet | MessageOp::Ack => 0,
        }
    }
}

/// An outgoing message that is to be sent once no lock is held.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) path: Path,
    pub(crate) message: OutgoingMessage,
    pub(crate) header: Header,
    pub(crate) payload: Option<ReadVec>,
    pub(crate) reply_to: Option<RxContext>,
}

/// Result of the launch of a message.
#[allow(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and a box would be allocated for it"
)]
pub(crate) enum Launched {
    /// The message has its credits, and is to be handed to its LND.
    Ready {
        lnd: Arc<Arc<dyn Lnd>>,
        tx: Tx,
        /// The MD that the message uses; none for an ACK.
        md: Option<MdName>,
        /// The message has waited for credits: its MD may have been unlinked in that time.
        waited: bool,
    },
    /// The message waits for credits.
    Waits { md: Option<MdName>, token: TxToken },
}

/// A message of this node to itself, until it is received.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) message: OutgoingMessage,
    pub(crate) payload: Option<ReadVec>,
}

/// The origin of an arrived header.
#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    /// The return path: an answer goes over the hop from which the request came.
    pub(crate) back: Path,
    /// The last hop of the message.
    pub(crate) from: ProcessId,
    pub(crate) rx: RxContext,
    /// The LND's token for the message if a fault rule has delayed it, otherwise 0.
    pub(crate) held: u64,
    /// The NIDs of the node that the header names as its source, the primary one first.
    pub(crate) nids: SmallVec<[Nid; 2]>,
}

impl Inbound {
    /// Returns an event with the origin of a message.
    pub(crate) fn event(&self, common: &Common, kind: EventKind, header: &Header) -> Event {
        Event {
            target: header.dest,
            initiator: ProcessId::new(self.primary(header), header.src.pid),
            source: header.src,
            sender: self.from.nid,
            ..common.event(kind)
        }
    }

    /// Returns the primary NID of the message's source.
    pub(crate) fn primary(&self, header: &Header) -> Nid {
        self.nids.first().copied().unwrap_or(header.src.nid)
    }
}

/// A message for this node, from the network or from itself, that has been admitted.
#[derive(Clone, Copy)]
pub(crate) struct AdmittedMessage<'a> {
    pub(crate) inbound: &'a Inbound,
    pub(crate) header: &'a Header,
}

/// A message that has arrived and waits, or has waited: for a buffer of a lazy portal, or because
/// of a fault rule.
#[derive(Debug)]
pub(crate) struct WaitingMessage {
    pub(crate) inbound: Inbound,
    pub(crate) header: Header,
    /// The message itself, if this node sent it.
    pub(crate) local: Option<Local>,
}

impl WaitingMessage {
    pub(crate) fn admitted(&self) -> AdmittedMessage<'_> {
        AdmittedMessage { inbound: &self.inbound, header: &self.header }
    }
}

/// Returns whether a message is a push (lnet-wire 17).
pub(crate) fn is_push(header: &Header) -> bool {
    matches!(header.body, Body::Put { portal, match_bits: MatchBits::PING, .. } if portal == PING_PORTAL.get())
}

/// Returns the handle that the ACK of a PUT echoes; the null handle if the PUT requests no ACK.
pub(crate) fn ack_of(header: &Header) -> WireHandle {
    match header.body {
        Body::Put { ack_wmd, .. } => ack_wmd,
        _ => WireHandle::NONE,
    }
}
