//! Messages that are being sent or received.

use lnet_api::{Event, RxContext, Tx};
use lnet_nid::ProcessId;
use lnet_proto::{Header, WireHandle};

use crate::list::{Linked, Links};
use crate::partition::DELAYED;
use crate::slab::{Key, NONE};

/// The list number of messages that wait for credits: of their peer or of their NI, never both.
pub(crate) const QUEUE: usize = 5;

/// What a message is to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A PUT that this node sends.
    Put,
    /// A GET that this node sends.
    Get,
    /// A GET whose data the network writes by itself.
    DirectGet,
    /// An ACK that this node sends.
    Ack,
    /// The REPLY to a GET from elsewhere.
    Reply,
    /// A PUT whose payload is being received.
    PutReceived,
    /// A push whose payload is being received into a buffer.
    PushReceived,
    /// A REPLY whose payload is being received.
    ReplyReceived,
}

/// A message in flight. It ends in exactly one way: finalised, once.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) op: Op,
    /// The MD it uses; NONE for an ACK, and for a push that is thrown away.
    pub(crate) md: u32,
    /// The next hop of one that is sent; the last hop of a PUT received that is a push or causes an ACK; else, and for
    /// this node itself, NONE.
    pub(crate) peer: u32,
    /// What the MD's owner will be told, but for the status.
    pub(crate) event: Event,
    /// The ACK or REPLY to come.
    pub(crate) response: Key,
    /// What the ACK of a received PUT echoes, if one is wanted.
    pub(crate) ack: WireHandle,
    /// While it waits for credits: the message itself, in a table of its own, for few ever wait.
    pub(crate) waiting: u32,
    pub(crate) queue: Links,
}

impl Message {
    /// A message with nothing to wait for.
    pub(crate) fn new(op: Op, md: u32, peer: u32, event: Event) -> Message {
        let (response, ack) = (Key::NULL, WireHandle::NONE);
        Message { op, md, peer, event, response, ack, waiting: NONE, queue: Links::NONE }
    }

    /// Whether this node sends it.
    pub(crate) fn is_outgoing(&self) -> bool {
        !matches!(self.op, Op::PutReceived | Op::PushReceived | Op::ReplyReceived)
    }
}

impl Op {
    /// Whether it answers a request of another node.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Op::Ack | Op::Reply)
    }
}

impl Linked<QUEUE> for Message {
    fn links(&self) -> Links {
        self.queue
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.queue
    }
}

/// Where a header came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inbound {
    /// The NI; NONE for a message of this node to itself.
    pub(crate) ni: u32,
    /// The last hop.
    pub(crate) from: ProcessId,
    pub(crate) rx: RxContext,
}

/// A PUT that waits on a lazy portal.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) inbound: Inbound,
    pub(crate) header: Header,
    /// The message itself, if this node sent it.
    pub(crate) local: Option<Tx>,
    pub(crate) links: Links,
}

impl Linked<DELAYED> for Delayed {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}
