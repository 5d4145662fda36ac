//! Operations of a transfer machine. Plain values: a ring in shared memory can carry them.

use crate::Address;
use crate::{Descriptor, Queue};

/// Handle of a registered buffer of a domain. Opaque; a handle of a removed buffer is detected and
/// refused with ENOENT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferHandle(pub u64);

/// An operation on a registered buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The buffer. It must have no other operation in flight.
    pub buffer: BufferHandle,
    /// Returned in each event of the operation. [`crate::CoreTm::cancel`] takes it, so that a late
    /// cancel does not hit the next operation of the buffer.
    pub cookie: u64,
    /// Kind and parameters.
    pub kind: OperationKind,
}

/// Kind of an operation. Lengths are in bytes, count from the start of the buffer, and are at least
/// 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Receive unsolicited messages, one after the other (S-403).
    Receive {
        /// The operation ends once less room than this is left; at most the length of the buffer.
        /// Longer messages do not match it.
        min_receive_size: u64,
        /// The operation ends after this number of messages, 1 or more.
        max_messages: u32,
    },
    /// Send a message.
    Send {
        /// Bytes to send.
        length: u64,
        /// Receiver.
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
        /// Descriptor of the peer's buffer.
        descriptor: Descriptor,
    },
    /// Write into a peer's passive-receive buffer.
    ActiveSend {
        /// Descriptor of the peer's buffer.
        descriptor: Descriptor,
        /// Bytes to write.
        length: u64,
    },
}

impl OperationKind {
    /// Returns the kind as one of Motr's queue types.
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

    /// Returns the largest number of events that it can produce: the event slots to reserve before
    /// it starts (S-407).
    #[must_use]
    pub const fn events_max(&self) -> u32 {
        match self {
            OperationKind::Receive { max_messages, .. } => *max_messages,
            _ => 1,
        }
    }
}

/// Result of a started operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Of a passive operation: the descriptor by which the peer reaches the buffer.
    pub descriptor: Option<Descriptor>,
}
