//! Data that all rooms of the engine read.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use lnet_api::{Event, EventKind};
use lnet_cpt::PartitionMemory;
use lnet_nid::{Nid, ProcessId};
use nlx_sync::Room;

use crate::config::EngineConfig;
use crate::event_queue::EventQueues;
use crate::keys::Hasher;
use crate::names::Handles;
use crate::slab::room_of;

/// Data that every room reads: the configuration, the key of the hashes, the encoding of handles,
/// the event queues, the clock. Nothing in it changes under a partition's lock. All rooms use its
/// fields, so they are visible in the crate; those that change have methods.
pub(crate) struct Common {
    pub(crate) config: EngineConfig,
    pub(crate) hasher: Hasher,
    pub(crate) handles: Handles,
    pub(crate) queues: EventQueues,
    pub(crate) memory: PartitionMemory,
    /// Latest time passed to [`crate::Engine::advance`], in nanoseconds.
    now_ns: AtomicU64,
    /// Per partition, a lower bound of its earliest response deadline: `advance` reads it without
    /// the partition's lock.
    deadlines: Box<[CachePadded<AtomicU64>]>,
}

impl Common {
    pub(crate) fn new(config: EngineConfig, partitions: usize) -> Common {
        let never = || CachePadded::new(AtomicU64::new(u64::MAX));
        Common {
            hasher: Hasher::default(),
            handles: Handles::new(partitions),
            queues: EventQueues::new(config.limits.event_queues),
            memory: PartitionMemory::of(&config.partitions),
            now_ns: AtomicU64::new(0),
            deadlines: (0..partitions).map(|_| never()).collect(),
            config,
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Advances the clock, never back; returns the current time.
    pub(crate) fn advance(&self, now_ns: u64) -> u64 {
        self.now_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns)
    }

    /// Returns a lower bound of the earliest response deadline of a partition, in nanoseconds;
    /// `u64::MAX` if it has none.
    pub(crate) fn deadline_ns(&self, partition: usize) -> u64 {
        self.deadlines[partition].load(Ordering::Relaxed)
    }

    /// Lowers the bound to the deadline of a new response; under the partition's lock.
    pub(crate) fn lower_deadline(&self, partition: usize, deadline_ns: u64) {
        self.deadlines[partition].fetch_min(deadline_ns, Ordering::Relaxed);
    }

    /// Sets the bound: the partition has no response with an earlier deadline; under its lock.
    pub(crate) fn set_deadline(&self, partition: usize, deadline_ns: u64) {
        self.deadlines[partition].store(deadline_ns, Ordering::Relaxed);
    }

    pub(crate) fn partitions(&self) -> usize {
        self.deadlines.len()
    }

    /// Returns the source of memory for the tables of a partition: memory near its CPUs.
    pub(crate) fn room(&self, partition: usize) -> Room {
        room_of(&self.memory, partition)
    }

    /// Returns the partition of the calling thread.
    pub(crate) fn current_partition(&self) -> usize {
        match self.partitions() {
            1 => 0,
            all => self.config.partitions.current(true).unwrap_or(0) % all,
        }
    }

    /// Returns an event with its kind and this node's PID only.
    pub(crate) fn event(&self, kind: EventKind) -> Event {
        Event::blank(kind, ProcessId::new(Nid::ANY, self.config.pid))
    }
}
