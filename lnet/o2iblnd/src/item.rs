//! The driver's data of each operation of a connection.

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

/// The context of a receive that needs no name: its answer is an ordinary message.
pub(crate) const UNNAMED: RxContext = RxContext(u64::MAX);

/// Memory of this node or of the peer, as a descriptor describes it.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) key: u32,
    pub(crate) fragments: FragmentList,
}

impl Described {
    pub(crate) fn of(descriptor: &Descriptor<'_>) -> Described {
        Described { key: descriptor.key, fragments: descriptor.fragments().collect() }
    }

    /// Returns the descriptor for a message.
    pub(crate) fn descriptor(&self) -> Result<Descriptor<'_>, ProtoError> {
        Descriptor::new(self.key, &self.fragments)
    }

    /// Returns its fragments up to `bytes` bytes.
    pub(crate) fn first(&self, bytes: u32) -> impl Iterator<Item = lnet_proto::ib::Fragment> {
        let mut left = bytes;
        self.fragments.iter().map_while(move |fragment| {
            let length = fragment.length.min(left);
            left -= length;
            (length > 0).then_some(lnet_proto::ib::Fragment { length, ..*fragment })
        })
    }
}

/// The driver's data of an operation. Dropping it returns its leases.
pub(crate) enum Item {
    /// An own message: IMMEDIATE or PUT_REQ.
    Send { token: TxToken, header: Header, source: PayloadSource },
    /// An own GET, whose data the peer writes into the sink.
    Get { token: TxToken, header: Header, sink: Sink },
    /// A PUT_REQ of the peer's whose payload is wanted.
    Receive { receiver: PayloadReceiver, sink: Sink },
    /// A GET_REQ of the peer's, with its REPLY once the engine has sent it.
    Reply { token: Option<TxToken>, source: PayloadSource },
}

/// The receiver of a payload of the peer's.
#[derive(Clone, Copy)]
pub(crate) enum PayloadReceiver {
    /// The engine.
    Engine(RxToken),
    /// A held message that is copied into memory, by its name.
    Memory(Key),
}

impl PayloadReceiver {
    /// Reports that the payload does not arrive because of an error, or that none is wanted.
    pub(crate) fn ended(self, conn: &Connection, outcome: Result<(), Errno>) {
        match self {
            PayloadReceiver::Engine(token) => conn.ni().upcalls.finalize_rx(token, outcome),
            PayloadReceiver::Memory(name) => {
                let errno = outcome.err().unwrap_or(Errno::EIO);
                conn.shard().request(Request::Unheld(name, errno));
            }
        }
    }
}

/// A payload to be written to the peer.
#[derive(Default)]
pub(crate) struct PayloadSource {
    pub(crate) payload: Option<ReadVec>,
    /// The memory to write to.
    pub(crate) target: Described,
    /// The number of bytes.
    pub(crate) bytes: u32,
    /// The memory to write from.
    pub(crate) memory: SourceMemory,
}

/// The memory that a payload is written from.
#[derive(Default)]
pub(crate) enum SourceMemory {
    /// The payload's own memory.
    #[default]
    Payload,
    /// A copy in a bounce buffer, as the payload's memory cannot be registered, or would need more
    /// writes than the peers have agreed on.
    Bounce(Bounce),
    /// A copy in the buffer of the message that follows, for payloads that are too small to be
    /// worth a bounce buffer.
    Message,
}

/// Memory that the peer writes into.
pub(crate) struct Sink {
    pub(crate) vec: WriteVec,
    /// The description that is sent to the peer.
    pub(crate) described: Described,
    /// The bounce buffer that the peer writes into, if not directly.
    pub(crate) bounce: Option<Bounce>,
}

impl Sink {
    /// Completes a write of `bytes` bytes; returns the number of bytes that were copied from the
    /// bounce buffer.
    pub(crate) fn settle(&mut self, bytes: u32) -> usize {
        self.bounce.take().map_or(0, |bounce| bounce.store(&mut self.vec, bytes as usize))
    }
}

/// Marks the names of GETs. The bit belongs to no shard's number ([`Key`]), so that no GET has the
/// name of a held message.
const GET: u64 = 0x80 << 24;
const _: () = assert!(lnet_api::MAX_SHARDS <= 0x80, "a shard has no number with this bit");

/// Returns the name of a GET in its shard's table.
pub(crate) fn name_of_get(key: Key) -> RxContext {
    RxContext(key.0 | GET)
}

/// Returns the key of the GET that is answered; `None` if it has no name.
pub(crate) fn get_of_name(name: RxContext) -> Option<Key> {
    (name != UNNAMED).then_some(Key(name.0 & !GET))
}

/// A GET_REQ that the engine is to answer, and refers to by its name ([`RxContext`]).
pub(crate) struct AskedGet {
    pub(crate) conn: Arc<Connection>,
    pub(crate) operation: OpKey,
}

/// A message that the engine holds back.
pub enum HeldMessage {
    /// Its payload is in this receive buffer.
    Immediate { buffer: usize, receipt: Receipt, payload: usize },
    /// Its payload has been announced.
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
