//! What the operations of a transfer machine came to (motr-transport 2.9).

use std::time::Duration;

use nlx_core::{Errno, Queue};

/// Counters of one queue of a transfer machine, since it was started or since they were reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStatistics {
    /// Operations started.
    pub adds: u64,
    /// Operations whose cancelling was asked for; timeouts are not among them.
    pub cancels: u64,
    /// Events of success; for a receive buffer one per message.
    pub successes: u64,
    /// Events of failure.
    pub failures: u64,
    /// The time that operations took, those in flight not included.
    pub time_in_queue: Duration,
    /// Bytes moved.
    pub bytes: u64,
    /// The most bytes of one event.
    pub bytes_max: u64,
}

/// The counters of all queues.
#[derive(Debug, Default)]
pub(crate) struct Statistics([QueueStatistics; Queue::COUNT]);

impl Statistics {
    pub(crate) fn of(&mut self, queue: Queue) -> &mut QueueStatistics {
        &mut self.0[queue.index()]
    }

    /// The counters; from 0 again afterwards, if that is wanted.
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
            // What a pool lacked counts as well, and may have been any number.
            Err(_) => counters.failures = counters.failures.saturating_add(1),
        }
        counters.bytes += length as u64;
        counters.bytes_max = counters.bytes_max.max(length as u64);
        counters.time_in_queue += last.unwrap_or_default();
    }
}
