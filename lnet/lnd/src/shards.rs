//! The shards of an LND.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use lnet_api::MAX_SHARDS;

/// A shard, and the state that only its driver accesses.
#[derive(Debug)]
pub struct ShardSlot<S, D> {
    /// The part that all threads access.
    pub shard: Arc<S>,
    /// The driver. Its lock is rarely contended: only the holder of the shard's token, and a thread
    /// that starts or ends an NI, take it.
    pub driver: Mutex<D>,
}

/// All shards (S-203, S-312). Each partition has one shard per hardware interface of the NIs, at
/// least one and at most `nscheds`. The shards of one interface, one per partition, have the same
/// number `sub`; the index of a shard is `sub * partitions + partition`, so that growth appends.
#[derive(Debug)]
pub struct Shards<S, D> {
    partitions: usize,
    subs_max: usize,
    slots: Box<[OnceLock<ShardSlot<S, D>>]>,
    count: AtomicUsize,
}

impl<S, D> Shards<S, D> {
    /// Makes an empty table for this number of partitions, with at most `nscheds` shards in each
    /// and [`MAX_SHARDS`] in all.
    pub fn new(partitions: usize, nscheds: usize) -> Shards<S, D> {
        let partitions = partitions.clamp(1, MAX_SHARDS);
        Shards {
            partitions,
            subs_max: nscheds.clamp(1, MAX_SHARDS / partitions),
            slots: (0..MAX_SHARDS).map(|_| OnceLock::new()).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// Makes the missing shards for `subs` hardware interfaces, one caller at a time; `make` gets
    /// the number of each.
    ///
    /// # Errors
    /// Those of `make`. The shards made before the error stay.
    pub fn grow<E>(&self, subs: usize, mut make: impl FnMut(usize) -> Result<(S, D), E>) -> Result<(), E> {
        for number in self.count()..subs.min(self.subs_max) * self.partitions {
            let (shard, driver) = make(number)?;
            let _ = self.slots[number].set(ShardSlot { shard: Arc::new(shard), driver: Mutex::new(driver) });
            // SYNC shards.count: a thread that sees the number sees the slot.
            self.count.store(number + 1, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the number of shards.
    pub fn count(&self) -> usize {
        // SYNC shards.count
        self.count.load(Ordering::Acquire)
    }

    /// Returns the number of shards per partition.
    pub fn subs(&self) -> usize {
        self.count() / self.partitions
    }

    /// Returns the partition of a shard.
    pub fn partition_of(&self, number: usize) -> usize {
        number % self.partitions
    }

    /// Returns the shard of an NI's peers on a partition.
    ///
    /// # Panics
    /// If the shard is missing: an NI gets its sub only after the shards are made.
    pub fn shard(&self, sub: usize, partition: usize) -> &Arc<S> {
        let number = sub * self.partitions + partition % self.partitions;
        self.slot(number).map_or_else(|| unreachable!("shard {number} is missing"), |slot| &slot.shard)
    }

    /// Returns the slot with this number.
    pub fn slot(&self, number: usize) -> Option<&ShardSlot<S, D>> {
        self.slots.get(number)?.get()
    }

    /// Iterates over all slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &ShardSlot<S, D>> {
        self.slots[..self.count()].iter().filter_map(OnceLock::get)
    }
}
