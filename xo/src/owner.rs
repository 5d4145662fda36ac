//! Who gets the events of an operation that is part of something larger.

use crate::{Event, Machine};

/// Has started an operation on the client's behalf, and gets its events instead.
pub(crate) trait Owner: Send + Sync {
    /// Takes an event; what it gives goes to the client. Called without any lock, by whoever takes events.
    fn event(&self, machine: &Machine, event: Event) -> Option<Event>;

    /// What it gave is where the client gets it: on the way out of a wait, or among what waits to be given. Until then the machine
    /// must not end.
    fn given(&self, _: &Machine) {}
}
