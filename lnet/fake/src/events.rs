//! Event handlers for tests: a log, and closures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::{Event, EventHandler, EventKind, Sleeper};
use parking_lot::Mutex;

/// Keeps events until they are taken, and counts wake-ups.
#[derive(Default)]
pub struct EventLog {
    events: Mutex<Vec<Event>>,
    wakes: AtomicUsize,
    sleeper: Option<Arc<Sleeper>>,
    /// True if the log panics at an event after an MD's last event.
    strict: bool,
}

impl EventLog {
    /// Makes an empty log.
    pub fn new() -> Arc<EventLog> {
        Arc::default()
    }

    /// Makes a log that panics at an event of an MD whose last event it contains.
    pub fn strict() -> Arc<EventLog> {
        Arc::new(EventLog { strict: true, ..EventLog::default() })
    }

    /// Makes a log with capacity for `room` events that wakes the thread that waits for them.
    pub fn waking(sleeper: Arc<Sleeper>, room: usize) -> Arc<EventLog> {
        let (events, sleeper) = (Mutex::new(Vec::with_capacity(room)), Some(sleeper));
        Arc::new(EventLog { events, sleeper, ..EventLog::default() })
    }

    /// Returns the events since they were last taken.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// Returns whether the log is empty.
    pub fn is_empty(&self) -> bool {
        self.events.lock().is_empty()
    }

    /// Removes and returns the events.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock())
    }

    /// Removes and returns the first event for which the predicate holds.
    pub fn take_first(&self, is_such: impl Fn(&Event) -> bool) -> Option<Event> {
        let mut events = self.events.lock();
        events.iter().position(is_such).map(|place| events.remove(place))
    }

    /// Exchanges the log's events for this list; the log then uses the list's capacity.
    pub fn swap(&self, events: &mut Vec<Event>) {
        std::mem::swap(&mut *self.events.lock(), events);
    }

    /// Returns the kinds of the events since they were last taken.
    pub fn kinds(&self) -> Vec<EventKind> {
        self.events.lock().iter().map(|event| event.kind).collect()
    }

    /// Removes the events and returns their kinds.
    pub fn take_kinds(&self) -> Vec<EventKind> {
        self.take().iter().map(|event| event.kind).collect()
    }

    /// Returns the number of wake-ups.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::SeqCst)
    }
}

impl EventHandler for EventLog {
    fn event(&self, event: &Event) {
        let mut events = self.events.lock();
        let gone = || events.iter().any(|earlier| earlier.md == event.md && earlier.unlinked);
        assert!(!self.strict || !gone(), "an event after the last one: {event:?}");
        events.push(*event);
    }

    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        self.sleeper.iter().for_each(|sleeper| sleeper.wake());
    }
}

struct ClosureHandler<E, W> {
    event: E,
    wake: W,
}

impl<E: Fn(&Event) + Send + Sync, W: Fn() + Send + Sync> EventHandler for ClosureHandler<E, W> {
    fn event(&self, event: &Event) {
        (self.event)(event);
    }

    fn wake(&self) {
        (self.wake)();
    }
}

/// Makes a handler that calls `event` for each event, and `wake` for each wake-up.
pub fn on_both(
    event: impl Fn(&Event) + Send + Sync + 'static,
    wake: impl Fn() + Send + Sync + 'static,
) -> Arc<dyn EventHandler> {
    Arc::new(ClosureHandler { event, wake })
}

/// Makes a handler that calls `event` for each event.
pub fn on_event(event: impl Fn(&Event) + Send + Sync + 'static) -> Arc<dyn EventHandler> {
    on_both(event, || {})
}

/// Makes a handler that calls `wake` for each wake-up.
pub fn on_wake(wake: impl Fn() + Send + Sync + 'static) -> Arc<dyn EventHandler> {
    on_both(|_| {}, wake)
}
