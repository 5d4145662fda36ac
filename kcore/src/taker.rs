//! Who takes a transfer machine's events: a thread of this process, or a client of the helper.

use nlx_bev_cqueue::Memory;
use nlx_core::Queue;
use nlx_fallible::TryArc;

use crate::network::FaultCounters;

/// What a wake-up is for; of several kinds the greatest counts.
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

/// Who takes the events. LNet's event queue keeps it as long as it can be called.
pub trait Taker: Losses {
    /// Where the queue of events lies.
    type Memory: Memory + Send;

    /// Wakes those of its waiters that sleep, at once or a little later ([`News`]). Called without a lock.
    fn ring(this: &TryArc<Self>, news: News)
    where
        Self: Sized;

    /// An operation begins, for which so many events are reserved.
    fn entered(&self, events: u32) {
        let _ = events;
    }

    /// An event is in the queue. Under the producer lock, as the two below.
    fn given(&self) {}

    /// An operation for which so many events were reserved is over; its last event is not in the queue yet.
    fn left(&self, events: u32) {
        let _ = events;
    }

    /// There was no room for an event, which is lost: by whose fault, this one knows.
    fn overrun(&self, faults: &FaultCounters);
}

/// Who is told of messages that were lost for want of a receive buffer.
pub trait Losses: Send + Sync + 'static {
    /// One was.
    fn lost(&self);
}
