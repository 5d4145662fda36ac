//! Event queues.

use std::collections::VecDeque;

use lnet_api::{EQ_COUNT_MAX, EqHandle, Event, Handler, LNetError, Polled};

/// An event queue: with a callback, polled, or both.
pub(crate) struct Queue {
    pub(crate) handler: Option<Handler>,
    ring: Option<EventRing>,
    /// The number of the call that made the queue.
    pub(crate) made_by: u64,
}

/// The newest events of a polled queue.
struct EventRing {
    capacity: usize,
    events: VecDeque<Event>,
    missed: u64,
}

impl Queue {
    pub(crate) fn called_back(handler: Handler, made_by: u64) -> Queue {
        Queue { handler: Some(handler), ring: None, made_by }
    }

    pub(crate) fn polled(count: usize, handler: Option<Handler>, made_by: u64) -> Result<Queue, LNetError> {
        if !(1..=EQ_COUNT_MAX).contains(&count) {
            let rule = "a polled queue keeps 1 to 65536 events";
            return Err(LNetError::Invalid { field: "count", value: count as u64, rule });
        }
        let ring = EventRing { capacity: count.next_power_of_two(), events: VecDeque::new(), missed: 0 };
        Ok(Queue { handler, ring: Some(ring), made_by })
    }

    /// Keeps an event until it is polled; replaces the oldest if the ring is full.
    pub(crate) fn keep(&mut self, event: &Event) {
        let Some(ring) = &mut self.ring else { return };
        if ring.events.len() == ring.capacity {
            ring.events.pop_front();
            ring.missed += 1;
        }
        ring.events.push_back(*event);
    }

    /// Removes and returns the oldest event.
    ///
    /// # Errors
    /// If the queue is not a polled one.
    pub(crate) fn poll(&mut self, eq: EqHandle) -> Result<Option<Polled>, LNetError> {
        let rule = "events of this queue are handed to its handler only";
        let ring = self.ring.as_mut().ok_or(LNetError::Invalid { field: "EQ", value: eq.0, rule })?;
        let missed = ring.missed;
        Ok(ring.events.pop_front().map(|event| {
            ring.missed = 0;
            Polled { eq, event, missed }
        }))
    }
}
