//! An event handler that notes what it is given.

use std::sync::Arc;

use lnet_api::{Event, EventHandler, EventKind};
use parking_lot::Mutex;

/// An [`EventHandler`] that keeps every event, for tests without a handler of their own.
#[derive(Debug, Default)]
pub struct EventLog {
    noted: Mutex<(Vec<Event>, usize)>,
}

impl EventLog {
    /// An empty log.
    pub fn new() -> Arc<EventLog> {
        Arc::new(EventLog::default())
    }

    /// The events since this was asked last.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.noted.lock().0)
    }

    /// The kinds of the events since they were asked for last.
    pub fn take_kinds(&self) -> Vec<EventKind> {
        self.take().iter().map(|event| event.kind).collect()
    }

    /// How often it was woken.
    pub fn wakes(&self) -> usize {
        self.noted.lock().1
    }
}

impl EventHandler for EventLog {
    fn event(&self, event: &Event) {
        self.noted.lock().0.push(*event);
    }

    fn wake(&self) {
        self.noted.lock().1 += 1;
    }
}
