//! The types with which a driver calls a connection's state machine.

use lnet_api::Errno;
use lnet_proto::ib::{Cookie, TransferStatus};

use super::{OpKey, SendId};

/// The limits of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The negotiated queue depth, 1 to 255 (0 counts as 1): 2·depth + 2 receive buffers are posted
    /// before the connection is used.
    pub depth: u8,
    /// The number of owed credits at which a NOOP returns them: `depth * peer_credits_hiw /
    /// peer_credits`. The value in effect is at most depth/2 (1 if that is 0), so that no peer
    /// waits for the rest (lnet-wire 36).
    pub high_water: u16,
    /// Sends posted at a time, hence the number of transmit buffers (`concurrent_sends`); 0 counts
    /// as 1.
    pub sends: u16,
    /// Work requests of the send queue.
    pub works: u32,
    /// Own messages that may be queued or under way at a time: [`super::Conn::queue`] takes no
    /// more.
    pub messages: u16,
    /// Time without a message after which a NOOP is sent, in nanoseconds; `u64::MAX` for never.
    pub keepalive_ns: u64,
}

impl Limits {
    /// Returns the maximum number of operations at a time, of both sides.
    pub(super) fn operations(&self) -> u16 {
        // Of the peer's operations, `depth` wait for an answer and `depth` for a PUT_DONE; the
        // answers to others may still be posted.
        let foreign = 2 * u16::from(self.depth.max(1)) + self.sends.max(1);
        foreign.saturating_add(self.messages)
    }
}

/// The first message of an own operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// A whole message (lnet-wire 35.1).
    Immediate,
    /// A PUT or REPLY that PUT_REQ announces (35.2).
    Put {
        /// Length of the whole payload in bytes.
        length: u32,
    },
    /// A GET into memory that the GET_REQ describes (35.3).
    Get {
        /// Length of the whole descriptor in bytes.
        length: u32,
    },
}

/// A message that the driver must emit and post now. It counts as posted: if posting fails, the
/// connection must be closed.
#[derive(Debug)]
pub struct Emit<'a, T> {
    /// The id for the message's work request, which must be signalled.
    pub id: SendId,
    /// The credits to return in the message's head.
    pub credits: u8,
    /// The message's kind and fields.
    pub kind: EmitKind,
    /// The driver's item of the operation: header, payload, descriptor, writes.
    pub item: Option<&'a mut T>,
}

/// The kind of a message to emit, and those of its fields that the driver does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitKind {
    /// A NOOP.
    Noop,
    /// An IMMEDIATE; the item has header and payload.
    Immediate,
    /// A PUT_REQ; the item has the header.
    PutReq {
        /// The cookie that the peer echoes.
        cookie: Cookie,
    },
    /// A PUT_NAK.
    PutNak(TransferStatus),
    /// A PUT_ACK; the item has the descriptor.
    PutAck {
        /// The peer's cookie, from its PUT_REQ.
        source: Cookie,
        /// The cookie that the peer echoes.
        sink: Cookie,
    },
    /// A PUT_DONE. If its status is not negative, it is posted in one chain behind the writes.
    PutDone(TransferStatus),
    /// A GET_REQ; the item has header and descriptor.
    GetReq {
        /// The cookie that the peer echoes.
        cookie: Cookie,
    },
    /// A GET_DONE. If its status is not negative, it is posted in one chain behind the writes.
    GetDone(TransferStatus),
}

/// The effect of posting the buffer of a received message again, to be passed to
/// [`super::Conn::reposted`] then.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Receipt {
    /// Posting the buffer again has no effect.
    Plain,
    /// The peer gets a credit back (IMMEDIATE, GET_REQ, PUT_DONE).
    Credit,
    /// This side may begin one more transfer (PUT_ACK, PUT_NAK, GET_DONE). The kernel counts the
    /// transfer on receipt of the answer. Here it counts only once the buffer is posted again: only
    /// then is there certainly a buffer for the peer's next answer.
    Answer,
    /// The peer gets a credit back if its PUT_REQ is refused.
    PutReq(OpKey),
}

/// The meaning of a received message.
#[derive(Debug)]
#[must_use]
pub enum ReceivedMessage<T> {
    /// The message needs no action.
    Nothing,
    /// A whole LNet message.
    Immediate,
    /// The peer announces a payload: call [`super::Conn::ack`] or [`super::Conn::nak`], now or
    /// later.
    PutReq(OpKey),
    /// The peer requests data: write them and call [`super::Conn::done`], now or later.
    GetReq(OpKey),
    /// The peer requests the payload of an own PUT, at the addresses in the PUT_ACK's descriptor:
    /// prepare the writes ([`super::Conn::item`]), then call [`super::Conn::done`].
    PutAck {
        /// The operation of the PUT.
        put: OpKey,
        /// Bytes to write, from the start of the payload: the sum of the descriptor's fragments.
        length: u32,
    },
    /// An operation has ended.
    Ended(EndedOp<T>),
}

/// The end of an operation: its item goes back to the driver.
#[derive(Debug, PartialEq, Eq)]
pub struct EndedOp<T> {
    /// The driver's item of the operation.
    pub item: T,
    /// Bytes transferred (0 for IMMEDIATE and for a PUT that was dropped), or the error.
    pub outcome: Result<u32, Errno>,
}

/// The state of an overdue operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// The operation waits for credits, or behind other messages: the peer does not post its
    /// buffers again.
    Queued,
    /// A send has not completed, because of the network or the peer's device.
    Posted,
    /// The peer does not answer.
    Unanswered,
    /// The answer of this side is due.
    Unprepared,
}

/// The counts of a connection, for statistics and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnCounts {
    /// Messages that this side may send.
    pub credits: u16,
    /// Transfers that this side may begin.
    pub reserved: u16,
    /// Credits owed to the peer.
    pub outstanding: u16,
    /// Messages that are queued.
    pub queued: usize,
    /// Sends that are posted and have not completed.
    pub posted: usize,
    /// Operations under way or queued, of both sides.
    pub operations: usize,
    /// Operations that this side began.
    pub own: usize,
}
