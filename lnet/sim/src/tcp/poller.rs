//! Edge-triggered readiness, as with epoll.
//!
//! A change of a watched object puts it on the poller's list. [`Poller::wait`] takes objects from
//! the list and reports their *present* state, not the change: nothing, if the object is no longer
//! ready. An object that has not changed is not reported again, even if it is ready.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;

use lnet_api::Errno;
use lnet_socklnd::sys::{Events, Handle, Poller, Readiness};

use super::host::SimHost;
use super::state::{State, TcpWire};

/// The ends and listeners that one poller watches.
#[derive(Default)]
pub(super) struct Watching {
    watched: BTreeMap<u64, Watched>,
    /// The ends and listeners that have changed, in order.
    changed: VecDeque<u64>,
    woken: bool,
}

struct Watched {
    key: u64,
    listed: bool,
}

/// A poller of a simulated host.
pub(super) struct SimPoller {
    pub(super) host: SimHost,
    pub(super) id: u64,
}

impl Poller for SimPoller {
    fn add(&self, what: Handle<'_>, key: u64) -> Result<(), Errno> {
        let Handle::Number(id) = what else { return Err(Errno::EBADF) };
        let mut state = self.host.lock();
        let Some(watching) = state.own.pollers.get_mut(&self.id) else { return Err(Errno::EBADF) };
        watching.watched.insert(id, Watched { key, listed: false });
        if state.own.readiness(id).is_some_and(|[readable, writable, ..]| readable || writable) {
            state.notify(id);
        }
        Ok(())
    }

    fn delete(&self, what: Handle<'_>) {
        let Handle::Number(id) = what else { return };
        if let Some(watching) = self.host.lock().own.pollers.get_mut(&self.id) {
            watching.forget(id);
        }
    }

    fn wait(&self, events: &mut Events) {
        events.clear();
        let mut guard = self.host.lock();
        let state = &mut *guard;
        let spurious = state.rng.chance(state.behaviour.spurious);
        let Some(watching) = state.own.pollers.get_mut(&self.id) else { return };
        watching.woken = false;
        if spurious && !watching.watched.is_empty() {
            let place = state.rng.index(watching.watched.len());
            if let Some(&id) = watching.watched.keys().nth(place) {
                state.seen.spurious += 1;
                watching.list(id);
            }
        }
        while events.room() > 0 {
            let Some(watching) = state.own.pollers.get_mut(&self.id) else { return };
            let Some(id) = watching.changed.pop_front() else { return };
            let Some(watched) = watching.watched.get_mut(&id) else { continue };
            watched.listed = false;
            let key = watched.key;
            let Some([readable, writable, ending, broken]) = state.own.readiness(id) else { continue };
            if readable || writable {
                events.push(key, Readiness { readable, writable, ending, broken });
            }
        }
    }

    fn wake(&self) {
        if let Some(watching) = self.host.lock().own.pollers.get_mut(&self.id) {
            watching.woken = true;
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        unreachable!("no thread sleeps in virtual time")
    }
}

impl Drop for SimPoller {
    fn drop(&mut self) {
        self.host.lock().own.pollers.remove(&self.id);
    }
}

impl Watching {
    fn list(&mut self, id: u64) {
        if let Some(watched) = self.watched.get_mut(&id)
            && !std::mem::replace(&mut watched.listed, true)
        {
            self.changed.push_back(id);
        }
    }

    /// Returns whether this poller has a report, so that a thread that sleeps on the poller would
    /// be woken.
    pub(super) fn has_reports(&self, reports: impl Fn(u64) -> bool) -> bool {
        self.woken || self.changed.iter().any(|id| reports(*id))
    }

    fn forget(&mut self, id: u64) {
        self.watched.remove(&id);
        self.changed.retain(|changed| *changed != id);
    }
}

impl State {
    /// Lists an end or a listener as changed, at all pollers.
    pub(super) fn notify(&mut self, id: u64) {
        self.own.pollers.values_mut().for_each(|watching| watching.list(id));
    }

    /// Stops watching an end or listener that no longer exists.
    pub(super) fn forget_watch(&mut self, id: u64) {
        self.own.pollers.values_mut().for_each(|watching| watching.forget(id));
    }
}

impl TcpWire {
    /// Returns four flags of an object: readable, writable, ending, broken; `None` if the object no
    /// longer exists.
    pub(super) fn readiness(&self, id: u64) -> Option<[bool; 4]> {
        if let Some(listening) = self.listeners.get(&id) {
            return Some([!listening.waiting.is_empty(), false, false, false]);
        }
        self.ends.get(&id).map(super::end::End::readiness)
    }
}
