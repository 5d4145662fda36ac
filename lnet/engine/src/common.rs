//! What all rooms of the engine read.

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

/// What every room reads: the configuration, the key of the hashes, the naming of handles, the event queues, the clock.
/// Nothing in it is changed under a partition's lock. Its fields cross all rooms, so the crate sees them; those that change
/// have methods.
pub(crate) struct Common {
    pub(crate) config: EngineConfig,
    pub(crate) hasher: Hasher,
    pub(crate) handles: Handles,
    pub(crate) queues: EventQueues,
    pub(crate) memory: PartitionMemory,
    /// The time that [`crate::Engine::advance`] was told, in nanoseconds.
    now_ns: AtomicU64,
    /// For each partition, no later than its earliest response deadline: so that time passes without its lock.
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

    /// Time goes on, never back; returns the time that it is now.
    pub(crate) fn advance(&self, now_ns: u64) -> u64 {
        self.now_ns.fetch_max(now_ns, Ordering::Relaxed).max(now_ns)
    }

    /// No later than the earliest response deadline of a partition, in nanoseconds; `u64::MAX` if it has none.
    pub(crate) fn deadline_ns(&self, partition: usize) -> u64 {
        self.deadlines[partition].load(Ordering::Relaxed)
    }

    /// The partition has a response with this deadline; under its lock.
    pub(crate) fn hasten(&self, partition: usize, deadline_ns: u64) {
        self.deadlines[partition].fetch_min(deadline_ns, Ordering::Relaxed);
    }

    /// The partition has no response with an earlier deadline; under its lock.
    pub(crate) fn set_deadline(&self, partition: usize, deadline_ns: u64) {
        self.deadlines[partition].store(deadline_ns, Ordering::Relaxed);
    }

    pub(crate) fn partitions(&self) -> usize {
        self.deadlines.len()
    }

    /// The source of memory for the tables of a partition.
    pub(crate) fn room(&self, partition: usize) -> Room {
        room_of(&self.memory, partition)
    }

    /// The partition that the calling thread acts for.
    pub(crate) fn here(&self) -> usize {
        match self.partitions() {
            1 => 0,
            all => self.config.partitions.current(true).unwrap_or(0) % all,
        }
    }

    /// An event in which nothing is filled in but what it is and this node's PID.
    pub(crate) fn event(&self, kind: EventKind) -> Event {
        Event::blank(kind, ProcessId::new(Nid::ANY, self.config.pid))
    }
}
