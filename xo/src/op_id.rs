//! Ids of operations, and tables by id: [`nlx_sync::Slots`] with a mark for large transfers.

use std::fmt;

use nlx_sync::SlotKey;

/// The id of an operation of a transfer machine. No two operations in flight have the same id, and
/// the id of an ended operation is not reused until 2³² more have used its slot.
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

    /// Returns whether it is the id of a large transfer.
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

/// The bit that marks the slot of a large transfer: far above the possible number of operations.
const LARGE: u32 = 1 << 31;

/// A table of objects by [`OpId`].
pub(crate) struct OpTable<T> {
    slots: nlx_sync::Slots<T>,
    /// Set in the ids of all entries.
    mark: u64,
}

impl<T> Default for OpTable<T> {
    fn default() -> OpTable<T> {
        OpTable { slots: nlx_sync::Slots::new(LARGE as usize), mark: 0 }
    }
}

impl<T> OpTable<T> {
    /// Creates a table whose ids are [`OpId::is_large`].
    pub(crate) fn large() -> OpTable<T> {
        OpTable { mark: LARGE.into(), ..OpTable::default() }
    }

    /// Adds the object that `make` returns for its new id.
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

    /// Returns the id of the object in this slot.
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
        // An id with the other mark gives a slot that does not exist.
        SlotKey::from_bits(id.0 ^ self.mark, 32)
    }
}
