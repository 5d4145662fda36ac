//! The event queue of a simulated network.

use std::collections::BTreeMap;

/// Future events, ordered by their time; events of one time in the order in which they were
/// scheduled.
pub(crate) struct EventQueue<E> {
    scheduled: u64,
    events: BTreeMap<(u64, u64), E>,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> EventQueue<E> {
        EventQueue { scheduled: 0, events: BTreeMap::new() }
    }

    pub(crate) fn schedule(&mut self, at_ns: u64, event: E) {
        self.scheduled += 1;
        self.events.insert((at_ns, self.scheduled), event);
    }

    /// Returns the time of the next event.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.events.keys().next().map(|(at_ns, _)| *at_ns)
    }

    /// Removes and returns the next event, with its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.events.pop_first().map(|((at_ns, _), event)| (at_ns, event))
    }

    /// Returns whether the predicate holds for an event.
    pub(crate) fn any(&self, is_such: impl FnMut(&E) -> bool) -> bool {
        self.events.values().any(is_such)
    }

    /// Removes all events for which the predicate holds, and returns them in order.
    pub(crate) fn take(&mut self, mut is_such: impl FnMut(&E) -> bool) -> Vec<E> {
        let (taken, left) = std::mem::take(&mut self.events).into_iter().partition(|(_, it)| is_such(it));
        self.events = left;
        let taken: BTreeMap<(u64, u64), E> = taken;
        taken.into_values().collect()
    }
}
