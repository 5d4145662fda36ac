//! The operations of a connection: a table of fixed size, whose places are named by keys that are never valid twice.

use lnet_api::Errno;
use lnet_proto::ib::{Cookie, MessageKind};

use super::{ConnError, Ended};

/// Names an operation on a connection: a place in its table, and the how-manieth operation in this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    place: u16,
    generation: u32,
}

impl Key {
    /// The key as a number, of 48 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        (self.generation as u64) << 16 | self.place as u64
    }

    /// The key of a number. Whether it names anything, its connection knows.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Key> {
        if bits >> 48 != 0 {
            return None;
        }
        Some(Key { place: bits as u16, generation: (bits >> 16) as u32 })
    }

    /// What the peer is to echo.
    pub(super) const fn cookie(self) -> Cookie {
        Cookie::new(self.bits())
    }

    pub(super) const fn gone(self) -> ConnError {
        ConnError::Gone { key: self.bits() }
    }
}

/// How far an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// Own: its first message is queued.
    Queued(MessageKind),
    /// Own: the PUT_REQ or GET_REQ is posted, and not answered.
    Asked(MessageKind),
    /// Own: the peer has said where the payload of a PUT shall go.
    Wanted,
    /// The peer's: it has sent a PUT_REQ or GET_REQ, and awaits an answer.
    Asking(MessageKind),
    /// The peer's: a PUT_ACK is queued.
    Acking,
    /// The peer's: the PUT_ACK is posted, and the PUT_DONE has not come.
    Sinking,
    /// The last message (PUT_NAK, PUT_DONE, GET_DONE) is queued.
    Replying(MessageKind),
    /// Nothing more is to be sent or to come.
    Ending,
}

/// One operation.
#[derive(Debug)]
pub(super) struct Slot<T> {
    generation: u32,
    pub(super) state: State,
    /// Whether this side has begun it.
    pub(super) own: bool,
    /// Messages of it that are queued, or posted and not complete.
    pub(super) sends: u8,
    /// Whether any message of it has been posted.
    pub(super) left: bool,
    /// Whether the buffer of a PUT_REQ is posted again.
    pub(super) reposted: bool,
    /// What the next message to the peer echoes.
    pub(super) peer: Cookie,
    /// The most bytes that may be transferred.
    pub(super) length: u32,
    /// Work requests of the last message and of the writes before it.
    pub(super) works: u32,
    pub(super) deadline_ns: u64,
    pub(super) outcome: Result<u32, Errno>,
    pub(super) item: Option<T>,
}

#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u16>,
}

impl<T> Table<T> {
    pub(super) fn new(size: u16) -> Table<T> {
        Table { slots: (0..size).map(|_| Slot::free(0)).collect(), free: (0..size).rev().collect() }
    }

    /// The bytes of one of this size.
    pub(super) const fn bytes(size: usize) -> usize {
        size * (size_of::<Slot<T>>() + size_of::<u16>())
    }

    /// Begins an operation; `None` if the table is full.
    pub(super) fn begin(&mut self, state: State, own: bool) -> Option<Key> {
        let place = self.free.pop()?;
        let slot = &mut self.slots[usize::from(place)];
        slot.state = state;
        slot.own = own;
        Some(Key { place, generation: slot.generation })
    }

    /// The slot of a live operation.
    pub(super) fn find(&mut self, key: Key) -> Option<&mut Slot<T>> {
        let slot = self.slots.get_mut(usize::from(key.place))?;
        (slot.generation == key.generation && slot.state != State::Free).then_some(slot)
    }

    /// The slot that a peer's message names, if it is in this state.
    pub(super) fn named(
        &mut self,
        kind: MessageKind,
        cookie: Cookie,
        state: State,
    ) -> Result<(Key, &mut Slot<T>), ConnError> {
        let unknown = ConnError::Cookie { kind, cookie };
        let key = Key::from_bits(cookie.get()).ok_or(unknown)?;
        let slot = self.find(key).filter(|slot| slot.state == state).ok_or(unknown)?;
        Ok((key, slot))
    }

    /// Makes room; gives what the driver kept with the operation.
    pub(super) fn free(&mut self, key: Key) -> Option<T> {
        let slot = self.find(key)?;
        let item = slot.item.take();
        *slot = Slot::free(slot.generation.wrapping_add(1));
        self.free.push(key.place);
        item
    }

    /// The live operations.
    pub(super) fn live(&self) -> impl Iterator<Item = &Slot<T>> {
        self.slots.iter().filter(|slot| slot.state != State::Free)
    }

    /// All that the driver kept, with the reason for which each operation ends.
    pub(super) fn into_items(self) -> impl Iterator<Item = Ended<T>> {
        self.slots.into_iter().filter_map(|slot| {
            let errno = if slot.left { Errno::EIO } else { Errno::ECONNABORTED };
            slot.item.map(|item| Ended { item, outcome: Err(errno) })
        })
    }
}

impl<T> Slot<T> {
    fn free(generation: u32) -> Slot<T> {
        Slot {
            generation,
            state: State::Free,
            own: false,
            sends: 0,
            left: false,
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
