//! Who takes a transfer machine's events: a thread of this process, or a client of the helper.

use nlx_bev_cqueue::Memory;

use crate::network::FaultCounters;

/// Who takes the events. LNet's event queue keeps it as long as it can be called.
pub(crate) trait Taker: Losses {
    /// Where the queue of events lies.
    type Memory: Memory + Send;

    /// There is news: wakes whoever sleeps. Called without a lock.
    fn ring(&self);

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
pub(crate) trait Losses: Send + Sync + 'static {
    /// One was.
    fn lost(&self);
}
