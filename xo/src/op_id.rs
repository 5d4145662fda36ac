//! The names of operations, and tables of what they name: [`nlx_sync::Slots`] with one or the other mark.

use std::fmt;

use nlx_sync::SlotKey;

/// Names an operation of a transfer machine. No two operations that are in flight at a time have the same, and one that is
/// over is not taken for another (until 2³² more have used its slot).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(u64);

impl OpId {
    pub(crate) fn from_cookie(cookie: u64) -> OpId {
        OpId(cookie)
    }

    pub(crate) fn cookie(self) -> u64 {
        self.0
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Whether it names a large transfer.
    pub(crate) fn is_large(self) -> bool {
        self.slot() & LARGE != 0
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.0 >> 32)
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpId({self})")
    }
}

/// In the slot of a large transfer's name: far above the number of operations there can be.
const LARGE: u32 = 1 << 31;

/// What [`OpId`]s name.
pub(crate) struct Slots<T> {
    slots: nlx_sync::Slots<T>,
    /// Is in the names of all.
    mark: u64,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { slots: nlx_sync::Slots::new(LARGE as usize), mark: 0 }
    }
}

impl<T> Slots<T> {
    /// Of what [`OpId::is_large`].
    pub(crate) fn large() -> Slots<T> {
        Slots { mark: LARGE.into(), ..Slots::default() }
    }

    /// Enters what is made for the name it gets.
    pub(crate) fn enter(&mut self, make: impl FnOnce(OpId) -> T) -> (OpId, &mut T) {
        let key = self.slots.next_key();
        let id = self.id_of(key);
        self.slots.insert(make(id));
        (id, &mut self.slots[key.index])
    }

    pub(crate) fn find(&mut self, id: OpId) -> Option<&mut T> {
        self.slots.get_mut(self.key_of(id))
    }

    pub(crate) fn leave(&mut self, id: OpId) -> Option<T> {
        self.slots.remove(self.key_of(id))
    }

    /// What is in this slot.
    pub(crate) fn in_slot(&self, slot: u32) -> Option<OpId> {
        self.slots.at(slot).map(|_| self.id_of(self.slots.key(slot)))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (OpId, &mut T)> {
        let mark = self.mark;
        self.slots.iter_mut().map(move |(key, content)| (OpId(key.to_bits(32) | mark), content))
    }

    fn id_of(&self, key: SlotKey) -> OpId {
        OpId(key.to_bits(32) | self.mark)
    }

    fn key_of(&self, id: OpId) -> SlotKey {
        // A name of the other kind has a slot that is not there.
        SlotKey::from_bits(id.0 ^ self.mark, 32)
    }
}
