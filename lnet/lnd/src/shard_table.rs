//! The table of an LND's shard for connections, requests of peers, and held messages, indexed by
//! numeric keys.

use nlx_sync::{SlotKey, Slots};

/// The key of an entry of a shard's [`ShardTable`]: generation in the upper half, then the shard, then
/// the index. A late event for an entry that is gone finds nothing: an index gets the same key
/// again after 2^32 entries, longer than any event is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardKey(
    /// The key as a plain number: in an [`lnet_api::RxContext`], or in an event of a poller.
    pub u64,
);

/// The highest index in a shard: more than the system allows descriptors (2^20 by default), and
/// more messages than peers have credits for.
const INDEX_MAX: usize = (1 << 24) - 1;

impl ShardKey {
    fn new(shard: u8, key: SlotKey) -> ShardKey {
        ShardKey(u64::from(key.generation) << 32 | u64::from(shard) << 24 | u64::from(key.index))
    }

    /// Returns the shard of the entry.
    pub fn shard(self) -> usize {
        usize::from((self.0 >> 24) as u8)
    }

    /// Returns the index and generation within the shard.
    fn in_shard(self) -> SlotKey {
        SlotKey { index: self.0 as u32 & INDEX_MAX as u32, generation: (self.0 >> 32) as u32 }
    }
}

/// A table whose entries keep their index.
pub struct ShardTable<T> {
    shard: u8,
    entries: Slots<T>,
}

impl<T> ShardTable<T> {
    /// Makes an empty table for the shard with this number.
    pub const fn new(shard: u8) -> ShardTable<T> {
        ShardTable { shard, entries: Slots::new(INDEX_MAX) }
    }

    /// Returns the key that the next [`ShardTable::insert`] will use.
    pub fn next_key(&self) -> ShardKey {
        ShardKey::new(self.shard, self.entries.next_key())
    }

    /// Inserts a value; its key is the one that [`ShardTable::next_key`] returned.
    pub fn insert(&mut self, value: T) -> ShardKey {
        let key = self.entries.insert(value);
        ShardKey::new(
            self.shard,
            key.expect("a shard has fewer connections than indices, and memory for them"),
        )
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entry with this key, unless it is gone.
    pub fn get(&self, key: ShardKey) -> Option<&T> {
        self.entries.get(key.in_shard())
    }

    /// Returns the entry of [`ShardTable::get`], for changes.
    pub fn get_mut(&mut self, key: ShardKey) -> Option<&mut T> {
        self.entries.get_mut(key.in_shard())
    }

    /// Removes and returns the entry with this key.
    pub fn remove(&mut self, key: ShardKey) -> Option<T> {
        self.entries.remove(key.in_shard())
    }

    /// Replaces the value of an entry and returns the old value; the key stays the same.
    pub fn replace(&mut self, key: ShardKey, value: T) -> Option<T> {
        Some(std::mem::replace(self.get_mut(key)?, value))
    }

    /// Takes the content out of an entry if `part` accepts it, and leaves `rest` in its place; the
    /// entry keeps its key.
    pub fn take<U>(&mut self, key: ShardKey, rest: T, part: impl FnOnce(T) -> Result<U, T>) -> Option<U> {
        let place = self.get_mut(key)?;
        match part(std::mem::replace(place, rest)) {
            Ok(part) => Some(part),
            Err(whole) => {
                *place = whole;
                None
            }
        }
    }

    /// Returns the keys of the entries for which the predicate holds, by index.
    pub fn keys(&self, is_such: impl Fn(&T) -> bool) -> Vec<ShardKey> {
        self.iter().filter(|(_, value)| is_such(value)).map(|(key, _)| key).collect()
    }

    /// Iterates over all entries, by index.
    pub fn iter(&self) -> impl Iterator<Item = (ShardKey, &T)> {
        self.entries.iter().map(|(key, value)| (ShardKey::new(self.shard, key), value))
    }

    /// Iterates over the entries like [`ShardTable::iter`], for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ShardKey, &mut T)> {
        let shard = self.shard;
        self.entries.iter_mut().map(move |(key, value)| (ShardKey::new(shard, key), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_an_entry_that_is_gone_finds_nothing() {
        let mut slab = ShardTable::new(5);
        assert!(slab.is_empty());
        let expected = slab.next_key();
        let first = slab.insert('a');
        assert_eq!((first, first.shard()), (expected, 5));
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.in_shard().index, first.in_shard().index);
        assert!(slab.get(first).is_none() && slab.get_mut(first).is_none() && slab.remove(first).is_none());
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!((slab.replace(first, 'c'), slab.replace(second, 'c')), (None, Some('b')));
        assert_eq!(
            (slab.keys(|value| *value == 'c'), slab.keys(|value| *value == 'b')),
            (vec![second], vec![])
        );
        assert_eq!(
            (slab.iter().count(), slab.iter_mut().count(), slab.len(), slab.is_empty()),
            (1, 1, 1, false)
        );
    }
}
