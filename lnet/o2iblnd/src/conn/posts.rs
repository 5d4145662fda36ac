//! The sends that are posted and have not completed.

use nlx_sync::{SlotKey, Slots};

use super::ConnError;
use super::table::{Key, PLACE_BITS};

/// Names a posted send; the id of its work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendId(SlotKey);

impl SendId {
    /// The id as a number, of 48 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.to_bits(PLACE_BITS)
    }

    /// Which of the sends that may be posted at a time this is, from 0: the place of its transmit buffer.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0.index as usize
    }
}

/// What is known of a posted send.
#[derive(Debug, Clone, Copy)]
pub(super) struct Post {
    /// The operation it belongs to; none for a NOOP.
    pub(super) key: Option<Key>,
    /// Work requests: its own and those of the writes before it.
    pub(super) works: u32,
}

/// A table of as many posted sends as there may be.
#[derive(Debug)]
pub(super) struct Posts {
    slots: Slots<Post>,
    /// Work requests that the send queue has room for.
    room: u32,
    room_max: u32,
}

impl Posts {
    pub(super) fn new(sends: u16, room_max: u32) -> Posts {
        let sends = sends.max(1).into();
        let room_max = room_max.max(1);
        let mut slots = Slots::new(sends);
        // What there is no memory for now is tried again when it is needed.
        let _ = slots.reserve(sends);
        Posts { slots, room: room_max, room_max }
    }

    /// The bytes of one for so many sends.
    pub(super) const fn bytes(sends: usize) -> usize {
        Slots::<Post>::bytes(sends)
    }

    /// Whether a chain of so many work requests can be posted now.
    pub(super) fn fits(&self, works: u32) -> bool {
        !self.slots.is_full() && works <= self.room
    }

    /// The longest chain that can ever be posted.
    pub(super) fn room_max(&self) -> u32 {
        self.room_max
    }

    /// Sends that are posted.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Notes a send that fits.
    pub(super) fn post(&mut self, post: Post) -> Option<SendId> {
        let key = self.slots.insert(post)?;
        self.room = self.room.saturating_sub(post.works);
        Some(SendId(key))
    }

    /// Forgets a send that has completed.
    pub(super) fn completed(&mut self, id: u64) -> Result<Post, ConnError> {
        let key = SlotKey::from_bits(id, PLACE_BITS);
        let post = self.slots.remove(key).ok_or(ConnError::UnknownSend { id })?;
        self.room = (self.room + post.works).min(self.room_max);
        Ok(post)
    }
}
