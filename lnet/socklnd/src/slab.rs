/// Names an entry of a [`Slab`]: generation in the upper half, place in the lower. A key is never used twice, so what
/// comes late for an entry that is gone finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    fn new(generation: u32, place: usize) -> Key {
        Key(u64::from(generation) << 32 | place as u64)
    }

    fn place(self) -> usize {
        self.0 as u32 as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A table whose entries keep their place.
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<usize>,
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new() }
    }

    /// The key that the next [`Slab::insert`] will give.
    pub(crate) fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&place) => Key::new(self.entries[place].generation, place),
            None => Key::new(0, self.entries.len()),
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        let key = self.next_key();
        match self.free.pop() {
            Some(place) => self.entries[place].value = Some(value),
            None => self.entries.push(Entry { generation: 0, value: Some(value) }),
        }
        key
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.entries.get(key.place()).filter(|entry| entry.generation == key.generation())?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.get_mut(key.place()).filter(|entry| entry.generation == key.generation())?.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.place()).filter(|entry| entry.generation == key.generation())?;
        let value = entry.value.take()?;
        // After four thousand million reuses of one place a key would come again: nobody holds one that long.
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(key.place());
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(place, entry)| {
            entry.value.as_ref().map(|value| (Key::new(entry.generation, place), value))
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.entries.iter_mut().enumerate().filter_map(|(place, entry)| {
            let generation = entry.generation;
            entry.value.as_mut().map(|value| (Key::new(generation, place), value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_an_entry_that_is_gone_finds_nothing() {
        let mut slab = Slab::new();
        let expected = slab.next_key();
        let first = slab.insert('a');
        assert_eq!(first, expected);
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!(second.place(), first.place());
        assert!(slab.get(first).is_none() && slab.get_mut(first).is_none() && slab.remove(first).is_none());
        assert_eq!(slab.get(second), Some(&'b'));
        assert_eq!((slab.iter().count(), slab.iter_mut().count()), (1, 1));
    }
}
