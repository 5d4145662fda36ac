//! A simulated network of message-passing LNDs for real engines, in virtual time.

mod arrive;
mod link;
mod lnd;
mod note;
mod seen;
mod send;
mod state;
mod step;

use std::sync::Arc;

use lnet_api::{Errno, Lnd, LndError};
use lnet_nid::{NetType, Nid};
use parking_lot::Mutex;

pub use link::{Defect, LinkModel};
pub use note::{Judgement, Lane, Note, Observer};
pub use seen::Seen;

use lnd::SimLnd;
use state::{Event, State};

/// A network with virtual time: all its events are in one queue, and [`SimNet::step`] runs the next
/// one. Its behaviour is determined by its seed and by the calls made to it, in their order.
///
/// The network is for one thread; it has locks only because an [`Lnd`] must be `Sync`.
pub struct SimNet {
    state: Mutex<State>,
    observer: Arc<dyn Observer>,
}

/// The result of [`SimNet::step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An event on the network was run.
    Network,
    /// A timer of [`SimNet::after`] fired; its number.
    Timer(u64),
}

impl SimNet {
    /// Makes a network without nodes, at time 0.
    #[must_use]
    pub fn new(seed: u64, observer: Arc<dyn Observer>) -> Arc<SimNet> {
        Arc::new(SimNet { state: Mutex::new(State::new(seed)), observer })
    }

    /// Makes the LND for networks of one type, with this behaviour from now on.
    ///
    /// # Errors
    /// EMFILE or ENFILE when there is no descriptor left for [`Lnd::wait_fd`].
    pub fn lnd(self: &Arc<SimNet>, net_type: NetType, link: LinkModel) -> Result<Arc<dyn Lnd>, LndError> {
        let shards = link.shards;
        self.state.lock().links.insert(net_type, link);
        SimLnd::new(self.clone(), net_type, shards).map(|lnd| Arc::new(lnd) as Arc<dyn Lnd>)
    }

    /// Runs the next event, and advances time to it; `None` if there is none.
    pub fn step(&self) -> Option<Step> {
        let event = self.state.lock().pop()?;
        if let Event::Timer(number) = event {
            return Some(Step::Timer(number));
        }
        self.happen(event);
        Some(Step::Network)
    }

    /// Runs events until `done` returns true or only timers are left; timers that fire are
    /// discarded.
    pub fn run_until(&self, mut done: impl FnMut() -> bool) {
        while !done() && self.has_traffic() && self.step().is_some() {}
    }

    /// Sets a timer, which makes [`SimNet::step`] return this number after a delay.
    pub fn after(&self, delay_ns: u64, number: u64) {
        let mut state = self.state.lock();
        let at = state.now_ns.saturating_add(delay_ns);
        state.schedule(at, Event::Timer(number));
    }

    /// Returns the virtual time in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.state.lock().now_ns
    }

    /// Returns the time of the next event.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.state.lock().next_at()
    }

    /// Returns whether any event but timers is to come.
    #[must_use]
    pub fn has_traffic(&self) -> bool {
        self.state.lock().has_traffic()
    }

    /// Returns the counts of events so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.state.lock().seen
    }

    /// Cuts two NIDs off from each other for a time: connections between them break, new ones fail.
    pub fn cut(&self, a: Nid, b: Nid, duration_ns: u64) {
        let mut state = self.state.lock();
        let until = state.now_ns.saturating_add(duration_ns);
        state.cut.insert((a.min(b), a.max(b)), until);
        state.seen.cuts += 1;
        state.break_between(a, b);
    }

    /// Breaks the connections between two NIDs. New ones can be made at once.
    pub fn disconnect(&self, a: Nid, b: Nid) {
        self.state.lock().break_between(a, b);
    }

    /// Restores all cut links, and changes the networks to [`LinkModel::without_faults`].
    pub fn end_faults(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        for link in state.links.values_mut() {
            *link = link.without_faults();
        }
    }

    /// Kills the node behind an NI: its engine gets no more calls, and the network releases its
    /// memory. Messages that it has sent may still arrive.
    pub fn crash(&self, ni: Nid) {
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        let Some(port) = state.ports.remove(&ni) else { return };
        let held: Vec<u64> = state.held.iter().filter(|(_, held)| held.ni == ni).map(|(&id, _)| id).collect();
        for id in held {
            gone.extend(state.held.remove(&id));
        }
        let mut receiving = Vec::new();
        for (conn, end) in state.conns_of(ni) {
            receiving.extend(state.detach(conn, end));
            state.break_conn(conn, Errno::ECONNRESET, Some(end));
        }
        state.delayed.retain(|_, delayed| delayed.ni != ni);
        let failing = state.take_failing(ni);
        drop(state);
        // The memory and the engine are dropped without the lock.
        drop((gone, receiving, failing, port));
    }

    /// Removes the connections of an NI without notifying either end, as for idle connections that
    /// are never used again. For worlds with more peers than connections.
    pub fn forget(&self, ni: Nid) {
        let mut state = self.state.lock();
        for (conn, end) in state.conns_of(ni) {
            let gone = (state.detach(conn, end), state.detach(conn, 1 - end));
            state.conns.remove(&conn);
            drop(gone);
        }
    }

    /// Releases the engines of all NIs.
    pub fn crash_all(&self) {
        let nis: Vec<Nid> = self.state.lock().ports.keys().copied().collect();
        for ni in nis {
            self.crash(ni);
        }
    }

    fn notify(&self, note: Note) {
        self.observer.note(self.now_ns(), &note);
    }
}

impl State {
    fn break_between(&mut self, a: Nid, b: Nid) {
        for (conn, end) in self.conns_of(a) {
            if self.conns.get(&conn).is_some_and(|conn| conn.nids[1 - end] == b) {
                self.break_conn(conn, Errno::ECONNRESET, None);
            }
        }
    }
}
