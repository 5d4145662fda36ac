//! What the driver keeps with the operations of a connection.

use std::sync::Arc;

use lnet_api::{Errno, RxContext, RxToken, TxToken};
use lnet_lnd::slab::Key;
use lnet_proto::ib::Descriptor;
use lnet_proto::{Header, ProtoError};
use lnet_region::{ReadVec, WriteVec};

use crate::conn::{Key as OpKey, Receipt};
use crate::connection::Connection;
use crate::memory::Bounce;
use crate::o2ib::Request;
use crate::writes::FragmentList;

/// The context of a receive that needs no name: its answer is a message like any other.
pub(crate) const PLAIN: RxContext = RxContext(u64::MAX);

/// Memory that a descriptor describes: of this node, or of the peer.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) key: u32,
    pub(crate) fragments: FragmentList,
}

impl Described {
    pub(crate) fn of(descriptor: &Descriptor<'_>) -> Described {
        Described { key: descriptor.key, fragments: descriptor.fragments().collect() }
    }

    /// As a message carries it.
    pub(crate) fn descriptor(&self) -> Result<Descriptor<'_>, ProtoError> {
        Descriptor::new(self.key, &self.fragments)
    }

    /// Its fragments, as far as so many bytes reach.
    pub(crate) fn first(&self, bytes: u32) -> impl Iterator<Item = lnet_proto::ib::Fragment> {
        let mut left = bytes;
        self.fragments.iter().map_while(move |fragment| {
            let length = fragment.length.min(left);
            left -= length;
            (length > 0).then_some(lnet_proto::ib::Fragment { length, ..*fragment })
        })
    }
}

/// An operation of a connection, as its driver knows it. Leases go back when it is dropped.
pub(crate) enum Item {
    /// An own message: IMMEDIATE or PUT_REQ.
    Send { token: TxToken, header: Header, source: Source },
    /// An own GET, written into directly.
    Get { token: TxToken, header: Header, sink: Sink },
    /// A PUT_REQ of the peer's whose payload is wanted.
    Receive { taker: Taker, sink: Sink },
    /// A GET_REQ of the peer's, and its REPLY once that is there.
    Reply { token: Option<TxToken>, source: Source },
}

/// What waits for a payload of the peer's.
#[derive(Clone, Copy)]
pub(crate) enum Taker {
    /// The engine.
    Engine(RxToken),
    /// A message in memory, under this name.
    Memory(Key),
}

impl Taker {
    /// The payload does not come, for this reason; or none is wanted.
    pub(crate) fn ended(self, conn: &Connection, outcome: Result<(), Errno>) {
        match self {
            Taker::Engine(token) => conn.ni().upcalls.finalize_rx(token, outcome),
            Taker::Memory(name) => {
                let errno = outcome.err().unwrap_or(Errno::EIO);
                conn.shard().request(Request::Unheld(name, errno));
            }
        }
    }
}

/// A payload that may be written.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) payload: Option<ReadVec>,
    /// Where to.
    pub(crate) target: Described,
    /// How many bytes.
    pub(crate) bytes: u32,
    /// What it is written from.
    pub(crate) way: Way,
}

/// What a payload is written from.
#[derive(Default)]
pub(crate) enum Way {
    /// Its place.
    #[default]
    Straight,
    /// A copy, for its place cannot be registered.
    Bounce(Bounce),
    /// A copy in the buffer of the message that follows it: so little is not worth a bounce buffer.
    Message,
}

/// Memory that is written into.
pub(crate) struct Sink {
    pub(crate) vec: WriteVec,
    /// As the peer is told of it.
    pub(crate) described: Described,
    /// What is written into in its place.
    pub(crate) bounce: Option<Bounce>,
}

impl Sink {
    /// So many bytes have been written; gives how many had to be copied.
    pub(crate) fn settle(&mut self, bytes: u32) -> usize {
        self.bounce.take().map_or(0, |bounce| bounce.store(&mut self.vec, bytes as usize))
    }
}

/// Marks the names of GETs: of no shard ([`Key`]), so that none is the name of a message that is held back.
const GET: u64 = 0x80 << 24;
const _: () = assert!(lnet_api::MAX_SHARDS <= 0x80, "a shard has no number with this bit");

/// The name of a GET in the table of its shard.
pub(crate) fn name_of_get(key: Key) -> RxContext {
    RxContext(key.0 | GET)
}

/// The place of what is answered; `None` if that has no name.
pub(crate) fn get_of_name(name: RxContext) -> Option<Key> {
    (name != PLAIN).then_some(Key(name.0 & !GET))
}

/// A GET_REQ that the engine is to answer, which it names ([`RxContext`]).
pub(crate) struct AskedGet {
    pub(crate) conn: Arc<Connection>,
    pub(crate) operation: OpKey,
}

/// A message that the engine holds back.
pub enum Held {
    /// It stands in this receive buffer, with a payload of so many bytes.
    Immediate { buffer: usize, receipt: Receipt, payload: usize },
    /// It has been announced.
    PutReq { operation: OpKey, payload: u32 },
}

/// A GET that waits for a bounce buffer before it can be queued.
pub struct PendingGet {
    pub(crate) conn: Arc<Connection>,
    pub(crate) token: TxToken,
    pub(crate) header: Header,
    pub(crate) sink: WriteVec,
    pub(crate) deadline_ns: u64,
}
