use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use lnet_api::{Errno, MAX_SHARDS};
use parking_lot::Mutex;

use crate::driver::Driver;
use crate::shard::Shard;
use crate::sys::Net;
use crate::{SockConfig, SockCounters};

/// A shard, and what its driver alone touches.
pub(crate) struct Slot {
    pub(crate) shard: Arc<Shard>,
    /// Uncontended: the holder of the shard's token alone gets here, and who ends an NI.
    pub(crate) driver: Mutex<Driver>,
}

/// All shards (S-203, S-312): shard `sub * partitions + partition`, so that growing appends. There is one per partition at
/// first; further NIs bring further ones, up to `nscheds` per partition.
pub(crate) struct Shards {
    partitions: usize,
    subs_max: usize,
    slots: Box<[OnceLock<Slot>]>,
    count: AtomicUsize,
    lnd: Arc<()>,
}

impl Shards {
    /// Those of the first NI.
    pub(crate) fn new(config: &SockConfig, net: &dyn Net) -> Result<Shards, Errno> {
        let shards = Shards {
            partitions: config.partitions,
            subs_max: config.nscheds.clamp(1, MAX_SHARDS / config.partitions),
            slots: (0..MAX_SHARDS).map(|_| OnceLock::new()).collect(),
            count: AtomicUsize::new(0),
            lnd: Arc::new(()),
        };
        shards.grow(1, config, net)?;
        Ok(shards)
    }

    /// Makes sure that there are those of so many NIs, one caller at a time.
    pub(crate) fn grow(&self, subs: usize, config: &SockConfig, net: &dyn Net) -> Result<(), Errno> {
        for number in self.count()..subs.min(self.subs_max) * self.partitions {
            let shard = Arc::new(Shard::new(number, net.poller()?, self.lnd.clone()));
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
    pub(crate) fn counters(&self) -> SockCounters {
        let mut sum = SockCounters::default();
        for slot in self.iter() {
            sum += slot.shard.counters.snapshot();
        }
        sum
    }
}
