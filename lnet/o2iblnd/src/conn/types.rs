use lnet_api::Errno;
use lnet_proto::ib::{Completion, Cookie};

use super::{Key, SendId};

/// What holds for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The negotiated queue depth, 1 to 255 (0 counts as 1): 2·depth + 2 receive buffers are posted before it begins.
    pub depth: u8,
    /// Credits owed from which on they are returned by a NOOP: `depth * peer_credits_hiw / peer_credits`. They are at
    /// depth/2 (1 if that is 0) at the latest, whatever is given here: no peer then waits for the rest (lnet-wire 36).
    pub high_water: u16,
    /// Sends posted at a time, hence the number of transmit buffers (`concurrent_sends`); 0 counts as 1.
    pub sends: u16,
    /// Work requests of the send queue.
    pub works: u32,
    /// Own messages that are queued or under way at a time: [`super::Conn::queue`] takes no more.
    pub messages: u16,
    /// After so long without a message one is sent; `u64::MAX` for never.
    pub keepalive_ns: u64,
}

impl Limits {
    /// Operations that there may be at a time, of both sides.
    pub(super) fn operations(&self) -> u16 {
        // Of the peer's, depth await an answer and depth a PUT_DONE; the answers to others may still be posted.
        let foreign = 2 * u16::from(self.depth.max(1)) + self.sends.max(1);
        foreign.saturating_add(self.messages)
    }
}

/// A message that this side begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Own {
    /// One message does (lnet-wire 35.1).
    Immediate,
    /// A PUT or REPLY of so many bytes, to be announced by PUT_REQ (35.2).
    Put {
        /// The whole payload.
        length: u32,
    },
    /// A GET into so many bytes of memory, which a GET_REQ describes (35.3).
    Get {
        /// The whole descriptor.
        length: u32,
    },
}

/// A message to be emitted and posted now. It counts as posted: if it cannot be, the connection is at its end.
#[derive(Debug)]
pub struct Emit<'a, T> {
    /// The id for its work request, which must be signalled.
    pub id: SendId,
    /// For its head.
    pub credits: u8,
    /// What it says.
    pub what: What,
    /// What the driver keeps with the operation: header, payload, descriptor, writes.
    pub item: Option<&'a mut T>,
}

/// What a message says, but for what only the driver knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// NOOP.
    Noop,
    /// IMMEDIATE: header and payload are the item's.
    Immediate,
    /// PUT_REQ: the header is the item's.
    PutReq {
        /// What the peer is to echo.
        cookie: Cookie,
    },
    /// PUT_NAK.
    PutNak(Completion),
    /// PUT_ACK: the descriptor is the item's.
    PutAck {
        /// The peer's cookie.
        source: Cookie,
        /// What the peer is to echo.
        sink: Cookie,
    },
    /// PUT_DONE, posted in one chain behind the writes, if its status is not negative.
    PutDone(Completion),
    /// GET_REQ: header and descriptor are the item's.
    GetReq {
        /// What the peer is to echo.
        cookie: Cookie,
    },
    /// GET_DONE, posted in one chain behind the writes, if its status is not negative.
    GetDone(Completion),
}

/// What becomes possible when the buffer of a received message is posted again: to be given to [`super::Conn::reposted`] then.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Receipt {
    /// Nothing.
    Plain,
    /// The peer has a credit back (IMMEDIATE, GET_REQ, PUT_DONE).
    Credit,
    /// This side may begin one more transfer (PUT_ACK, PUT_NAK, GET_DONE). The reference counts it on receipt; but only when
    /// the buffer is there again can the peer's next answer not come too early.
    Answer,
    /// The peer has a credit back if its PUT_REQ is refused.
    PutReq(Key),
}

/// What a received message means.
#[derive(Debug)]
#[must_use]
pub enum Received<T> {
    /// Nothing to do.
    Nothing,
    /// An LNet message, whole.
    Immediate,
    /// The peer announces a payload: [`super::Conn::ack`] or [`super::Conn::nak`] it, now or later.
    PutReq(Key),
    /// The peer asks for data: write them and say so by [`super::Conn::done`], now or later.
    GetReq(Key),
    /// The payload of an own PUT is wanted, where the PUT_ACK's descriptor says: prepare the writes ([`super::Conn::item`]), then
    /// [`super::Conn::done`].
    Wanted {
        /// The PUT.
        put: Key,
        /// Bytes to write, from the start of the payload: the sum of the descriptor.
        length: u32,
    },
    /// An operation has ended.
    Ended(Ended<T>),
}

/// An operation that is over.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended<T> {
    /// What the driver kept with it.
    pub item: T,
    /// Bytes transferred (0 for IMMEDIATE and for a PUT that was dropped), or why not.
    pub outcome: Result<u32, Errno>,
}

/// How far an operation is that is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// It waits for credits, or behind others: the peer does not post its buffers again.
    Queued,
    /// A send has not completed: the network, or the peer's device.
    Posted,
    /// The peer does not answer.
    Unanswered,
    /// This side has not answered.
    Unprepared,
}

/// What there is to see of a connection, for people and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Messages that may be sent.
    pub credits: u16,
    /// Transfers that may be begun.
    pub reserved: u16,
    /// Credits owed to the peer.
    pub outstanding: u16,
    /// Messages that are queued.
    pub queued: usize,
    /// Sends that are posted.
    pub posted: usize,
    /// Operations under way, or queued, of both sides.
    pub operations: usize,
    /// Those of them that are own.
    pub own: usize,
}
