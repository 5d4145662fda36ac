//! Encoded messages of an outbox, and the batch of them that is being written.

use std::collections::VecDeque;

use lnet_api::{Errno, Tx, TxToken};
use lnet_proto::Header;
use lnet_proto::sock::{Decoder, Prefix, Version};
use lnet_region::{Part, ReadVec};

use crate::sys::Gather;

/// A message in an outbox: everything before the payload encoded, the payload leased.
pub(crate) struct OutboxMessage {
    frame: [u8; Decoder::FRAME_MAX],
    frame_len: usize,
    payload: Option<ReadVec>,
    /// The engine's token, finalised when the message has left; `None` for a NOOP.
    pub(crate) token: Option<TxToken>,
    pub(crate) deadline_ns: u64,
}

impl OutboxMessage {
    /// Encodes an LNet message for a connection of this version. Takes the payload out of `tx`.
    ///
    /// # Errors
    /// EINVAL if the version's header has no room for a NID, or the header's payload length differs
    /// from the payload's.
    #[inline]
    pub(crate) fn message(tx: &mut Tx, version: Version) -> Result<OutboxMessage, Errno> {
        let payload_len = tx.payload.as_ref().map_or(0, ReadVec::len);
        if payload_len != tx.header.payload_length as usize {
            return Err(Errno::EINVAL);
        }
        let mut frame = [0; Decoder::FRAME_MAX];
        let (prefix, rest) = split(&mut frame);
        Prefix::LNET.emit(prefix);
        let emitted = match version {
            Version::V2 | Version::V3 => rest.first_chunk_mut().map(|header| tx.header.emit(header)),
            Version::V4 => rest.first_chunk_mut().map(|header| tx.header.emit_large(header)),
        };
        if !matches!(emitted, Some(Ok(()))) {
            return Err(Errno::EINVAL);
        }
        let frame_len = Prefix::LEN + version.header_len();
        let (payload, token) = (tx.payload.take().filter(|payload| !payload.is_empty()), Some(tx.token));
        Ok(OutboxMessage { frame, frame_len, payload, token, deadline_ns: tx.deadline_ns })
    }

    /// Creates a NOOP: a message of the socket protocol alone.
    pub(crate) fn noop(prefix: &Prefix) -> OutboxMessage {
        let mut frame = [0; Decoder::FRAME_MAX];
        prefix.emit(split(&mut frame).0);
        OutboxMessage { frame, frame_len: Prefix::LEN, payload: None, token: None, deadline_ns: u64::MAX }
    }

    /// Returns the number of bytes on the wire.
    pub(crate) fn len(&self) -> usize {
        self.frame_len + self.payload.as_ref().map_or(0, ReadVec::len)
    }

    /// Returns whether the message's deadline has passed. A NOOP has none.
    pub(crate) fn is_overdue(&self, now_ns: u64) -> bool {
        self.token.is_some() && self.deadline_ns <= now_ns
    }

    /// Adds the bytes from `skip` on to a gather list, as far as it has room.
    fn gather<'a>(&'a self, skip: usize, pieces: &mut Gather<'a>) {
        if skip < self.frame_len {
            pieces.push(Part::new(&self.frame[skip..self.frame_len]));
        }
        if let Some(payload) = &self.payload {
            let room = pieces.inline_size() - pieces.len();
            payload.gather(skip.saturating_sub(self.frame_len), pieces, room);
        }
    }
}

/// Splits a frame into the prefix and the header.
fn split(frame: &mut [u8; Decoder::FRAME_MAX]) -> (&mut [u8; Prefix::LEN], &mut [u8]) {
    // Unreachable, because the array is longer than a prefix.
    frame.split_first_chunk_mut().unwrap_or_else(|| unreachable!("a frame begins with a prefix"))
}

/// Returns the size in bytes of an LNet message of this payload on a connection of this version.
pub(crate) fn wire_len(header: &Header, version: Version) -> usize {
    Prefix::LEN + version.header_len() + header.payload_length as usize
}

/// Removes and returns the messages that are `wanted`, except the `first` ones.
pub(crate) fn take_from(
    messages: &mut VecDeque<OutboxMessage>,
    first: usize,
    mut wanted: impl FnMut(&OutboxMessage) -> bool,
) -> Vec<OutboxMessage> {
    let (mut at, mut taken) = (first, Vec::new());
    while let Some(message) = messages.get(at) {
        if wanted(message) {
            taken.extend(messages.remove(at));
        } else {
            at += 1;
        }
    }
    taken
}

/// Messages being written; the first may be partly sent.
#[derive(Default)]
pub(crate) struct WriteBatch {
    messages: VecDeque<OutboxMessage>,
    /// Bytes of the first message already sent.
    sent: usize,
}

impl WriteBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Puts a message before all others. No message may be partly sent.
    pub(crate) fn push_front(&mut self, message: OutboxMessage) {
        debug_assert_eq!(self.sent, 0, "a message is put before one that is partly sent");
        self.messages.push_front(message);
    }

    /// Exchanges the messages with those of a queue. No message may be partly sent.
    pub(crate) fn swap(&mut self, queue: &mut VecDeque<OutboxMessage>) {
        debug_assert_eq!(self.sent, 0, "a message that is partly sent goes back to the queue");
        std::mem::swap(&mut self.messages, queue);
    }

    /// Adds the bytes for one system call to an empty gather list. Returns their number. The list
    /// lives in the caller: it is 8 KiB long, too long to return for every message.
    pub(crate) fn gather<'a>(&'a self, pieces: &mut Gather<'a>) -> usize {
        let mut skip = self.sent;
        for message in &self.messages {
            if pieces.len() >= pieces.inline_size() {
                break;
            }
            message.gather(skip, pieces);
            skip = 0;
        }
        pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Records that `count` more bytes are sent, and calls `complete` for each message that is sent
    /// completely, after ending its lease.
    pub(crate) fn advance(&mut self, count: usize, mut complete: impl FnMut(TxToken)) {
        self.sent += count;
        let mut gone = 0;
        for message in &mut self.messages {
            let length = message.len();
            if length > self.sent {
                break;
            }
            self.sent -= length;
            gone += 1;
            message.payload = None;
            message.token.map(&mut complete);
        }
        // Drained in place, because a message is several hundred bytes long.
        self.messages.drain(..gone);
    }

    /// Returns the message that is partly sent.
    pub(crate) fn begun(&self) -> Option<&OutboxMessage> {
        self.messages.front().filter(|_| self.sent > 0)
    }

    /// Removes and returns the `wanted` messages of which nothing is sent yet.
    pub(crate) fn take_unbegun(&mut self, wanted: impl FnMut(&OutboxMessage) -> bool) -> Vec<OutboxMessage> {
        take_from(&mut self.messages, usize::from(self.sent > 0), wanted)
    }

    /// Removes and returns all messages; none is partly sent any more.
    pub(crate) fn clear(&mut self) -> VecDeque<OutboxMessage> {
        self.sent = 0;
        std::mem::take(&mut self.messages)
    }
}
