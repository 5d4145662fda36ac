//! The shards of an LND.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use lnet_api::MAX_SHARDS;

/// A shard, and what its driver alone touches.
#[derive(Debug)]
pub struct Slot<S, D> {
    /// What all threads reach.
    pub shard: Arc<S>,
    /// Uncontended: the holder of the shard's token alone gets here, and who starts or ends an NI.
    pub driver: Mutex<D>,
}

/// All shards (S-203, S-312): shard `sub * partitions + partition`, so that growing appends. There is one per partition at
/// first; further hardware interfaces bring further ones, up to `nscheds` per partition.
#[derive(Debug)]
pub struct Shards<S, D> {
    partitions: usize,
    subs_max: usize,
    slots: Box<[OnceLock<Slot<S, D>>]>,
    count: AtomicUsize,
}

impl<S, D> Shards<S, D> {
    /// None yet, of so many partitions and at most `nscheds` in each, and [`MAX_SHARDS`] in all.
    pub fn new(partitions: usize, nscheds: usize) -> Shards<S, D> {
        let partitions = partitions.clamp(1, MAX_SHARDS);
        Shards {
            partitions,
            subs_max: nscheds.clamp(1, MAX_SHARDS / partitions),
            slots: (0..MAX_SHARDS).map(|_| OnceLock::new()).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// Makes sure that there are those of so many hardware interfaces, one caller at a time; `make` gets the number of each.
    ///
    /// # Errors
    /// Those of `make`: the shards that are there by then stay.
    pub fn grow<E>(&self, subs: usize, mut make: impl FnMut(usize) -> Result<(S, D), E>) -> Result<(), E> {
        for number in self.count()..subs.min(self.subs_max) * self.partitions {
            let (shard, driver) = make(number)?;
            let _ = self.slots[number].set(Slot { shard: Arc::new(shard), driver: Mutex::new(driver) });
            // SYNC shards.count: who sees the number sees the slot.
            self.count.store(number + 1, Ordering::Release);
        }
        Ok(())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        // SYNC shards.count
        self.count.load(Ordering::Acquire)
    }

    /// How many shards a partition has.
    pub fn subs(&self) -> usize {
        self.count() / self.partitions
    }

    /// The partition of a shard.
    pub fn partition_of(&self, number: usize) -> usize {
        number % self.partitions
    }

    /// The shard of an NI's peers on a partition.
    ///
    /// # Panics
    /// If it is not there: an NI gets its sub when the shards are.
    pub fn shard(&self, sub: usize, partition: usize) -> &Arc<S> {
        let number = sub * self.partitions + partition % self.partitions;
        self.slot(number).map_or_else(|| unreachable!("shard {number} is missing"), |slot| &slot.shard)
    }

    /// The one of this number.
    pub fn slot(&self, number: usize) -> Option<&Slot<S, D>> {
        self.slots.get(number)?.get()
    }

    /// All of them, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &Slot<S, D>> {
        self.slots[..self.count()].iter().filter_map(OnceLock::get)
    }
}
