//! Tables of objects that are named by place and generation.

use alloc::collections::TryReserveError;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::{Index, IndexMut};
use core::panic::RefUnwindSafe;

/// Slots of the first chunk. Each further one doubles the table, up to [`CHUNK_MAX`].
const CHUNK_MIN: usize = 8;

/// Slots of a chunk in a large table: growing costs one allocation of that many, whatever its size.
const CHUNK_MAX: usize = 256;

/// Chunks of less than [`CHUNK_MAX`] slots.
const SMALL_CHUNKS: usize = (CHUNK_MAX / CHUNK_MIN).ilog2() as usize + 1;

/// No place: the end of the list of free slots.
const NONE: u32 = u32::MAX;

/// Names an object of [`Slots`]: its place, and which of the objects that were there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotKey {
    /// The place, which other objects have had, and will have.
    pub index: u32,
    /// Counts the objects of this place; 0 for none.
    pub generation: u32,
}

impl SlotKey {
    /// Names nothing.
    pub const NULL: SlotKey = SlotKey { index: NONE, generation: 0 };

    /// As a number, the place in its lowest bits.
    #[must_use]
    pub const fn to_bits(self, index_bits: u32) -> u64 {
        (self.generation as u64) << index_bits | self.index as u64 & low_bits(index_bits)
    }

    /// What [`SlotKey::to_bits`] gave as this number. All others name nothing.
    #[must_use]
    pub const fn from_bits(bits: u64, index_bits: u32) -> SlotKey {
        let generation = bits >> index_bits;
        let index = (bits & low_bits(index_bits)) as u32;
        // No generation has more bits.
        SlotKey { index, generation: if generation > u32::MAX as u64 { 0 } else { generation as u32 } }
    }
}

const fn low_bits(count: u32) -> u64 {
    (1 << count) - 1
}

/// Places the memory of tables: it runs the work that allocates and touches the memory.
pub trait PlaceMemory: Send + Sync + RefUnwindSafe {
    /// Runs `work`, once.
    fn place(&self, work: &mut dyn FnMut());
}

/// The source of a table's memory; by default the allocator, without placement.
#[derive(Clone, Default)]
pub struct Room(Option<Arc<dyn PlaceMemory>>);

impl Room {
    /// Memory that `place` places.
    #[must_use]
    pub fn placed(place: Arc<dyn PlaceMemory>) -> Room {
        Room(Some(place))
    }

    /// Runs what allocates.
    pub fn make<R>(&self, allocate: impl FnOnce() -> R) -> R {
        let Some(place) = &self.0 else { return allocate() };
        let (mut allocate, mut made) = (Some(allocate), None);
        place.place(&mut || made = allocate.take().map(|allocate| allocate()));
        made.unwrap_or_else(|| unreachable!("the work is run once"))
    }

    /// Touches memory that is placed: its pages come when they are touched.
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

/// A table of at most so many objects. An object stays where it is until it is removed, and its slot is used again, the last free one first,
/// under the next generation: so the key of an object that is gone is recognised, until its slot has been used as often as there are generations.
///
/// Room is found in chunks, and never given back; nothing moves when the table grows. An operation that does not grow it allocates nothing.
///
/// `A` gives the alignment of each slot: a type of a cache line keeps objects that are met by chance from lying on two.
pub struct Slots<T, A = ()> {
    chunks: Vec<Vec<Slot<T, A>>>,
    /// The first free slot.
    free: u32,
    /// Slots that have been used.
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
    /// An empty table for at most `limit` objects, and 2³²−1 generations.
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

    /// The same table with memory from `room`.
    #[must_use]
    pub fn within(mut self, room: &Room) -> Slots<T, A> {
        self.room = room.clone();
        self
    }

    /// The same with generations from 1 to `last`.
    #[must_use]
    pub const fn with_generations(mut self, last: u32) -> Slots<T, A> {
        self.last_generation = last;
        self
    }

    /// The bytes of a table with [room](Slots::reserve) for so many objects.
    #[must_use]
    pub const fn bytes(count: usize) -> usize {
        let mut chunks = 0;
        while first_of(chunks) < count {
            chunks += 1;
        }
        first_of(chunks) * size_of::<Slot<T, A>>() + chunks * size_of::<Vec<Slot<T, A>>>()
    }

    /// The most objects that there can be.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The objects that there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there is no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Whether there are as many objects as there can be.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.live >= self.limit
    }

    /// The places that have been used: each is less.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Makes room for so many objects more, up to the limit: entering them allocates nothing then.
    ///
    /// # Errors
    /// There is no memory.
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

    /// Makes room for one. Whether the next [`Slots::insert`] finds room: not if the table is full, or there is no memory.
    pub fn make_room(&mut self) -> bool {
        !self.is_full() && self.reserve(1).is_ok()
    }

    /// Enters an object; gives its key. `None` if the table is full, or there is no memory.
    pub fn insert(&mut self, value: T) -> Option<SlotKey> {
        if self.is_full() {
            return None;
        }
        self.reserve(1).ok()?;
        let key = self.next_key();
        let (chunk, at) = place_of(key.index);
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

    /// The key that the next [`Slots::insert`] gives, if it does not fail.
    #[must_use]
    pub fn next_key(&self) -> SlotKey {
        match self.slot(self.free) {
            Some(slot) => SlotKey { index: self.free, generation: slot.generation },
            None => SlotKey { index: self.used, generation: 1 },
        }
    }

    /// The object, if it is still there.
    #[inline]
    #[must_use]
    pub fn get(&self, key: SlotKey) -> Option<&T> {
        self.slot(key.index).filter(|slot| slot.generation == key.generation)?.value.as_ref()
    }

    /// The object, if it is still there.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        self.slot_mut(key.index).filter(|slot| slot.generation == key.generation)?.value.as_mut()
    }

    /// Takes the object out, if it is still there.
    pub fn remove(&mut self, key: SlotKey) -> Option<T> {
        self.get(key)?;
        self.take(key.index)
    }

    /// Takes the object at this place out, if there is one.
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

    /// The object at this place, if there is one.
    #[inline]
    #[must_use]
    pub fn at(&self, index: u32) -> Option<&T> {
        self.slot(index)?.value.as_ref()
    }

    /// The object at this place, if there is one.
    #[inline]
    #[must_use]
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slot_mut(index)?.value.as_mut()
    }

    /// The key of the object at this place, or of the next one there; without a slot there, none.
    #[must_use]
    pub fn key(&self, index: u32) -> SlotKey {
        SlotKey { index, generation: self.slot(index).map_or(0, |slot| slot.generation) }
    }

    /// The places of all objects.
    pub fn indices(&self) -> impl Iterator<Item = u32> + use<'_, T, A> {
        (0..self.used).filter(|&index| self.at(index).is_some())
    }

    /// All objects, by place.
    pub fn iter(&self) -> impl Iterator<Item = (SlotKey, &T)> {
        let slots = self.chunks.iter().flatten();
        (0..).zip(slots).filter_map(|(index, slot)| {
            let generation = slot.generation;
            slot.value.as_ref().map(|value| (SlotKey { index, generation }, value))
        })
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SlotKey, &mut T)> {
        let slots = self.chunks.iter_mut().flatten();
        (0..).zip(slots).filter_map(|(index, slot)| {
            let generation = slot.generation;
            slot.value.as_mut().map(|value| (SlotKey { index, generation }, value))
        })
    }

    /// Takes one object out, the one with the highest place, and enters none any more: for a table that is to be emptied.
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
        let (chunk, at) = place_of(index);
        self.chunks.get(chunk)?.get(at)
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<T, A>> {
        let (chunk, at) = place_of(index);
        self.chunks.get_mut(chunk)?.get_mut(at)
    }
}

/// For places that are known to have an object: those in lists through the table.
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

/// The slots of a chunk.
const fn chunk_len(chunk: usize) -> usize {
    match chunk {
        0 => CHUNK_MIN,
        1..SMALL_CHUNKS => CHUNK_MIN << (chunk - 1),
        _ => CHUNK_MAX,
    }
}

/// The first place of a chunk.
#[inline]
const fn first_of(chunk: usize) -> usize {
    match chunk {
        0 => 0,
        1..SMALL_CHUNKS => CHUNK_MIN << (chunk - 1),
        _ => (chunk + 1 - SMALL_CHUNKS) * CHUNK_MAX,
    }
}

/// The chunk of a place, and where it lies there.
#[inline]
const fn place_of(index: u32) -> (usize, usize) {
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
        /// Against a plain map. No key names two objects.
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
            assert_eq!(place_of(index), next, "{index}");
            assert_eq!(first_of(next.0) + next.1, index as usize);
            next.1 += 1;
            if next.1 == chunk_len(next.0) {
                next = (next.0 + 1, 0);
            }
        }
    }

    /// All that a table allocates, it allocates and touches where it is placed; what needs no room goes nowhere.
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
            // Each slot is given back once: the table still fills up.
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
