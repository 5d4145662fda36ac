//! Receive buffers, which all connections of a shard share.

/// Bytes of a receive buffer: hundreds of small messages per call, and little enough to stay in the cache.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// Receive buffers that are kept; more are needed only while messages are held on several connections.
const BUFFERS_KEPT: usize = 4;

/// Receive buffers, reused.
#[derive(Default)]
pub(crate) struct BufferPool(Vec<Box<[u8]>>);

impl BufferPool {
    pub(super) fn take(&mut self) -> Box<[u8]> {
        self.0.pop().unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
    }

    pub(super) fn put(&mut self, buffer: Box<[u8]>) {
        if self.0.len() < BUFFERS_KEPT {
            self.0.push(buffer);
        }
    }
}

/// Bytes that were read and must wait: for their turn, or for the engine.
pub(super) struct Stash {
    pub(super) buffer: Box<[u8]>,
    pub(super) start: usize,
    pub(super) end: usize,
}
