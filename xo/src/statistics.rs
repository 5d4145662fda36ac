//! Statistics of a transfer machine's operations, by queue (motr-transport 2.9).

use std::time::Duration;

use nlx_core::{Errno, Queue};

/// Counters of one queue of a transfer machine, since its start or the last reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStatistics {
    /// Operations started.
    pub adds: u64,
    /// Operations for which a cancel was requested; timeouts do not count.
    pub cancels: u64,
    /// Events with success; for a receive buffer, one per message.
    pub successes: u64,
    /// Events with failure, and receive buffers that a pool lacked.
    pub failures: u64,
    /// The total time from start to end of the operations that have ended.
    pub time_in_queue: Duration,
    /// Bytes transferred.
    pub bytes: u64,
    /// Maximum number of bytes of one event.
    pub bytes_max: u64,
}

/// The counters of all queues.
#[derive(Debug, Default)]
pub(crate) struct TmStatistics([QueueStatistics; Queue::COUNT]);

impl TmStatistics {
    pub(crate) fn of(&mut self, queue: Queue) -> &mut QueueStatistics {
        &mut self.0[queue.index()]
    }

    /// Returns the counters, and resets them to 0 if `reset`.
    pub(crate) fn read(&mut self, reset: bool) -> [QueueStatistics; Queue::COUNT] {
        if reset { std::mem::take(&mut self.0) } else { self.0 }
    }

    pub(crate) fn event(
        &mut self,
        queue: Queue,
        status: Result<(), Errno>,
        length: usize,
        last: Option<Duration>,
    ) {
        let counters = self.of(queue);
        match status {
            Ok(()) => counters.successes += 1,
            // Missing buffers of a pool count as well, in any number.
            Err(_) => counters.failures = counters.failures.saturating_add(1),
        }
        counters.bytes += length as u64;
        counters.bytes_max = counters.bytes_max.max(length as u64);
        counters.time_in_queue += last.unwrap_or_default();
    }
}
