//! Receive buffers, which all connections of a shard share.

use std::ops::{Deref, DerefMut};

use lnet_cpt::{CptMemory, PartitionMemory};

/// The size of a receive buffer: hundreds of small messages per call, and small enough to stay in
/// the cache.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// The number of free buffers kept; more are needed only while messages are held on several
/// connections.
const BUFFERS_KEPT: usize = 4;

/// A receive buffer of [`BUFFER_BYTES`].
pub(crate) enum ReceiveBuffer {
    /// Memory from the allocator.
    Heap(Box<[u8]>),
    /// Memory on the NUMA node of the shard's partition.
    Placed(CptMemory),
}

impl Deref for ReceiveBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ReceiveBuffer::Heap(bytes) => bytes,
            ReceiveBuffer::Placed(memory) => memory,
        }
    }
}

impl DerefMut for ReceiveBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            ReceiveBuffer::Heap(bytes) => bytes,
            ReceiveBuffer::Placed(memory) => memory,
        }
    }
}

/// The receive buffers of a shard, reused, near its partition.
pub(crate) struct ShardBuffers {
    kept: Vec<ReceiveBuffer>,
    memory: PartitionMemory,
    partition: usize,
}

impl ShardBuffers {
    pub(crate) fn new(memory: &PartitionMemory, partition: usize) -> ShardBuffers {
        ShardBuffers { kept: Vec::with_capacity(BUFFERS_KEPT), memory: memory.clone(), partition }
    }

    pub(super) fn take(&mut self) -> ReceiveBuffer {
        self.kept.pop().unwrap_or_else(|| self.make())
    }

    #[cold]
    fn make(&self) -> ReceiveBuffer {
        if self.memory.is_placed()
            && let Ok(memory) = self.memory.alloc(self.partition, BUFFER_BYTES)
        {
            return ReceiveBuffer::Placed(memory);
        }
        ReceiveBuffer::Heap(vec![0; BUFFER_BYTES].into_boxed_slice())
    }

    pub(super) fn put(&mut self, buffer: ReceiveBuffer) {
        if self.kept.len() < BUFFERS_KEPT {
            self.kept.push(buffer);
        }
    }
}

/// Bytes that were read and wait: for the connection's turn, or for the engine.
pub(super) struct Stash {
    pub(super) buffer: ReceiveBuffer,
    pub(super) start: usize,
    pub(super) end: usize,
}
