//! What a transfer machine is asked to do. Plain values: a ring in shared memory can carry them.

use crate::Address;
use crate::{Descriptor, Queue};

/// Names a registered buffer of a domain. Opaque; one whose buffer is gone is recognised and answered with ENOENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferHandle(pub u64);

/// An operation on a registered buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The buffer; it has no other operation at the time.
    pub buffer: BufferHandle,
    /// Comes back in each event of the operation. [`crate::CoreTm::cancel`] names it, so that a late cancel does not hit
    /// the next operation of the buffer.
    pub cookie: u64,
    /// What to do.
    pub kind: OperationKind,
}

/// What to do with a buffer. Lengths are in bytes, count from the start of the buffer, and are at least 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Take unsolicited messages, one after the other (S-403).
    Receive {
        /// The buffer is given up once less room than this is left; at most the whole buffer. Longer messages do not match
        /// it.
        min_receive_size: u64,
        /// It is given up after this many messages, 1 or more.
        max_messages: u32,
    },
    /// Send a message.
    Send {
        /// Bytes to send.
        length: u64,
        /// To whom.
        to: Address,
    },
    /// Let a peer write into the buffer, once.
    PassiveReceive,
    /// Let a peer read from the buffer, once.
    PassiveSend {
        /// Bytes the peer will read.
        length: u64,
    },
    /// Read a peer's passive-send buffer.
    ActiveReceive {
        /// Which one.
        descriptor: Descriptor,
    },
    /// Write into a peer's passive-receive buffer.
    ActiveSend {
        /// Which one.
        descriptor: Descriptor,
        /// Bytes to write.
        length: u64,
    },
}

impl OperationKind {
    /// The queue it belongs to.
    #[must_use]
    pub const fn queue(&self) -> Queue {
        match self {
            OperationKind::Receive { .. } => Queue::MessageReceive,
            OperationKind::Send { .. } => Queue::MessageSend,
            OperationKind::PassiveReceive => Queue::PassiveBulkReceive,
            OperationKind::PassiveSend { .. } => Queue::PassiveBulkSend,
            OperationKind::ActiveReceive { .. } => Queue::ActiveBulkReceive,
            OperationKind::ActiveSend { .. } => Queue::ActiveBulkSend,
        }
    }

    /// The most events it can give: the event slots to reserve before it starts (S-407).
    #[must_use]
    pub const fn events_max(&self) -> u32 {
        match self {
            OperationKind::Receive { max_messages, .. } => *max_messages,
            _ => 1,
        }
    }
}

/// An operation has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// For a passive operation, what the peer needs to reach the buffer.
    pub descriptor: Option<Descriptor>,
}
