//! Tables of objects named by index and generation: [`nlx_sync::Slots`] with the engine's sizes.

use std::sync::Arc;

use lnet_cpt::PartitionMemory;
use nlx_sync::{PlaceMemory, Room, SlotKey, Slots};

/// The null index, which ends lists.
pub(crate) const NONE: u32 = u32::MAX;

/// An index has 24 bits and a generation 30, so that a handle also has bits for the table.
pub(crate) const INDEX_BITS: u32 = 24;
const GENERATION_MAX: u32 = (1 << 30) - 1;

/// Maximum number of objects of one table.
pub(crate) const INDEX_MAX: usize = (1 << INDEX_BITS) - 1;

/// The name of an object: its index and generation.
pub(crate) type Key = SlotKey;

/// A table whose objects are also accessed by bare index where they are sure to exist, as in lists
/// within the table. Each object starts at a cache line, so that a random access costs as few
/// misses as its size allows.
pub(crate) type Slab<T> = Slots<T, CacheLine>;

/// The alignment of a slot.
#[repr(align(64))]
pub(crate) struct CacheLine;

/// Creates an empty table for at most `limit` objects.
pub(crate) fn slab<T>(limit: usize) -> Slab<T> {
    Slots::new(limit.min(INDEX_MAX)).with_generations(GENERATION_MAX)
}

/// Returns the source of memory for the tables of a partition: memory near it (S-305).
pub(crate) fn room_of(memory: &PartitionMemory, partition: usize) -> Room {
    struct Near(PartitionMemory, usize);
    impl PlaceMemory for Near {
        fn place(&self, work: &mut dyn FnMut()) {
            self.0.near(self.1, work);
        }
    }
    if memory.is_placed() { Room::placed(Arc::new(Near(memory.clone(), partition))) } else { Room::default() }
}

/// Returns `None` for [`NONE`], otherwise the index.
pub(crate) fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}
