//! A table for the connections of an LND's shard: names that travel as numbers, and are never used twice.

/// Names an entry of a shard's [`Slab`]: generation in the upper half, then the shard, then the place. A key is never used
/// twice, so what comes late for an entry that is gone finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(
    /// As a plain number: of an [`crate::RxContext`], of a poller's event.
    pub u64,
);

/// The places of a shard: more than the system allows descriptors (2^20 by default).
const PLACE_MAX: usize = (1 << 24) - 1;

impl Key {
    fn new(generation: u32, shard: u8, place: usize) -> Key {
        debug_assert!(place <= PLACE_MAX, "more connections than a process can have");
        Key(u64::from(generation) << 32 | u64::from(shard) << 24 | place as u64)
    }

    /// The shard whose entry it names.
    pub fn shard(self) -> usize {
        usize::from((self.0 >> 24) as u8)
    }

    fn place(self) -> usize {
        self.0 as usize & PLACE_MAX
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A table whose entries keep their place.
pub struct Slab<T> {
    shard: u8,
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// An empty one, of the shard of this number.
    pub const fn new(shard: u8) -> Slab<T> {
        Slab { shard, entries: Vec::new(), free: Vec::new() }
    }

    /// The key that the next [`Slab::insert`] will give.
    pub fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&place) => Key::new(self.entries[place].generation, self.shard, place),
            None => Key::new(0, self.shard, self.entries.len()),
        }
    }

    /// Enters a value; its key is the one that [`Slab::next_key`] gave.
    pub fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        match self.free.pop() {
            Some(place) => self.entries[place].value = Some(value),
            None => self.entries.push(Entry { generation: 0, value: Some(value) }),
        }
        key
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == self.free.len()
    }

    /// The entry of this name, unless it is gone.
    pub fn get(&self, key: Key) -> Option<&T> {
        self.entries.get(key.place()).filter(|entry| entry.generation == key.generation())?.value.as_ref()
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.get_mut(key.place()).filter(|entry| entry.generation == key.generation())?.value.as_mut()
    }

    /// Takes the entry of this name out.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.place()).filter(|entry| entry.generation == key.generation())?;
        let value = entry.value.take()?;
        // After four thousand million reuses of one place a key would come again: nobody holds one that long.
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.place());
        Some(value)
    }

    /// All entries, by place.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        let shard = self.shard;
        self.entries.iter().enumerate().filter_map(move |(place, entry)| {
            entry.value.as_ref().map(|value| (Key::new(entry.generation, shard, place), value))
        })
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        let shard = self.shard;
        self.entries.iter_mut().enumerate().filter_map(move |(place, entry)| {
            let generation = entry.generation;
            entry.value.as_mut().map(|value| (Key::new(generation, shard, place), value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_an_entry_that_is_gone_finds_nothing() {
        let mut slab = Slab::new(5);
        assert!(slab.is_empty());
        let expected = slab.next_key();
        let first = slab.insert('a');
        assert_eq!((first, first.shard()), (expected, 5));
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.place(), first.place());
        assert!(slab.get(first).is_none() && slab.get_mut(first).is_none() && slab.remove(first).is_none());
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!(
            (slab.iter().count(), slab.iter_mut().count(), slab.len(), slab.is_empty()),
            (1, 1, 1, false)
        );
    }
}
