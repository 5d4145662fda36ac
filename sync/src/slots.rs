//! Tables of objects that are named by index and generation.

use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Index, IndexMut};
use core::panic::RefUnwindSafe;

/// Number of slots in the first chunk. Each further chunk doubles the table, until chunks have
/// [`CHUNK_MAX`] slots.
const CHUNK_MIN: usize = 8;

/// Number of slots in a chunk of a large table: growth costs one allocation of this size, whatever
/// the size of the table.
const CHUNK_MAX: usize = 256;

/// The number of chunks with fewer than [`CHUNK_MAX`] slots.
const SMALL_CHUNKS: usize = (CHUNK_MAX / CHUNK_MIN).ilog2() as usize + 1;

/// The null index, which ends the list of free slots.
const NONE: u32 = u32::MAX;

/// Names an object of [`Slots`] by index and generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotKey {
    /// The slot's index, which earlier and later objects share.
    pub index: u32,
    /// The number of the object among those of this slot, from 1; 0 names no object.
    pub generation: u32,
}

impl SlotKey {
    /// The key that names no object.
    pub const NULL: SlotKey = SlotKey { index: NONE, generation: 0 };

    /// Returns the key as a number, with the index in the lowest bits.
    #[must_use]
    pub const fn to_bits(self, index_bits: u32) -> u64 {
        (self.generation as u64) << index_bits | self.index as u64 & low_bits(index_bits)
    }

    /// Returns the key from which [`SlotKey::to_bits`] made this number. A number that it never
    /// returns gives a key that names no object.
    #[must_use]
    pub const fn from_bits(bits: u64, index_bits: u32) -> SlotKey {
        let generation = bits >> index_bits;
        let index = (bits & low_bits(index_bits)) as u32;
        // A generation has at most 32 bits, so a larger number names no object.
        SlotKey { index, generation: if generation > u32::MAX as u64 { 0 } else { generation as u32 } }
    }
}

const fn low_bits(count: u32) -> u64 {
    (1 << count) - 1
}

/// Places the memory of tables, for example on a NUMA node, by running the work that allocates and
/// touches the memory.
pub trait PlaceMemory: Send + Sync + RefUnwindSafe {
    /// Runs `work` once, so that memory which it touches first is placed.
    fn place(&self, work: &mut dyn FnMut());
}

/// The source of a table's memory; by default the allocator, without placement.
#[derive(Clone, Default)]
pub struct Room(Option<Arc<dyn PlaceMemory>>);

impl Room {
    /// Creates a source whose memory is placed by `place`.
    #[must_use]
    pub fn placed(place: Arc<dyn PlaceMemory>) -> Room {
        Room(Some(place))
    }

    /// Runs `allocate` under the placement.
    pub fn make<R>(&self, allocate: impl FnOnce() -> R) -> R {
        let Some(place) = &self.0 else { return allocate() };
        let (mut allocate, mut made) = (Some(allocate), None);
        place.place(&mut || made = allocate.take().map(|allocate| allocate()));
        made.unwrap_or_else(|| unreachable!("the work is run once"))
    }

    /// Touches new memory if it is to be placed: the system allocates pages on first touch.
    fn touch<T>(&self, memory: &mut [MaybeUninit<T>]) {
        if self.0.is_some() {
            memory.fill_with(MaybeUninit::zeroed);
        }
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Room(placed)" } else { "Room" })
    }
}

/// A table of at most `limit` objects, named by index and generation.
///
/// An object stays in its slot until it is removed. Free slots are reused, the one freed last
/// first, under the next generation. So the key of a removed object is recognised as stale, until
/// its slot has been reused for every generation.
///
/// Memory is allocated in chunks and never returned; objects do not move when the table grows. An
/// operation that does not grow the table allocates nothing.
///
/// `A` sets the alignment of each slot: with a type as large as a cache line, an object that fits
/// one line does not straddle two.
pub struct Slots<T, A = ()> {
    chunks: Vec<Vec<Slot<T, A>>>,
    /// The first slot of the list of free slots.
    free: u32,
    /// Number of slots that have been used at least once; the chunks have at least this number of
    /// slots.
    used: u32,
    live: usize,
    limit: usize,
    last_generation: u32,
    room: Room,
}

#[repr(C)]
struct Slot<T, A> {
    line: [A; 0],
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

impl<T, A> Slots<T, A> {
    /// Creates an empty table for at most `limit` objects, and 2³²−1 generations.
    #[must_use]
    pub const fn new(limit: usize) -> Slots<T, A> {
        let limit = if limit < NONE as usize { limit } else { NONE as usize };
        Slots {
            chunks: Vec::new(),
            free: NONE,
            used: 0,
            live: 0,
            limit,
            last_generation: u32::MAX,
            room: Room(None),
        }
    }

    /// Returns the table with `room` as its source of memory.
    #[must_use]
    pub fn within(mut self, room: &Room) -> Slots<T, A> {
        self.room = room.clone();
        self
    }

    /// Returns the table with generations from 1 to `last`.
    #[must_use]
    pub const fn with_generations(mut self, last: u32) -> Slots<T, A> {
        self.last_generation = last;
        self
    }

    /// Returns the size in bytes of a table with [capacity](Slots::reserve) for `count` objects.
    #[must_use]
    pub const fn bytes(count: usize) -> usize {
        let mut chunks = 0;
        while first_of(chunks) < count {
            chunks += 1;
        }
        first_of(chunks) * size_of::<Slot<T, A>>() + chunks * size_of::<Vec<Slot<T, A>>>()
    }

    /// Returns the maximum number of objects.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Returns whether the table has no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Returns whether the table has reached its limit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.live >= self.limit
    }

    /// Returns the number of slots that have been used; the index of every object is less.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Allocates capacity for `more` further objects, up to the limit: inserting them then
    /// allocates nothing.
    ///
    /// # Errors
    /// The error of the failed allocation.
    pub fn reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        let wanted = self.live.saturating_add(more).min(self.limit);
        while first_of(self.chunks.len()) < wanted {
            self.add_chunk()?;
        }
        Ok(())
    }

    #[cold]
    fn add_chunk(&mut self) -> Result<(), TryReserveError> {
        let Slots { chunks, room, .. } = self;
        let room = &*room;
        room.make(|| {
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(chunk_len(chunks.len()))?;
            room.touch(chunk.spare_capacity_mut());
            chunks.try_reserve(1)?;
            chunks.push(chunk);
            Ok(())
        })
    }

    /// Allocates capacity for one more object. Returns whether the next [`Slots::insert`] succeeds:
    /// `false` if the table is full or the allocation failed.
    pub fn make_room(&mut self) -> bool {
        !self.is_full() && self.reserve(1).is_ok()
    }

    /// Inserts an object and returns its key. `None` if the table is full or the allocation failed.
    pub fn insert(&mut self, value: T) -> Option<SlotKey> {
        if self.is_full() {
            return None;
        }
        self.reserve(1).ok()?;
        let key = self.next_key();
        let (chunk, at) = location_of(key.index);
        let chunk = self.chunks.get_mut(chunk)?;
        match chunk.get_mut(at) {
            Some(slot) => {
                self.free = slot.next_free;
                slot.value = Some(value);
            }
            None => {
                chunk.push(Slot {
                    line: [],
                    generation: key.generation,
                    next_free: NONE,
                    value: Some(value),
                });
                self.used += 1;
            }
        }
        self.live += 1;
        Some(key)
    }

    /// Returns the key that the next [`Slots::insert`] returns, if it succeeds.
    #[must_use]
    pub fn next_key(&self) -> SlotKey {
        match self.slot(self.free) {
            Some(slot) => SlotKey { index: self.free, generation: slot.generation },
            None => SlotKey { index: self.used, generation: 1 },
        }
    }

    /// Returns the object with this key, or `None` if it was removed.
    #[inline]
    #[must_use]
    pub fn get(&self, key: SlotKey) -> Option<&T> {
        self.slot(key.index).filter(|slot| slot.generation == key.generation)?.value.as_ref()
    }

    /// Returns the object with this key, mutable, or `None` if it was removed.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        self.slot_mut(key.index).filter(|slot| slot.generation == key.generation)?.value.as_mut()
    }

    /// Removes and returns the object, or `None` if it was removed before.
    pub fn remove(&mut self, key: SlotKey) -> Option<T> {
        self.get(key)?;
        self.take(key.index)
    }

    /// Removes and returns the object at this index, if there is one.
    pub fn take(&mut self, index: u32) -> Option<T> {
        let (free, last) = (self.free, self.last_generation);
        let slot = self.slot_mut(index)?;
        let value = slot.value.take()?;
        slot.generation = if slot.generation >= last { 1 } else { slot.generation + 1 };
        slot.next_free = free;
        self.free = index;
        self.live -= 1;
        Some(value)
    }

    /// Returns the object at this index, if there is one.
    #[inline]
    #[must_use]
    pub fn at(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    /// Returns the object at this index, mutable, if there is one.
    #[inline]
    #[must_use]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.value.as_mut()
    }

    /// Returns the key of the object at this index, or of the next object there. The generation is
    /// 0 if the slot has never been used.
    #[must_use]
    pub fn key(&self, index: u32) -> SlotKey {
        SlotKey { index, generation: self.slot(index).map_or(0, |slot| slot.generation) }
    }

    /// Iterates over the indices of all objects.
    pub fn indices(&self) -> impl Iterator<Item = u32> + use<'_, T, A> {
        (0..self.used).filter(|&index| self.at(index).is_some())
    }

    /// Iterates over all objects, by index.
    pub fn iter(&self) -> impl Iterator<Item = (SlotKey, &T)> {
        let slots = self.chunks.iter().flatten();
        (0..).zip(slots).filter_map(|(index, slot)| {
            let generation = slot.generation;
            slot.value.as_ref().map(|value| (SlotKey { index, generation }, value))
        })
    }

    /// Iterates over all objects, by index, mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SlotKey, &mut T)> {
        let slots = self.chunks.iter_mut().flatten();
        (0..).zip(slots).filter_map(|(index, slot)| {
            let generation = slot.generation;
            slot.value.as_mut().map(|value| (SlotKey { index, generation }, value))
        })
    }

    /// Removes and returns the object with the highest index, and closes the table for inserts: for
    /// teardown.
    pub fn pop(&mut self) -> Option<(SlotKey, T)> {
        (self.limit, self.free) = (0, NONE);
        while let Some(chunk) = self.chunks.last_mut() {
            while let Some(Slot { generation, value, .. }) = chunk.pop() {
                self.used -= 1;
                if let Some(value) = value {
                    self.live -= 1;
                    return Some((SlotKey { index: self.used, generation }, value));
                }
            }
            self.chunks.pop();
        }
        None
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<T, A>> {
        let (chunk, at) = location_of(index);
        self.chunks.get(chunk)?.get(at)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T, A>> {
        let (chunk, at) = location_of(index);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }
}

/// Access by an index that is known to have an object, such as one of a list through the table.
/// Panics if it has none.
impl<T, A> Index<u32> for Slots<T, A> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        self.at(index).expect("links name objects that are there")
    }
}

impl<T, A> IndexMut<u32> for Slots<T, A> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.at_mut(index).expect("links name objects that are there")
    }
}

impl<T: fmt::Debug, A> fmt::Debug for Slots<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Returns the number of slots of a chunk.
const fn chunk_len(chunk: usize) -> usize {
    match chunk {
        0 => CHUNK_MIN,
        1..SMALL_CHUNKS => CHUNK_MIN << (chunk - 1),
        _ => CHUNK_MAX,
    }
}

/// Returns the first index of a chunk.
#[inline]
const fn first_of(chunk: usize) -> usize {
    match chunk {
        0 => 0,
        1..SMALL_CHUNKS => CHUNK_MIN << (chunk - 1),
        _ => (chunk + 1 - SMALL_CHUNKS) * CHUNK_MAX,
    }
}

/// Returns the chunk of an index, and the position in that chunk.
#[inline]
const fn location_of(index: u32) -> (usize, usize) {
    let index = index as usize;
    if index >= CHUNK_MAX {
        (SMALL_CHUNKS - 1 + index / CHUNK_MAX, index % CHUNK_MAX)
    } else if index < CHUNK_MIN {
        (0, index)
    } else {
        let power = index.ilog2();
        (power as usize + 1 - CHUNK_MIN.ilog2() as usize, index - (1 << power))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Insert(u16),
        Remove(usize),
        Take(usize),
        Reserve(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => any::<u16>().prop_map(Step::Insert),
            1 => any::<usize>().prop_map(Step::Remove),
            1 => any::<usize>().prop_map(Step::Take),
            1 => (0..100usize).prop_map(Step::Reserve),
        ]
    }

    const LIMIT: usize = 600;

    proptest! {
        /// The table agrees with a map, and no key ever names two objects.
        // Covers: S-107, MT-233
        #[test]
        fn a_key_finds_its_object_and_no_other(steps in prop::collection::vec(step(), 1..1500)) {
            let (mut slots, mut model, mut gone) = (Slots::<u16>::new(LIMIT), BTreeMap::new(), Vec::new());
            for step in steps {
                let chosen = |which: usize| model.keys().nth(which % model.len().max(1)).copied();
                match step {
                    Step::Insert(value) => {
                        let next = slots.next_key();
                        match slots.insert(value) {
                            Some(key) => {
                                prop_assert_eq!(key, next);
                                prop_assert!(!gone.contains(&key) && key.generation != 0);
                                prop_assert_eq!(model.insert(key, value), None);
                            }
                            None => prop_assert_eq!(model.len(), LIMIT),
                        }
                    }
                    Step::Remove(which) => if let Some(key) = chosen(which) {
                        prop_assert_eq!(slots.remove(key), model.remove(&key));
                        gone.push(key);
                    }
                    Step::Reserve(more) => {
                        slots.reserve(more).unwrap();
                        let chunks = slots.chunks.len();
                        prop_assert!(first_of(chunks) >= (slots.len() + more).min(LIMIT));
                    }
                    Step::Take(which) => if let Some(key) = chosen(which) {
                        prop_assert_eq!(slots.take(key.index), model.remove(&key));
                        gone.push(key);
                    }
                }
                prop_assert_eq!((slots.len(), slots.is_full()), (model.len(), model.len() == LIMIT));
            }
            for (&key, value) in &model {
                prop_assert_eq!((slots.get(key), slots.at(key.index)), (Some(value), Some(value)));
                prop_assert_eq!(slots.key(key.index), key);
                prop_assert_eq!(SlotKey::from_bits(key.to_bits(24), 24), key);
            }
            for key in gone {
                prop_assert_eq!(slots.get(key), None);
                prop_assert_eq!(slots.remove(key), None);
            }
            prop_assert!(slots.indices().eq(model.keys().map(|key| key.index)));
            prop_assert!(slots.iter().map(|(key, value)| (key, *value)).eq(model.clone()));
            prop_assert!(slots.iter_mut().map(|(key, value)| (key, *value)).eq(model.clone()));
            while let Some((key, value)) = slots.pop() {
                prop_assert_eq!(model.pop_last(), Some((key, value)));
                prop_assert!(slots.insert(0).is_none());
            }
            prop_assert!(model.is_empty() && slots.is_empty());
        }
    }

    #[test]
    fn every_place_lies_in_a_chunk_of_its_own() {
        let mut next = (0, 0);
        for index in 0..10_000 {
            assert_eq!(location_of(index), next, "{index}");
            assert_eq!(first_of(next.0) + next.1, index as usize);
            next.1 += 1;
            if next.1 == chunk_len(next.0) {
                next = (next.0 + 1, 0);
            }
        }
    }

    /// Every growth allocates and touches memory under the placement; an operation that does not
    /// grow the table runs outside it.
    // Covers: S-305
    #[test]
    fn a_table_grows_in_its_place() {
        use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

        #[derive(Default)]
        struct Counted(AtomicUsize);
        impl PlaceMemory for Counted {
            fn place(&self, work: &mut dyn FnMut()) {
                self.0.fetch_add(1, Relaxed);
                work();
            }
        }
        let place = Arc::new(Counted::default());
        let mut slots = Slots::<u64>::new(LIMIT).within(&Room::placed(place.clone()));
        while let Some(key) = slots.insert(1) {
            assert_eq!(place.0.load(Relaxed), slots.chunks.len());
            // Each removed slot is in the free list exactly once, so the table still fills up.
            if key.generation == 1 && key.index % 3 == 0 {
                slots.remove(key);
            }
        }
        assert!(first_of(slots.chunks.len()) >= LIMIT);
        assert_eq!(Room::default().make(|| 7), 7);
    }

    #[test]
    fn growing_moves_nothing() {
        let mut slots = Slots::<u64>::new(usize::MAX);
        let first = slots.insert(7).unwrap();
        let address = &raw const slots[first.index];
        for value in 0..5_000 {
            slots.insert(value).unwrap();
        }
        assert_eq!(&raw const slots[first.index], address);
    }

    #[test]
    fn generations_begin_anew_after_the_last() {
        let mut slots = Slots::<()>::new(1).with_generations(3);
        for generation in [1, 2, 3, 1, 2] {
            let key = slots.insert(()).unwrap();
            assert_eq!(key, SlotKey { index: 0, generation });
            slots.remove(key).unwrap();
        }
    }

    #[test]
    fn numbers_that_were_never_keys_name_nothing() {
        let mut slots = Slots::<u8>::new(8);
        slots.insert(1).unwrap();
        for bits in [0, u64::MAX, 1 << 24 | 1, 1 << 60, SlotKey::NULL.to_bits(24)] {
            assert_eq!(slots.get(SlotKey::from_bits(bits, 24)), None, "{bits:#x}");
        }
        assert_eq!(slots.get(SlotKey::NULL), None);
    }

    #[test]
    fn a_slot_begins_where_its_alignment_says() {
        #[repr(align(64))]
        struct Line;
        assert_eq!((align_of::<Slot<u8, Line>>(), size_of::<Slot<u8, Line>>()), (64, 64));
        assert_eq!(size_of::<Slot<u8, ()>>(), 12);
    }
}
