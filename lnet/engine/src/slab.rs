//! Tables of objects named by index and generation.

use std::ops::{Index, IndexMut};

/// Objects per chunk. Growth costs one allocation of this many slots, and moves nothing that exists.
const CHUNK: usize = 256;

/// No index: ends lists and free lists.
pub(crate) const NONE: u32 = u32::MAX;

/// The most objects of one table: an index has 24 bits, so that a handle has room for where the table is.
pub(crate) const INDEX_MAX: usize = (1 << 24) - 1;

/// Generations wrap at 30 bits, for the same reason.
const GENERATION_MASK: u32 = (1 << 30) - 1;

/// The index, if it is one.
pub(crate) fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}

/// Names an object of a [`Slab`]: a slot, and which of the objects that lived there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

impl Key {
    /// Names nothing.
    pub(crate) const NULL: Key = Key { index: NONE, generation: 0 };

    /// As 54 bits: what a handle or token has room for.
    pub(crate) const fn to_bits(self) -> u64 {
        (self.generation as u64) << 24 | (self.index & INDEX_MAX as u32) as u64
    }

    /// The key of which [`Key::to_bits`] gave these bits; any others name nothing.
    pub(crate) const fn from_bits(bits: u64) -> Key {
        Key { index: bits as u32 & INDEX_MAX as u32, generation: (bits >> 24) as u32 & GENERATION_MASK }
    }
}

/// A table of objects that never move. Slots are used again, last freed first, under a new generation, so a key whose
/// object is gone is recognised (a slot must be freed 2^30 times before an old key fits again).
///
/// Objects are also reached by bare index where the caller knows that they exist: lists within the table.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    /// Head of the list of free slots.
    free: u32,
    /// Slots ever used.
    used: usize,
    live: usize,
    limit: usize,
}

/// Starts at a cache line: an object that is met by chance costs as few misses as its size allows.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

impl<T> Slab<T> {
    /// An empty table for at most `limit` objects.
    pub(crate) fn new(limit: usize) -> Slab<T> {
        let limit = limit.min(INDEX_MAX);
        Slab { chunks: Vec::new(), free: NONE, used: 0, live: 0, limit }
    }

    /// The most objects there can be.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The objects there are.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Whether there is no room for another object.
    pub(crate) fn is_full(&self) -> bool {
        self.live >= self.limit
    }

    /// Enters an object, unless the table is full or there is no memory for it.
    pub(crate) fn insert(&mut self, value: T) -> Option<Key> {
        if self.is_full() {
            return None;
        }
        if self.free == NONE {
            return self.insert_in_new_slot(value);
        }
        self.live += 1;
        let index = self.free;
        let slot = self.slot_mut(index).expect("the free list names slots");
        let generation = slot.generation;
        let next = slot.next_free;
        slot.value = Some(value);
        self.free = next;
        Some(Key { index, generation })
    }

    /// Makes sure that the next insert finds room; `false` if the table is full or there is no memory.
    pub(crate) fn reserve(&mut self) -> bool {
        !self.is_full() && (self.free != NONE || self.used < self.chunks.len() * CHUNK || self.add_chunk())
    }

    fn add_chunk(&mut self) -> bool {
        let mut chunk = Vec::new();
        if chunk.try_reserve_exact(CHUNK).is_err() || self.chunks.try_reserve(1).is_err() {
            return false;
        }
        self.chunks.push(chunk);
        true
    }

    fn insert_in_new_slot(&mut self, value: T) -> Option<Key> {
        let index = self.used;
        if index == self.chunks.len() * CHUNK && !self.add_chunk() {
            return None;
        }
        self.chunks[index / CHUNK].push(Slot { generation: 1, next_free: NONE, value: Some(value) });
        self.used += 1;
        self.live += 1;
        Some(Key { index: index as u32, generation: 1 })
    }

    /// The object, if it is still there.
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.slot(key.index).filter(|slot| slot.generation == key.generation)?.value.as_ref()
    }

    /// The object, if it is still there.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slot_mut(key.index).filter(|slot| slot.generation == key.generation)?.value.as_mut()
    }

    /// Takes the object out, if it is still there.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        self.take(key.index)
    }

    /// Takes the object in this slot out, if there is one.
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        let free = self.free;
        let slot = self.slot_mut(index)?;
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.next_free = free;
        self.free = index;
        self.live -= 1;
        Some(value)
    }

    /// The object in this slot, if there is one.
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    /// The key of the object in this slot.
    pub(crate) fn key(&self, index: u32) -> Key {
        Key { index, generation: self.slot(index).map_or(0, |slot| slot.generation) }
    }

    /// The slots that hold objects, in no useful order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = u32> {
        (0..self.used as u32).filter(|&index| self.at(index).is_some())
    }

    /// Slots ever used: every index is below.
    pub(crate) fn used(&self) -> u32 {
        self.used as u32
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T>> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, index: u32) -> &T {
        self.at(index).expect("links name objects that exist")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, index: u32) -> &mut T {
        let slot = self.slot_mut(index).and_then(|slot| slot.value.as_mut());
        slot.expect("links name objects that exist")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_finds_its_object_and_no_other(steps in prop::collection::vec((any::<u16>(), any::<bool>()), 1..900)) {
            const LIMIT: usize = 300;
            let mut slab = Slab::new(LIMIT);
            let mut model: HashMap<u64, u16> = HashMap::new();
            let mut gone = Vec::new();
            for (value, remove) in steps {
                let victim = model.keys().copied().min().filter(|_| remove);
                if let Some(key) = victim {
                    prop_assert_eq!(slab.remove(Key::from_bits(key)), model.remove(&key));
                    gone.push(key);
                } else if let Some(key) = slab.insert(value) {
                    prop_assert!(model.insert(key.to_bits(), value).is_none());
                } else {
                    prop_assert_eq!(model.len(), LIMIT);
                }
                prop_assert_eq!(slab.len(), model.len());
            }
            for (key, value) in &model {
                prop_assert_eq!(slab.get(Key::from_bits(*key)), Some(value));
                prop_assert_eq!(slab.key(Key::from_bits(*key).index).to_bits(), *key);
            }
            for key in gone {
                prop_assert_eq!(slab.get(Key::from_bits(key)), None);
                prop_assert_eq!(slab.remove(Key::from_bits(key)), None);
            }
            prop_assert_eq!(slab.indices().count(), model.len());
        }
    }

    #[test]
    fn values_that_were_never_keys_name_nothing() {
        let mut slab = Slab::new(8);
        slab.insert(1).unwrap();
        for value in [0, u64::MAX, 1 << 24 | 1, Key::NULL.to_bits()] {
            assert_eq!(slab.get(Key::from_bits(value)), None);
        }
    }
}
