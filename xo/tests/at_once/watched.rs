//! An LNet whose deliveries can be held inside the call that drives the network.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use lnet_api::{
    Distance, DropWatcher, EqHandle, Event, EventHandler, EventKind, Get, Handler, LNet, LNetError, Md,
    MdHandle, MeHandle, MeSpec, Polled, Put, Unlink,
};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use parking_lot::{Condvar, Mutex};

use super::TIME_LIMIT;

/// A delivery of a message, and the thread that makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    /// Index of the machine, in the order of their starts.
    pub(crate) machine: usize,
    pub(crate) thread: ThreadId,
    /// The name of the thread.
    pub(crate) name: String,
}

/// Holds each message of a machine between its arrival and the event in the machine's queue, until
/// the gate is opened.
#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    /// The number of machines started.
    machines: usize,
    /// The number of messages that passed while the gate was open, and the name of the thread that
    /// delivered the last one.
    passed: usize,
    last: String,
    /// The deliveries since the gate was closed, the number that is held now, and its maximum.
    deliveries: Vec<Delivery>,
    held: usize,
    most_held: usize,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    pub(crate) fn open(&self) {
        self.state.lock().is_closed = false;
        self.changed.notify_all();
    }

    /// Waits until this number of deliveries is held. Returns those that have begun.
    ///
    /// # Panics
    /// If it hangs.
    pub(crate) fn wait_for(&self, held: usize) -> Vec<Delivery> {
        let mut state = self.state.lock();
        let late = self.changed.wait_while_for(&mut state, |state| state.held < held, TIME_LIMIT);
        assert!(!late.timed_out(), "{} of {held} deliveries at a time: {:?}", state.held, state.deliveries);
        state.deliveries.clone()
    }

    /// Waits until this number of messages has passed an open gate. Returns the name of the thread
    /// that delivered the last one.
    ///
    /// # Panics
    /// If it hangs.
    pub(crate) fn wait_for_passed(&self, messages: usize) -> String {
        let mut state = self.state.lock();
        let late = self.changed.wait_while_for(&mut state, |state| state.passed < messages, TIME_LIMIT);
        assert!(!late.timed_out(), "{} of {messages} messages", state.passed);
        state.last.clone()
    }

    /// Returns the deliveries that have begun since the gate was closed, and the most that were
    /// held at a time.
    pub(crate) fn deliveries(&self) -> (Vec<Delivery>, usize) {
        let state = self.state.lock();
        (state.deliveries.clone(), state.most_held)
    }

    fn pass(&self, machine: usize) {
        let name = thread::current().name().unwrap_or("?").to_string();
        let mut state = self.state.lock();
        if !state.is_closed {
            state.passed += 1;
            state.last = name;
            self.changed.notify_all();
            return;
        }
        state.deliveries.push(Delivery { machine, thread: thread::current().id(), name });
        state.held += 1;
        state.most_held = state.most_held.max(state.held);
        self.changed.notify_all();
        // The test has failed by then, and this thread must not block its end.
        self.changed.wait_while_for(&mut state, |state| state.is_closed, 2 * TIME_LIMIT);
        state.held -= 1;
    }
}

/// Opens a gate when its test ends, also by a panic.
pub(crate) struct Opens<'a>(pub(crate) &'a Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The LNet of a node, with a gate between it and its users.
pub(crate) struct Watched {
    lnet: Arc<dyn LNet>,
    gate: Arc<Gate>,
}

impl Watched {
    pub(crate) fn new(lnet: Arc<dyn LNet>) -> (Arc<Watched>, Arc<Gate>) {
        let gate = Arc::<Gate>::default();
        (Arc::new(Watched { lnet, gate: gate.clone() }), gate)
    }
}

/// The handler of a machine's events.
struct HeldHandler {
    handler: Handler,
    gate: Arc<Gate>,
    machine: usize,
}

impl EventHandler for HeldHandler {
    fn event(&self, event: &Event) {
        if event.kind == EventKind::Put {
            self.gate.pass(self.machine);
        }
        self.handler.event(event);
    }

    fn wake(&self) {
        self.handler.wake();
    }
}

impl LNet for Watched {
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError> {
        let mut state = self.gate.state.lock();
        let held = HeldHandler { handler, gate: self.gate.clone(), machine: state.machines };
        state.machines += 1;
        drop(state);
        self.lnet.eq_alloc(Arc::new(held))
    }

    fn eq_alloc_polled(
        &self,
        count: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EqHandle, LNetError> {
        self.lnet.eq_alloc_polled(count, handler)
    }

    fn eq_poll(&self, eqs: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        self.lnet.eq_poll(eqs)
    }

    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError> {
        self.lnet.eq_free(eq)
    }

    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.lnet.me_attach(me)
    }

    fn me_insert(&self, beside: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.lnet.me_insert(beside, me)
    }

    fn me_unlink(&self, me: MeHandle) -> Result<(), LNetError> {
        self.lnet.me_unlink(me)
    }

    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        self.lnet.md_attach(me, md, unlink)
    }

    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        self.lnet.md_bind(md, unlink)
    }

    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        self.lnet.md_unlink(md)
    }

    fn put(&self, put: &Put) -> Result<(), LNetError> {
        self.lnet.put(put)
    }

    fn get(&self, get: &Get) -> Result<(), LNetError> {
        self.lnet.get(get)
    }

    fn bind_put(&self, put: Put<Md>) -> Result<Option<MdHandle>, LNetError> {
        self.lnet.bind_put(put)
    }

    fn bind_get(&self, get: Get<Md>) -> Result<Option<MdHandle>, LNetError> {
        self.lnet.bind_get(get)
    }

    fn set_lazy(&self, portal: Portal, lazy: bool) {
        self.lnet.set_lazy(portal, lazy);
    }

    fn watch_drops(&self, watcher: Arc<dyn DropWatcher>) -> Result<(), LNetError> {
        self.lnet.watch_drops(watcher)
    }

    fn home(&self, portal: Portal, bits: MatchBits) -> usize {
        self.lnet.home(portal, bits)
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        self.lnet.distance(nid)
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        self.lnet.local_ids()
    }

    fn for_each_local_id(&self, look: &mut dyn FnMut(ProcessId)) {
        self.lnet.for_each_local_id(look);
    }
}
