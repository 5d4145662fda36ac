//! The sends that are posted and have not completed.

use nlx_sync::{SlotKey, Slots};

use super::ConnError;
use super::table::{INDEX_BITS, OpKey};

/// Identifies a posted send; its bits are the id of the work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendId(SlotKey);

impl SendId {
    /// Returns the id as a number of 48 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.to_bits(INDEX_BITS)
    }

    /// Returns the index of the send among those that may be posted at a time, from 0: the index of
    /// its transmit buffer.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0.index as usize
    }
}

/// A send that is posted and not yet completed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Post {
    /// The operation that the send belongs to; `None` for a NOOP.
    pub(super) key: Option<OpKey>,
    /// The number of work requests: the send and the writes before it.
    pub(super) works: u32,
}

/// A table of the posted sends, of fixed capacity.
#[derive(Debug)]
pub(super) struct Posts {
    slots: Slots<Post>,
    /// Free work requests of the send queue.
    room: u32,
    room_max: u32,
}

impl Posts {
    pub(super) fn new(sends: u16, room_max: u32) -> Posts {
        let sends = sends.max(1).into();
        let room_max = room_max.max(1);
        let mut slots = Slots::new(sends);
        // If memory is short now, the table allocates when a send is added.
        let _ = slots.reserve(sends);
        Posts { slots, room: room_max, room_max }
    }

    /// Returns the size in bytes of a table for `sends` sends.
    pub(super) const fn bytes(sends: usize) -> usize {
        Slots::<Post>::bytes(sends)
    }

    /// Returns whether a chain of `works` work requests can be posted now.
    pub(super) fn fits(&self, works: u32) -> bool {
        !self.slots.is_full() && works <= self.room
    }

    /// Returns the length of the longest chain that can ever be posted.
    pub(super) fn room_max(&self) -> u32 {
        self.room_max
    }

    /// Returns the number of posted sends.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Adds a send; `None` if the table is full.
    pub(super) fn post(&mut self, post: Post) -> Option<SendId> {
        let key = self.slots.insert(post)?;
        self.room = self.room.saturating_sub(post.works);
        Some(SendId(key))
    }

    /// Removes and returns a send that has completed.
    pub(super) fn completed(&mut self, id: u64) -> Result<Post, ConnError> {
        let key = SlotKey::from_bits(id, INDEX_BITS);
        let post = self.slots.remove(key).ok_or(ConnError::UnknownSend { id })?;
        self.room = (self.room + post.works).min(self.room_max);
        Ok(post)
    }
}
