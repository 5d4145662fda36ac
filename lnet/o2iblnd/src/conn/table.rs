//! The operations of a connection: a table of fixed size, whose entries are named by keys that are
//! never valid twice.

use lnet_api::Errno;
use lnet_proto::ib::{Cookie, MessageKind};
use nlx_sync::{SlotKey, Slots};

use super::{ConnError, EndedOp};

/// Identifies an operation on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpKey(SlotKey);

/// Bits of the index in keys and in ids of work requests: a connection has fewer operations.
pub(super) const INDEX_BITS: u32 = 16;

impl OpKey {
    /// Returns the key as a number of 48 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.to_bits(INDEX_BITS)
    }

    /// Returns the key for a number; `None` if no key has this number. Whether the operation exists
    /// is checked by its connection.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<OpKey> {
        if bits >> 48 != 0 {
            return None;
        }
        Some(OpKey(SlotKey::from_bits(bits, INDEX_BITS)))
    }

    /// Returns the key as the cookie that the peer echoes.
    pub(super) const fn cookie(self) -> Cookie {
        Cookie::new(self.bits())
    }

    pub(super) const fn gone(self) -> ConnError {
        ConnError::Gone { key: self.bits() }
    }
}

/// The state of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpState {
    /// Own operation: its first message is queued.
    Queued(MessageKind),
    /// Own operation: the PUT_REQ or GET_REQ is posted, and not answered.
    Asked(MessageKind),
    /// Own operation: the peer has sent PUT_ACK for a PUT.
    Acked,
    /// Operation of the peer: the peer has sent a PUT_REQ or GET_REQ, and waits for an answer.
    Asking(MessageKind),
    /// Operation of the peer: a PUT_ACK is queued.
    Acking,
    /// Operation of the peer: the PUT_ACK is posted, and no PUT_DONE has been received.
    Sinking,
    /// The last message (PUT_NAK, PUT_DONE, GET_DONE) is queued.
    Replying(MessageKind),
    /// No message is left to send or to receive.
    Ending,
}

/// The state of one operation.
#[derive(Debug)]
pub(super) struct OpSlot<T> {
    pub(super) state: OpState,
    /// True if this side began the operation.
    pub(super) own: bool,
    /// Messages of the operation that are queued, or posted and not complete.
    pub(super) sends: u8,
    /// True if any message of the operation has been posted.
    pub(super) was_posted: bool,
    /// True if the receive buffer of a PUT_REQ is posted again.
    pub(super) reposted: bool,
    /// The cookie that the next message to the peer echoes.
    pub(super) peer: Cookie,
    /// The maximum number of bytes that may be transferred.
    pub(super) length: u32,
    /// Work requests of the last message and of the writes before it.
    pub(super) works: u32,
    pub(super) deadline_ns: u64,
    pub(super) outcome: Result<u32, Errno>,
    pub(super) item: Option<T>,
}

#[derive(Debug)]
pub(super) struct ConnOps<T>(Slots<OpSlot<T>>);

impl<T> ConnOps<T> {
    pub(super) fn new(size: u16) -> ConnOps<T> {
        let mut slots = Slots::new(size.into());
        // If memory is short now, the table allocates when an operation is added.
        let _ = slots.reserve(size.into());
        ConnOps(slots)
    }

    /// Returns the size in bytes of a table for `size` operations.
    pub(super) const fn bytes(size: usize) -> usize {
        Slots::<OpSlot<T>>::bytes(size)
    }

    /// Adds an operation; `None` if the table is full.
    pub(super) fn begin(&mut self, state: OpState, own: bool) -> Option<OpKey> {
        self.0.insert(OpSlot::new(state, own)).map(OpKey)
    }

    /// Returns the slot of a live operation.
    pub(super) fn find(&mut self, key: OpKey) -> Option<&mut OpSlot<T>> {
        self.0.get_mut(key.0)
    }

    /// Returns the slot that a cookie of the peer's names, if the operation is in this state.
    pub(super) fn named(
        &mut self,
        kind: MessageKind,
        cookie: Cookie,
        state: OpState,
    ) -> Result<(OpKey, &mut OpSlot<T>), ConnError> {
        let unknown = ConnError::Cookie { kind, cookie };
        let key = OpKey::from_bits(cookie.get()).ok_or(unknown)?;
        let slot = self.find(key).filter(|slot| slot.state == state).ok_or(unknown)?;
        Ok((key, slot))
    }

    /// Removes an operation and returns its item.
    pub(super) fn free(&mut self, key: OpKey) -> Option<T> {
        self.0.remove(key.0)?.item
    }

    /// Returns the live operations.
    pub(super) fn live(&self) -> impl Iterator<Item = &OpSlot<T>> {
        self.0.iter().map(|(_, slot)| slot)
    }

    /// Returns the live operations, mutably.
    pub(super) fn live_mut(&mut self) -> impl Iterator<Item = &mut OpSlot<T>> {
        self.0.iter_mut().map(|(_, slot)| slot)
    }

    /// Returns all items, each with the error with which its operation ends.
    pub(super) fn into_items(mut self) -> impl Iterator<Item = EndedOp<T>> {
        std::iter::from_fn(move || self.0.pop()).filter_map(|(_, slot)| {
            let errno = if slot.was_posted { Errno::EIO } else { Errno::ECONNABORTED };
            slot.item.map(|item| EndedOp { item, outcome: Err(errno) })
        })
    }
}

impl<T> OpSlot<T> {
    /// Returns whether this is an own request of this kind that waits for its answer, and has not
    /// been abandoned.
    pub(super) fn is_unanswered(&self, kind: MessageKind) -> bool {
        self.state == OpState::Asked(kind) && self.sends == 0 && self.item.is_some()
    }

    fn new(state: OpState, own: bool) -> OpSlot<T> {
        OpSlot {
            state,
            own,
            sends: 0,
            was_posted: false,
            reposted: true,
            peer: Cookie([0; 8]),
            length: 0,
            works: 1,
            deadline_ns: u64::MAX,
            outcome: Ok(0),
            item: None,
        }
    }
}
