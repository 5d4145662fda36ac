//! Event handlers: a log, and what a test does with events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::{Event, EventHandler, EventKind, Sleeper};
use parking_lot::Mutex;

/// Remembers events until they are taken, and counts wake-ups.
#[derive(Default)]
pub struct EventLog {
    events: Mutex<Vec<Event>>,
    wakes: AtomicUsize,
    sleeper: Option<Arc<Sleeper>>,
    /// Whether an MD's last event is asserted to be its last.
    strict: bool,
}

impl EventLog {
    /// An empty log.
    pub fn new() -> Arc<EventLog> {
        Arc::default()
    }

    /// A log that panics at an event of an MD whose last event it remembers.
    pub fn strict() -> Arc<EventLog> {
        Arc::new(EventLog { strict: true, ..EventLog::default() })
    }

    /// A log that wakes the thread that waits for its events, and has room for so many.
    pub fn waking(sleeper: Arc<Sleeper>, room: usize) -> Arc<EventLog> {
        let (events, sleeper) = (Mutex::new(Vec::with_capacity(room)), Some(sleeper));
        Arc::new(EventLog { events, sleeper, ..EventLog::default() })
    }

    /// The events since some were taken.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.events.lock().is_empty()
    }

    /// Takes the events.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock())
    }

    /// Takes the first event that is such.
    pub fn take_first(&self, is_such: impl Fn(&Event) -> bool) -> Option<Event> {
        let mut events = self.events.lock();
        events.iter().position(is_such).map(|place| events.remove(place))
    }

    /// Exchanges the events for this list, whose room is then used.
    pub fn swap(&self, events: &mut Vec<Event>) {
        std::mem::swap(&mut *self.events.lock(), events);
    }

    /// The kinds of the events since some were taken.
    pub fn kinds(&self) -> Vec<EventKind> {
        self.events.lock().iter().map(|event| event.kind).collect()
    }

    /// Takes the events, and gives their kinds.
    pub fn take_kinds(&self) -> Vec<EventKind> {
        self.take().iter().map(|event| event.kind).collect()
    }

    /// How often it was woken.
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

struct Does<E, W> {
    event: E,
    wake: W,
}

impl<E: Fn(&Event) + Send + Sync, W: Fn() + Send + Sync> EventHandler for Does<E, W> {
    fn event(&self, event: &Event) {
        (self.event)(event);
    }

    fn wake(&self) {
        (self.wake)();
    }
}

/// Does the one thing with each event, and the other when it is woken.
pub fn on_both(
    event: impl Fn(&Event) + Send + Sync + 'static,
    wake: impl Fn() + Send + Sync + 'static,
) -> Arc<dyn EventHandler> {
    Arc::new(Does { event, wake })
}

/// Does this with each event.
pub fn on_event(event: impl Fn(&Event) + Send + Sync + 'static) -> Arc<dyn EventHandler> {
    on_both(event, || {})
}

/// Does this when it is woken.
pub fn on_wake(wake: impl Fn() + Send + Sync + 'static) -> Arc<dyn EventHandler> {
    on_both(|_| {}, wake)
}
