use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use lnet_api::MAX_SHARDS;
use parking_lot::Mutex;

use crate::driver::Driver;
use crate::fabric::{Fabric, FabricError};
use crate::shard::Shard;
use crate::{O2ibConfig, O2ibCounters};

/// A shard, and what its driver alone touches.
pub(crate) struct Slot {
    pub(crate) shard: Arc<Shard>,
    /// Uncontended: the holder of the shard's token alone gets here, and who ends an NI.
    pub(crate) driver: Mutex<Driver>,
}

/// All shards (S-203, S-312): shard `sub * partitions + partition`, so that growing appends. The first NI brings one
/// per partition, further NIs further ones, up to `nscheds` per partition.
pub(crate) struct Shards {
    partitions: usize,
    subs_max: usize,
    slots: Box<[OnceLock<Slot>]>,
    count: AtomicUsize,
}

impl Shards {
    /// None: the first NI brings some.
    pub(crate) fn new(config: &O2ibConfig) -> Shards {
        Shards {
            partitions: config.partitions,
            subs_max: config.nscheds.clamp(1, MAX_SHARDS / config.partitions),
            slots: (0..MAX_SHARDS).map(|_| OnceLock::new()).collect(),
            count: AtomicUsize::new(0),
        }
    }

    /// Makes sure that there are those of so many NIs, one caller at a time.
    pub(crate) fn grow(
        &self,
        subs: usize,
        config: &O2ibConfig,
        fabric: &dyn Fabric,
    ) -> Result<(), FabricError> {
        for number in self.count()..subs.min(self.subs_max) * self.partitions {
            let shard = Arc::new(Shard::new(number, fabric.channel()?));
            let driver = Mutex::new(Driver::new(config, number));
            let _ = self.slots[number].set(Slot { shard, driver });
            // SYNC shards.count: who sees the number sees the slot.
            self.count.store(number + 1, Ordering::Release);
        }
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        // SYNC shards.count
        self.count.load(Ordering::Acquire)
    }

    /// How many shards a partition has.
    pub(crate) fn subs(&self) -> usize {
        self.count() / self.partitions
    }

    pub(crate) fn partition_of(&self, number: usize) -> usize {
        number % self.partitions
    }

    /// The shard of an NI's peers on a partition.
    pub(crate) fn shard(&self, sub: usize, partition: usize) -> &Arc<Shard> {
        let number = sub * self.partitions + partition % self.partitions;
        // An NI gets its sub when the shards are there.
        self.slot(number).map_or_else(|| unreachable!("shard {number} is missing"), |slot| &slot.shard)
    }

    pub(crate) fn slot(&self, number: usize) -> Option<&Slot> {
        self.slots.get(number)?.get()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots[..self.count()].iter().filter_map(OnceLock::get)
    }

    /// All that was counted.
    pub(crate) fn counters(&self) -> O2ibCounters {
        let mut sum = O2ibCounters::default();
        for slot in self.iter() {
            sum += slot.shard.counters.snapshot();
        }
        sum
    }
}
