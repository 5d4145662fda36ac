//! Messages that are being sent or received.

use lnet_api::{Event, RxContext};
use lnet_nid::ProcessId;
use lnet_proto::{Header, MessageType, WireHandle};
use lnet_region::ReadVec;
use smallvec::SmallVec;

use crate::list::{Linked, Links};
use crate::matching::Wanted;
use crate::names::MdName;
use crate::slab::{Key, NONE};

/// The list number of messages that wait for credits: of their peer, in their host's share, or of their NI, never two at a time.
pub(crate) const QUEUE: usize = 5;

/// The list number of the messages that wait on a lazy portal.
pub(crate) const DELAYED: usize = 6;

/// A way to another node, or to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// This node itself: no LND, no credits (lnet-wire 14).
    Here,
    /// Over an NI to a next hop, which belongs to this partition.
    Over { ni: Key, peer: ProcessId, partition: usize },
}

/// What a message is that this node sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Put,
    Get,
    /// A GET whose data the network writes by itself.
    DirectGet,
    Ack,
    /// The REPLY to a GET from elsewhere.
    Reply,
}

impl Op {
    /// How it is counted.
    pub(crate) fn kind(self) -> MessageType {
        match self {
            Op::Put => MessageType::Put,
            Op::Get | Op::DirectGet => MessageType::Get,
            Op::Ack => MessageType::Ack,
            Op::Reply => MessageType::Reply,
        }
    }

    /// Whether it answers a request of another node.
    pub(crate) fn is_answer(self) -> bool {
        matches!(self, Op::Ack | Op::Reply)
    }
}

/// What a message that waits for credits waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// A credit of its peer.
    Peer,
    /// That its host holds fewer credits.
    Host,
    /// A credit of its NI.
    Ni,
}

/// A message that this node sends. It ends once: when its LND finalises it, its time is up in a queue, or its NI goes.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) op: Op,
    /// The MD it uses; none for an ACK.
    pub(crate) md: Option<MdName>,
    /// What the MD's owner will be told, but for the status.
    pub(crate) event: Event,
    /// The ACK or REPLY to come.
    pub(crate) response: Key,
    /// The next hop, once it is in a partition's table of messages; else, and for this node itself, NONE.
    pub(crate) peer: u32,
    /// While it waits for credits: the message itself, in a table of its own, for few ever wait.
    pub(crate) waiting: u32,
    /// The queue it waits in, if it waits.
    pub(crate) awaits: Awaits,
    /// The host whose credit it holds or waits for, among those of its NI; NONE while it waits for a credit of its peer.
    pub(crate) host: u32,
    pub(crate) queue: Links,
}

impl Message {
    /// A message that is in no table yet.
    pub(crate) fn new(op: Op, md: Option<MdName>, response: Key, event: Event) -> Message {
        Message {
            op,
            md,
            event,
            response,
            peer: NONE,
            waiting: NONE,
            awaits: Awaits::Peer,
            host: NONE,
            queue: Links::NONE,
        }
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

/// A message that is decided on and is to be sent when no lock is held.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) way: Way,
    pub(crate) message: Message,
    pub(crate) header: Header,
    pub(crate) payload: Option<ReadVec>,
    pub(crate) reply_to: Option<RxContext>,
}

/// Where a header came from.
#[derive(Debug, Clone)]
pub(crate) struct Inbound {
    /// The way back: an answer goes over the hop that brought the request.
    pub(crate) back: Way,
    /// The last hop.
    pub(crate) from: ProcessId,
    pub(crate) rx: RxContext,
    /// The token that its LND has for it since a fault rule has delayed it, or 0.
    pub(crate) held: u64,
    /// The NIDs of the node that the header names as its source, the primary one first.
    pub(crate) nids: SmallVec<[lnet_nid::Nid; 2]>,
}

/// A message whose payload is being received.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) kind: Intake,
    /// The MD that takes it, in the same partition's table; NONE if it goes nowhere.
    pub(crate) md: u32,
    pub(crate) back: Way,
    pub(crate) event: Event,
    /// What the ACK of a PUT echoes, if one is wanted.
    pub(crate) ack: WireHandle,
}

/// What is being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    Put,
    /// A PUT to the node's own portal: one at a time per peer.
    Push,
    Reply,
}

/// A message of this node to itself, until it is received.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) message: Message,
    pub(crate) payload: Option<ReadVec>,
}

/// A PUT that waits on a lazy portal.
#[derive(Debug)]
pub(crate) struct Delayed {
    pub(crate) inbound: Inbound,
    pub(crate) header: Header,
    pub(crate) wanted: Wanted,
    /// The message itself, if this node sent it.
    pub(crate) local: Option<Local>,
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
