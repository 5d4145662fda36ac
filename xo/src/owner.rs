//! Who gets the events of an operation that is part of something larger.

use std::sync::Arc;

use crate::{Event, Machine};

/// Has started an operation on the client's behalf, and gets its events instead.
pub(crate) trait Owner: Send + Sync {
    /// Takes an event; what it gives goes to the client. Called without any lock, by whoever takes events.
    fn event(&self, machine: &Machine, event: Event) -> Option<Event>;

    /// What it gave is where the client gets it: on the way out of a wait, or among what waits to be given. Until then the machine
    /// must not end.
    fn given(&self, _: &Machine) {}
}

/// An event that has been taken from the transport.
pub(crate) struct Taken {
    pub(crate) event: Event,
    pub(crate) owner: Option<Arc<dyn Owner>>,
}

impl Taken {
    /// What the client gets of it.
    pub(crate) fn pass(self, machine: &Machine) -> Option<Event> {
        match self.owner {
            None => Some(self.event),
            Some(owner) => {
                let passed = owner.event(machine, self.event)?;
                owner.given(machine);
                Some(passed)
            }
        }
    }
}
