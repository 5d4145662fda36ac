//! The driver's data of each operation of a connection.

use std::sync::Arc;

use lnet_api::{Errno, RxContext, RxToken, TxToken};
use lnet_lnd::shard_table::ShardKey;
use lnet_proto::ib::RdmaDescriptor;
use lnet_proto::{Header, ProtoError};
use lnet_region::{ReadVec, WriteVec};

use crate::conn::{OpKey, Receipt};
use crate::connection::Connection;
use crate::memory::Bounce;
use crate::o2ib::Request;
use crate::writes::FragmentList;

/// The context of a receive to which the engine needs no name, because the answer is an ordinary
/// message.
pub(crate) const UNNAMED: RxContext = RxContext(u64::MAX);

/// Memory of this node or of the peer, as a descriptor describes it.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) key: u32,
    pub(crate) fragments: FragmentList,
}

impl Described {
    pub(crate) fn of(descriptor: &RdmaDescriptor<'_>) -> Described {
        Described { key: descriptor.key, fragments: descriptor.fragments().collect() }
    }

    /// Returns the descriptor for a message to the peer.
    pub(crate) fn descriptor(&self) -> Result<RdmaDescriptor<'_>, ProtoError> {
        RdmaDescriptor::new(self.key, &self.fragments)
    }

    /// Returns the first fragments, up to `bytes` bytes in total.
    pub(crate) fn first(&self, bytes: u32) -> impl Iterator<Item = lnet_proto::ib::RdmaFragment> {
        let mut left = bytes;
        self.fragments.iter().map_while(move |fragment| {
            let length = fragment.length.min(left);
            left -= length;
            (length > 0).then_some(lnet_proto::ib::RdmaFragment { length, ..*fragment })
        })
    }
}

/// The driver's data of an operation. Dropping it returns its leases.
pub(crate) enum OpData {
    /// The item of an own message: IMMEDIATE or PUT_REQ.
    Send { token: TxToken, header: Header, source: PayloadSource },
    /// The item of an own GET, whose data the peer writes into the sink.
    Get { token: TxToken, header: Header, sink: Sink },
    /// The item of a PUT_REQ of the peer whose payload is wanted.
    Receive { receiver: PayloadReceiver, sink: Sink },
    /// The item of a GET_REQ of the peer, with the REPLY once the engine has sent it.
    Reply { token: Option<TxToken>, source: PayloadSource },
}

/// The receiver of a payload that the peer sends.
#[derive(Clone, Copy)]
pub(crate) enum PayloadReceiver {
    /// The engine, by its token.
    Engine(RxToken),
    /// A held message that is copied into memory, by the message's name.
    Memory(ShardKey),
}

impl PayloadReceiver {
    /// Reports to the receiver that the payload does not arrive because of an error, or that none
    /// is wanted.
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
    /// The peer's memory, to which the payload is written.
    pub(crate) target: Described,
    /// The number of bytes to write.
    pub(crate) bytes: u32,
    /// The memory from which the payload is written.
    pub(crate) memory: SourceMemory,
}

/// The memory from which a payload is written.
#[derive(Default)]
pub(crate) enum SourceMemory {
    /// The payload's own memory.
    #[default]
    Payload,
    /// A copy in a bounce buffer, as the payload's memory cannot be registered, or would need more
    /// writes than the peers have agreed on.
    Bounce(Bounce),
    /// A copy in the buffer of the message that follows, for payloads that are too small for the
    /// cost of a bounce buffer.
    Message,
}

/// Memory into which the peer writes.
pub(crate) struct Sink {
    pub(crate) vec: WriteVec,
    /// The description that is sent to the peer.
    pub(crate) described: Described,
    /// The bounce buffer into which the peer writes; `None` if it writes directly.
    pub(crate) bounce: Option<Bounce>,
}

impl Sink {
    /// Completes a write of `bytes` bytes; returns the number of bytes that were copied from the
    /// bounce buffer.
    pub(crate) fn settle(&mut self, bytes: u32) -> usize {
        self.bounce.take().map_or(0, |bounce| bounce.store(&mut self.vec, bytes as usize))
    }
}

/// Marks the names of GETs. No shard's number in a [`ShardKey`] has this bit, so that no GET has the
/// name of a held message.
const GET: u64 = 0x80 << 24;
const _: () = assert!(lnet_api::MAX_SHARDS <= 0x80, "a shard has no number with this bit");

/// Returns the name of a GET in its shard's table.
pub(crate) fn name_of_get(key: ShardKey) -> RxContext {
    RxContext(key.0 | GET)
}

/// Returns the key of the GET that an answer belongs to; `None` if the name is that of no GET.
pub(crate) fn get_of_name(name: RxContext) -> Option<ShardKey> {
    (name != UNNAMED).then_some(ShardKey(name.0 & !GET))
}

/// A GET_REQ that the engine is to answer, and refers to by its name ([`RxContext`]).
pub(crate) struct AskedGet {
    pub(crate) conn: Arc<Connection>,
    pub(crate) operation: OpKey,
}

/// A message that the engine holds back.
pub enum HeldMessage {
    /// An IMMEDIATE, whose payload is in this receive buffer.
    Immediate { buffer: usize, receipt: Receipt, payload: usize },
    /// A PUT_REQ, which announces a payload.
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
