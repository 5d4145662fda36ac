//! The client's side of the submission ring, and the common parts of both kinds of queues.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;

use nix::errno::Errno;
use nix::unistd::write;

use super::memory::Memory;
use super::wire::ENTRY;

/// Offsets of the parts of a queue.
pub mod place {
    #![expect(missing_docs, reason = "each is the place of the word of this name")]
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 8;
    pub const MAX_SLOTS: usize = 12;
    pub const CONSUMED: usize = 128;
    pub const SLOTS: usize = 136;
    pub const SLEEPING: usize = 256;
    pub const LOOKOUT: usize = 384;
    pub const TOLD: usize = 512;
    pub const LINKS: usize = 640;
    /// The size of a slot in bytes.
    pub const SLOT: usize = 128;
    /// The offset of the stamp in a slot.
    pub const STAMP: usize = 120;

    /// Returns the offset of the link of a slot.
    pub fn link(slot: u32) -> usize {
        LINKS + 4 * slot as usize
    }

    /// Returns the offset of a slot in a queue of `max_slots` slots.
    pub fn slot(max_slots: u32, slot: u32) -> usize {
        link(max_slots).next_multiple_of(SLOT) + SLOT * slot as usize
    }
}

/// A queue's memory, whose header was checked.
#[derive(Debug, Clone)]
pub struct Queue {
    /// The mapping of the queue.
    pub memory: Memory,
    /// The number of slots in the memory.
    pub max_slots: u32,
}

impl Queue {
    /// Maps a queue in memory that the helper sent.
    ///
    /// # Errors
    ///
    /// The field of its header that is wrong.
    pub fn map(fd: impl AsFd) -> Result<Queue, String> {
        let memory =
            Memory::map_and_seal(fd).map_err(|errno| format!("a queue cannot be mapped: {errno}"))?;
        if memory.word(place::MAGIC).load(Relaxed).to_le_bytes() != *b"nlx bevq" {
            return Err("a queue without its magic".to_string());
        }
        let (version, max_slots) =
            (memory.half(place::VERSION).load(Relaxed), memory.half(place::MAX_SLOTS).load(Relaxed));
        let length = place::slot(max_slots, max_slots);
        if version != 2 || memory.len() != length {
            let is = memory.len();
            return Err(format!(
                "a queue of version {version} with {max_slots} slots in {is} bytes, not {length}"
            ));
        }
        Ok(Queue { memory, max_slots })
    }

    /// Returns the offset of a slot.
    pub fn slot(&self, slot: u32) -> usize {
        place::slot(self.max_slots, slot)
    }
}

/// The client's side of the submission ring.
#[derive(Debug)]
pub struct Ring {
    /// The ring's memory.
    pub queue: Queue,
    doorbell: OwnedFd,
    fill: u32,
    pushed: u64,
}

impl Ring {
    /// Creates the producer of an empty ring.
    pub fn new(queue: Queue, doorbell: OwnedFd) -> Ring {
        Ring { queue, doorbell, fill: 0, pushed: 0 }
    }

    /// Returns the number of slots without an entry that the helper has not taken.
    pub fn free(&self) -> u64 {
        let memory = &self.queue.memory;
        let consumed = memory.word(place::CONSUMED).load(Acquire);
        let slots = u64::from(memory.half(place::SLOTS).load(Acquire));
        // Does not panic on arbitrary values, which a test may have written here.
        slots.saturating_sub(1).saturating_sub(self.pushed.wrapping_sub(consumed))
    }

    /// Writes an entry, which is not visible to the helper yet. There must be a free slot.
    pub fn fill(&mut self, entry: &[u8; ENTRY]) -> Filled {
        let slot = self.fill;
        let next = self.queue.memory.half(place::link(slot)).load(Relaxed);
        self.queue.memory.write(self.queue.slot(slot), entry);
        Filled { slot, next }
    }

    /// Makes a filled entry visible to the helper.
    pub fn stamp(&mut self, filled: Filled) {
        self.pushed += 1;
        self.fill = filled.next;
        let stamp = (self.pushed & 0xffff_ffff) << 32 | u64::from(filled.next);
        let at = self.queue.slot(filled.slot) + place::STAMP;
        self.queue.memory.word(at).store(stamp, Release);
    }

    /// Returns whether the helper sleeps; if so, this caller must ring.
    pub fn must_ring(&self) -> bool {
        fence(SeqCst);
        let sleeping = self.queue.memory.half(place::SLEEPING);
        sleeping.load(Relaxed) != 0 && sleeping.swap(0, Relaxed) != 0
    }

    /// Rings the doorbell.
    pub fn ring(&self) {
        // A full doorbell rings already.
        let _: Result<usize, Errno> = write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Returns the doorbell's descriptor, for attacks.
    pub fn doorbell(&self) -> &OwnedFd {
        &self.doorbell
    }
}

/// A filled entry, and the slot of the next one.
#[derive(Debug, Clone, Copy)]
pub struct Filled {
    slot: u32,
    next: u32,
}
