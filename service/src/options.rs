//! The options of a pool of workers and of the request buffers of a service.

use std::time::Duration;

use crate::ServiceError;

/// Maximum number of worker threads of one partition: beyond it threads only take time from each
/// other, and memory.
pub const THREADS_MAX: u32 = 512;

/// Maximum number of request buffers of one endpoint in a partition. A token names a buffer of the
/// partition in 16 bits, so 16 endpoints may have the maximum.
pub const BUFFERS_MAX: u32 = 1 << 12;

/// Maximum number of requests that one request buffer takes: a token names a request of its buffer
/// in 12 bits.
pub const REQUESTS_PER_BUFFER_MAX: u32 = 1 << 12;

/// The worker threads of a pool (S-313, S-314).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolOptions {
    /// Worker threads that each partition keeps; at least 1.
    pub threads_min: u32,
    /// Maximum number of handlers that run at a time in a partition. While that many run, one
    /// further thread drives the network and the timers.
    pub threads_max: u32,
    /// A worker beyond the minimum ends after this time without work.
    pub idle: Duration,
    /// Whether the workers drive the network. If not, they sleep until another pool of the same node
    /// delivers something for them: for work that is rare beside that of the other pool. Two threads
    /// that drive the same partition take the network from each other, and each change is a hand-off.
    pub drives: bool,
}

impl PoolOptions {
    /// Returns the options for a partition of this table: at least two threads, at most two per
    /// core, because handlers that wait for a disk leave their core to others. Hyper-threads do not
    /// count (S-314).
    #[cfg(feature = "lnet")]
    #[must_use]
    pub fn of(table: &lnet_cpt::CptTable, partition: usize) -> PoolOptions {
        let cores = table.cores(partition).clamp(1, THREADS_MAX as usize / 2) as u32;
        PoolOptions { threads_min: 1, threads_max: 2 * cores, ..PoolOptions::default() }
    }

    pub(crate) fn check(&self) -> Result<(), ServiceError> {
        let rule = "1 to threads_max, at most 512";
        if self.threads_min == 0 || self.threads_min > self.threads_max {
            return Err(ServiceError::Option { name: "threads_min", value: self.threads_min.into(), rule });
        }
        if self.threads_max > THREADS_MAX {
            return Err(ServiceError::Option { name: "threads_max", value: self.threads_max.into(), rule });
        }
        Ok(())
    }
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        PoolOptions { threads_min: 1, threads_max: 4, idle: Duration::from_secs(10), drives: true }
    }
}

/// The request buffers of a service, for each partition and each of its match bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferOptions {
    /// Maximum length of a request in bytes. A longer one is cut off, and its handler sees both
    /// lengths.
    pub request_max: usize,
    /// Maximum length of a reply in bytes.
    pub reply_max: usize,
    /// Requests that one buffer takes before it is replaced.
    pub requests_per_buffer: u32,
    /// Buffers that are always there; at least 2, so that one takes requests while the requests of
    /// the other are served.
    pub buffers_min: u32,
    /// Maximum number of buffers. Beyond it requests wait in their senders' nodes, if the portal is
    /// lazy, or are dropped.
    pub buffers_max: u32,
}

impl BufferOptions {
    /// Low-water mark: another buffer is posted when the posted ones have room for fewer requests
    /// than this share, in percent, of all.
    pub const LOW_WATER: u64 = 25;

    /// High-water mark: a buffer beyond the minimum is freed if the others have had room for at least
    /// this share, in percent, of the requests that they take, for ten seconds.
    pub const HIGH_WATER: u64 = 75;

    pub(crate) fn check(&self) -> Result<(), ServiceError> {
        let wrong = |name, value: u64, rule| Err(ServiceError::Option { name, value, rule });
        let sizes = 1..=message_max();
        if !sizes.contains(&self.request_max) {
            return wrong("request_max", self.request_max as u64, "1 to 1048576 bytes");
        }
        if !sizes.contains(&self.reply_max) {
            return wrong("reply_max", self.reply_max as u64, "1 to 1048576 bytes");
        }
        if !(1..=REQUESTS_PER_BUFFER_MAX).contains(&self.requests_per_buffer) {
            return wrong("requests_per_buffer", self.requests_per_buffer.into(), "1 to 4096");
        }
        if self.buffers_min < 2 || self.buffers_min > self.buffers_max {
            return wrong("buffers_min", self.buffers_min.into(), "2 to buffers_max");
        }
        if self.buffers_max > BUFFERS_MAX {
            return wrong("buffers_max", self.buffers_max.into(), "at most 4096");
        }
        Ok(())
    }
}

/// Maximum number of bytes of one message.
const fn message_max() -> usize {
    1 << 20
}

impl Default for BufferOptions {
    fn default() -> BufferOptions {
        BufferOptions {
            request_max: 4096,
            reply_max: 4096,
            requests_per_buffer: 64,
            buffers_min: 2,
            buffers_max: 64,
        }
    }
}
