//! The deadlines of a serving thread. Those of its clients (for the hello, for reading an answer,
//! for requests above the client's rate, for the memory of a departed client) are in `deadlines`, by
//! slot; each of its own (the end of a pause, the next attempt to reach the porter, the next sweep)
//! is a field of [`Worker`]. The thread sleeps until the first of them all (`timeout`) and then
//! handles those that have passed (`handle_due`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sys::epoll::{EpollFlags, EpollTimeout};

use super::client::{ClientState, RequestState};
use super::worker::{Worker, ns};
use super::{DUE_BUDGET, Phase, SWEEP, UNREAD_LOOK};

impl Worker {
    /// Sets the deadline of a client in place of its previous one; `None` removes it.
    pub(super) fn set_due(&mut self, slot: usize, due_ns: Option<u64>) {
        if self.clients.get(slot).is_some() {
            self.timers.set(slot, due_ns);
        }
    }

    /// Handles the deadlines that have passed: at most [`DUE_BUDGET`] of those of clients, and all
    /// of the thread's own.
    pub(super) fn handle_due(&mut self, now_ns: u64) {
        for _ in 0..DUE_BUDGET {
            let Some(slot) = self.timers.take_due(now_ns) else { break };
            self.for_client(slot, |worker, slot| worker.handle_one(slot, now_ns));
        }
        self.unpark_due(now_ns);
        self.resume_rested(now_ns);
        if self.paused_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.paused_until_ns = None;
            self.watch_listener(EpollFlags::EPOLLIN);
        }
        if self.deferred_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.deferred_ns = None;
            self.admit_pending();
        }
        if self.retry_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            self.flush_link();
        }
        if self.relink_ns.is_some_and(|again_ns| again_ns <= now_ns) {
            self.leave_porter();
        }
        if self.silent_ns().is_some_and(|silent_ns| silent_ns <= now_ns) {
            self.replace_porter(now_ns);
        }
        if self.waits_for_readers() && self.unread_ns <= now_ns {
            self.unread_ns = now_ns + ns(UNREAD_LOOK);
            self.check_all_unread();
        }
        if self.sweep_ns <= now_ns {
            self.sweep_ns = now_ns + ns(SWEEP);
            self.begin_sweep();
        }
    }

    /// Handles the deadline of a client; its meaning depends on the client's state. A throttled
    /// client is read again, an answer is sent again or given up, and a client without a hello is
    /// cut off.
    pub(super) fn handle_one(&mut self, slot: usize, now_ns: u64) {
        let Some(client) = self.clients.get(slot) else { return };
        match &mut client.state {
            ClientState::Served(served) => {
                match served.request_state {
                    RequestState::Throttled => {
                        served.request_state = RequestState::Reading;
                        // Waiting does not extend the deadline of its hello.
                        let due_ns = served.greet_until_ns;
                        if self.phase == Phase::Serving {
                            self.set_due(slot, due_ns);
                            self.queue(slot);
                        }
                    }
                    RequestState::Answering { until_ns, crowded, .. } if crowded || now_ns < until_ns => {
                        self.answer_now(slot);
                    }
                    RequestState::Answering { .. } => {
                        self.shared.counters.unread.fetch_add(1, Ordering::Relaxed);
                        self.cut_off(slot, &"it does not read its answers");
                    }
                    RequestState::Reading | RequestState::Parked => {
                        self.shared.counters.silent.fetch_add(1, Ordering::Relaxed);
                        self.cut_off(slot, &"it sent no hello in time");
                    }
                }
            }
            ClientState::Refused(_) => self.remove(slot),
            ClientState::Departing { .. } => {}
            ClientState::Departed { .. } => self.check_departed(slot, now_ns),
        }
    }

    /// Returns the time that the thread can sleep: until its next deadline.
    pub(super) fn timeout(&self, network_ns: Option<u64>) -> EpollTimeout {
        let sweep_ns = (self.leftovers || !self.clients.is_empty()).then_some(self.sweep_ns);
        let timer_ns = self.timers.first().map(|(due_ns, _)| due_ns);
        let unread_ns = self.waits_for_readers().then_some(self.unread_ns);
        let parked_ns = self.parked.first().map(|(until_ns, _)| until_ns);
        let rested_ns = self.resting.first().map(|(until_ns, _)| until_ns);
        let links = [self.relink_ns, self.retry_ns, self.silent_ns()];
        let others = [self.paused_until_ns, self.deferred_ns, unread_ns, parked_ns, rested_ns];
        let next_ns = [network_ns, sweep_ns, timer_ns].into_iter().chain(others).chain(links).flatten().min();
        let Some(next_ns) = next_ns else { return EpollTimeout::NONE };
        // Rounded up: after an early wake-up the thread would sleep for the same timer again.
        let left = Duration::from_nanos(self.shared.host.drive().sleep_ns(next_ns));
        EpollTimeout::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(EpollTimeout::MAX)
    }
}
