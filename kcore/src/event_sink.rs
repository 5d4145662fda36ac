//! The destination of a transfer machine's events: a thread of this process, or a client of the
//! helper.

use nlx_bev_cqueue::QueueMemory;
use nlx_core::Queue;
use nlx_fallible::TryArc;

use crate::network::AnomalyCounters;

/// The urgency of a wake-up. If several kinds of news are pending, the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum News {
    /// No wake-up is needed.
    None = 0,
    /// Message events. More of them often follow at once, so the wake-up may be delayed to cover
    /// these.
    Messages = 1,
    /// The end of a bulk transfer, or of a transfer machine. Its wake-up is not delayed: the next
    /// event may take as long as a bulk transfer.
    Bulk = 2,
}

impl News {
    /// Returns the kind of news with this value.
    pub(crate) fn from_value(value: u32) -> News {
        match value {
            0 => News::None,
            1 => News::Messages,
            _ => News::Bulk,
        }
    }

    /// Returns the kind of news that an event of this queue is.
    pub(crate) fn of(queue: Queue) -> News {
        match queue {
            Queue::MessageReceive | Queue::MessageSend => News::Messages,
            _ => News::Bulk,
        }
    }
}

/// The consumer side of a transfer machine: it wakes the waiters and counts operations. LNet's
/// event queue keeps a reference to it while LNet can call the event callback.
pub trait EventSink: LossSink {
    /// The memory of the event queue.
    type Memory: QueueMemory + Send;

    /// Wakes the waiters that sleep, at once or after a short delay ([`News`]). Called without a
    /// lock.
    fn ring(this: &TryArc<Self>, news: News)
    where
        Self: Sized;

    /// Called when an operation begins that has reserved `events` event slots.
    fn entered(&self, events: u32) {
        let _ = events;
    }

    /// Called when an event is in the queue. Called under the producer lock, as are the next two.
    fn given(&self) {}

    /// Called when an operation is over that had reserved `events` event slots. Its last event is
    /// not in the queue yet.
    fn left(&self, events: u32) {
        let _ = events;
    }

    /// Called when the queue had no room for an event, which is lost. The sink decides which side
    /// is at fault.
    fn overrun(&self, faults: &AnomalyCounters);
}

/// Receiver of notifications about messages that were lost for want of a receive buffer.
pub trait LossSink: Send + Sync + 'static {
    /// Called for each such message.
    fn lost(&self);
}
