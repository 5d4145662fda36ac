//! Events of a poller: which streams and listeners are ready.

/// Maximum number of events of one call: between calls a poll checks its timers, and other work
/// gets its turn.
pub const EVENTS_MAX: usize = 64;

/// Changes on a stream or listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// There are bytes to read or connections to accept.
    pub readable: bool,
    /// There is room to write, or the connection is established.
    pub writable: bool,
    /// The other side has stopped sending, or the connection is broken: the driver reads until a
    /// receive reports it.
    pub ending: bool,
    /// The connection is broken, or both sides have stopped sending.
    pub broken: bool,
}

/// The events of one call, at most [`EVENTS_MAX`].
#[derive(Debug)]
pub struct Events(Vec<(u64, Readiness)>);

impl Events {
    /// Creates the list with room for the events of one call.
    #[must_use]
    pub fn new() -> Events {
        Events(Vec::with_capacity(EVENTS_MAX))
    }

    /// Removes all events.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the number of further events that fit.
    #[must_use]
    pub fn room(&self) -> usize {
        EVENTS_MAX - self.0.len()
    }

    /// Adds an event: the key of the watched descriptor, and the changes. A call without room is an
    /// error of the caller, and the event is lost.
    pub fn push(&mut self, key: u64, readiness: Readiness) {
        debug_assert!(self.room() > 0, "more than {EVENTS_MAX} events");
        if self.room() > 0 {
            self.0.push((key, readiness));
        }
    }

    /// Returns the events in the order of their arrival.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Readiness)> + '_ {
        self.0.iter().copied()
    }
}

impl Default for Events {
    fn default() -> Events {
        Events::new()
    }
}
