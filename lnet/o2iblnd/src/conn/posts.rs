//! The sends that are posted and have not completed.

use super::ConnError;
use super::table::Key;

/// Names a posted send; the id of its work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendId {
    place: u16,
    generation: u32,
}

impl SendId {
    /// The id as a number, of 48 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        (self.generation as u64) << 16 | self.place as u64
    }

    /// Which of the sends that may be posted at a time this is, from 0: the place of its transmit buffer.
    #[must_use]
    pub const fn place(self) -> usize {
        self.place as usize
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
    slots: Vec<(u32, Option<Post>)>,
    free: Vec<u16>,
    /// Work requests that the send queue has room for.
    room: u32,
    room_max: u32,
}

impl Posts {
    pub(super) fn new(sends: u16, room_max: u32) -> Posts {
        let sends = sends.max(1);
        let room_max = room_max.max(1);
        Posts {
            slots: vec![(0, None); sends.into()],
            free: (0..sends).rev().collect(),
            room: room_max,
            room_max,
        }
    }

    /// The bytes of one for so many sends.
    pub(super) const fn bytes(sends: usize) -> usize {
        sends * (size_of::<(u32, Option<Post>)>() + size_of::<u16>())
    }

    /// Whether a chain of so many work requests can be posted now.
    pub(super) fn fits(&self, works: u32) -> bool {
        !self.free.is_empty() && works <= self.room
    }

    /// The longest chain that can ever be posted.
    pub(super) fn room_max(&self) -> u32 {
        self.room_max
    }

    /// Sends that are posted.
    pub(super) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Notes a send that fits.
    pub(super) fn post(&mut self, post: Post) -> Option<SendId> {
        let place = self.free.pop()?;
        let (generation, slot) = &mut self.slots[usize::from(place)];
        *slot = Some(post);
        self.room = self.room.saturating_sub(post.works);
        Some(SendId { place, generation: *generation })
    }

    /// Forgets a send that has completed.
    pub(super) fn completed(&mut self, id: u64) -> Result<Post, ConnError> {
        let unknown = ConnError::UnknownSend { id };
        let place = id as u16;
        let (generation, slot) = self.slots.get_mut(usize::from(place)).ok_or(unknown)?;
        if id >> 16 != u64::from(*generation) {
            return Err(unknown);
        }
        let post = slot.take().ok_or(unknown)?;
        *generation = generation.wrapping_add(1);
        self.free.push(place);
        self.room = (self.room + post.works).min(self.room_max);
        Ok(post)
    }
}
