//! Where a transfer machine's events go: to a thread of this process, or to a client of the helper.

use nlx_bev_cqueue::Memory;
use nlx_core::Queue;
use nlx_fallible::TryArc;

use crate::network::FaultCounters;

/// The kind of news that a wake-up is for; of several kinds the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum News {
    /// There is nothing to wake for.
    None = 0,
    /// Events of messages. More of them often follow at once, and a wake-up may wait for these.
    Messages = 1,
    /// The end of a bulk transfer, or of a transfer machine. Its wake-up does not wait: what follows may take as long as a
    /// bulk transfer.
    Bulk = 2,
}

impl News {
    /// The kind of news with this value.
    pub(crate) fn from_value(value: u32) -> News {
        match value {
            0 => News::None,
            1 => News::Messages,
            _ => News::Bulk,
        }
    }

    /// The kind of news that an event of this queue is.
    pub(crate) fn of(queue: Queue) -> News {
        match queue {
            Queue::MessageReceive | Queue::MessageSend => News::Messages,
            _ => News::Bulk,
        }
    }
}

/// The receiving side of a transfer machine: it wakes those that wait for events, and counts operations. LNet's event queue
/// keeps a reference to it as long as LNet can call the event callback.
pub trait EventSink: LossSink {
    /// Where the queue of events lies.
    type Memory: Memory + Send;

    /// Wakes the waiters that sleep, at once or a little later ([`News`]). Called without a lock.
    fn ring(this: &TryArc<Self>, news: News)
    where
        Self: Sized;

    /// Called when an operation begins for which this many events are reserved.
    fn entered(&self, events: u32) {
        let _ = events;
    }

    /// Called when an event is in the queue; under the producer lock, as the two below.
    fn given(&self) {}

    /// Called when an operation is over for which this many events were reserved. Its last event is not in the queue yet.
    fn left(&self, events: u32) {
        let _ = events;
    }

    /// Called when there was no room for an event, which is lost. The sink knows whose fault that is.
    fn overrun(&self, faults: &FaultCounters);
}

/// The receiver of notices about messages that were lost for want of a receive buffer.
pub trait LossSink: Send + Sync + 'static {
    /// Called for each such message.
    fn lost(&self);
}
