//! The end of clients and of the service, and the periodic sweep over all clients: all of it in
//! slices.

use std::fmt::Display;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use lnet_api::Errno;
use nix::sys::socket::{Shutdown, shutdown};
use nlx_driver_proto::{Reason, Refusal};

use super::answers::Lingering;
use super::client::{Client, ClientState, RequestState, RingState};
use super::descriptors::{END, ROOM};
use super::worker::{Worker, ns};
use super::{DEPARTURE_LOOK, LEFTOVERS_SLICE, PLACES_SLICE, Phase, SWEEP, socket};

impl Worker {
    /// Cuts a client off that has broken the rules.
    pub(super) fn cut_off(&mut self, slot: usize, reason: &dyn Display) {
        let Some(client) = self.clients.get(slot) else { return };
        let credentials = client.credentials;
        self.shared.counters.cut_off.fetch_add(1, Ordering::Relaxed);
        if self.shared.may_warn() {
            tracing::warn!(pid = credentials.pid, uid = credentials.uid, why = %reason, "a client is cut off");
        }
        self.depart(slot);
    }

    /// Closes the session; the socket stays until LNet has released the session's memory.
    pub(super) fn depart(&mut self, slot: usize) {
        match self.clients.get(slot).map(|client| &client.state) {
            Some(ClientState::Served(_)) => self.begin_departure(slot, true),
            Some(ClientState::Refused(_)) => self.remove(slot),
            Some(ClientState::Departed { .. }) => self.handle_one(slot, self.now_ns()),
            Some(ClientState::Departing { .. }) | None => {}
        }
    }

    /// Closes the session and the socket of a client that has gone, or needs no notification.
    pub(super) fn leave(&mut self, slot: usize) {
        match self.clients.get(slot).map(|client| &client.state) {
            Some(ClientState::Served(_)) => self.begin_departure(slot, false),
            Some(_) => self.remove(slot),
            None => {}
        }
    }

    fn begin_departure(&mut self, slot: usize, stays: bool) {
        self.end_quiescing(slot);
        self.forget_ring(slot);
        self.set_due(slot, None);
        let Some(client) = self.clients.get(slot) else { return };
        let _ = self.epoll.delete(&client.socket);
        client.state = match mem::replace(&mut client.state, blank()) {
            ClientState::Served(served) => ClientState::Departing { served, stays },
            other => other,
        };
        self.queue(slot);
    }

    /// Removes a client that has no session or whose session has ended.
    pub(super) fn remove(&mut self, slot: usize) {
        self.set_due(slot, None);
        let Some(client) = self.clients.remove(slot) else { return };
        let Client { id, socket, kept, unread, payer, user, admission, .. } = client;
        self.schedule.leave(user);
        let _ = self.epoll.delete(&socket);
        self.worker_handle().load.fetch_sub(1, Ordering::Relaxed);
        let lingers = unread.count() > 0 && !socket::is_all_read(socket.as_fd());
        if lingers && self.phase != Phase::Stopping {
            // The client sees the end of the stream. The descriptors that it has not received still
            // count.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
            self.lingering.push(Lingering { id, socket, kept, payer, admission, _unread: unread });
        } else {
            self.hand_over(id, payer, socket, admission);
        }
    }

    /// Does a part of closing a client's session. Returns the units of work used.
    pub(super) fn tear_down(&mut self, slot: usize, budget: usize) -> usize {
        let Some(client) = self.clients.get(slot) else { return 0 };
        let ClientState::Departing { served, stays } = &mut client.state else { return 0 };
        let ((units, departure), stays) = (served.session.close_some(budget), *stays);
        let Some(departure) = departure else { return units };
        self.leftovers |= self.shared.host.has_leftovers();
        if !stays {
            self.remove(slot);
            return units;
        }
        let now_ns = self.now_ns();
        let until_ns = now_ns + ns(self.shared.config.quarantine);
        if let Some(client) = self.clients.get(slot) {
            client.state = ClientState::Departed { departure, until_ns, check_ns: ns(DEPARTURE_LOOK) };
        }
        self.check_departed(slot, now_ns);
        units
    }

    /// Checks whether LNet has released the memory of a client that is cut off.
    pub(super) fn check_departed(&mut self, slot: usize, now_ns: u64) {
        let stops = self.phase == Phase::Stopping;
        let Some(client) = self.clients.get(slot) else { return };
        let ClientState::Departed { departure, until_ns, check_ns } = &mut client.state else { return };
        let is_late = *until_ns <= now_ns;
        // A client that is still connected takes the end of the stream as a sign that nothing
        // writes into its memory any more.
        let may_go = stops || socket::is_hung_up(client.socket.as_fd());
        if departure.is_over() || is_late && may_go {
            return self.remove(slot);
        }
        // The interval doubles, because many departed clients may wait for LNet at a time.
        let delay_ns = if is_late { ns(SWEEP) } else { *check_ns };
        *check_ns = (*check_ns * 2).min(ns(SWEEP));
        self.set_due(slot, Some(now_ns + delay_ns));
    }

    /// Stops watching a client's doorbell. Closing the doorbell here would not remove it from the
    /// epoll set, because the client may hold it open.
    fn forget_ring(&mut self, slot: usize) {
        let Some(served) = self.clients.served(slot) else { return };
        if let Some(doorbell) = served.session.doorbell().filter(|_| served.ring != RingState::None) {
            let _ = self.epoll.delete(doorbell);
        }
        served.ring = RingState::None;
    }

    /// Starts to drain or stop the service, client by client ([`Worker::sweep_slice`]).
    pub(super) fn shut_down(&mut self) {
        self.stop_listening();
        self.resume_rested(u64::MAX);
        self.shutdown_at = Some(0);
    }

    /// Does a slice of the work over all clients. Returns whether more remains.
    pub(super) fn sweep_slice(&mut self) -> bool {
        if let Some(at) = self.shutdown_at {
            let end = (at + PLACES_SLICE).min(self.clients.slots());
            for slot in at..end {
                let stops = self.phase == Phase::Stopping;
                self.for_client(slot, if stops { Worker::depart } else { Worker::quiesce });
            }
            self.shutdown_at = (end < self.clients.slots()).then_some(end);
            self.settle();
        }
        if let Some(at) = self.sweeping {
            let end = (at + PLACES_SLICE).min(self.clients.slots());
            for slot in at..end {
                // Clients of a resting user are checked after the rest.
                if !self.has_no_turns(slot) {
                    self.for_client(slot, Worker::sweep);
                }
            }
            self.sweeping = (end < self.clients.slots()).then_some(end);
        }
        if let Some(at) = self.sweeping_leftovers {
            self.sweeping_leftovers = self.shared.host.sweep_some(at, LEFTOVERS_SLICE);
            self.leftovers = self.shared.host.has_leftovers();
        }
        self.shutdown_at.is_some() || self.sweeping.is_some() || self.sweeping_leftovers.is_some()
    }

    /// Starts a sweep over all clients, and over leftovers of departed ones.
    pub(super) fn begin_sweep(&mut self) {
        self.sweeping = self.sweeping.or(Some(0));
        self.ask_porter();
        if self.leftovers {
            self.sweeping_leftovers = self.sweeping_leftovers.or(Some(0));
        }
    }

    /// Finds violations that no call of a session detects, and ring entries for which the doorbell
    /// has not rung: a thread of the client may be stopped between the two.
    fn sweep(&mut self, slot: usize) {
        let Some(served) = self.clients.served(slot) else { return };
        let stands_in_ring = served.ring == RingState::Asleep && !served.session.prepare_sleep();
        served.session.trim();
        served.session.send_signals();
        let owed_ns = served.session.take_owed_ns();
        let checked = served.session.check();
        if stands_in_ring {
            (served.ring, served.idle_rounds) = (RingState::Hot, 0);
            self.queue(slot);
        }
        self.pay(slot, owed_ns);
        if let Err(violation) = checked {
            self.cut_off(slot, &violation);
        }
    }

    /// Has the remaining entries of a client's ring carried out; after them nothing is read from
    /// the client.
    fn quiesce(&mut self, slot: usize) {
        let Some(served) = self.clients.served(slot) else { return };
        if served.quiescing.is_some() {
            return;
        }
        let slots = served.session.quotas().ring_slots as usize;
        served.quiescing = Some(slots);
        self.quiescing += 1;
        if served.ring == RingState::None {
            return self.end_quiescing(slot);
        }
        self.wake(slot);
        self.queue(slot);
    }

    /// Ends the quiescing of a client.
    pub(super) fn end_quiescing(&mut self, slot: usize) {
        let Some(served) = self.clients.served(slot) else { return };
        if served.quiescing.take().is_none() {
            return;
        }
        let answering = matches!(served.request_state, RequestState::Answering { .. });
        self.quiescing -= 1;
        self.forget_ring(slot);
        self.set_due(slot, None);
        self.watch(slot, if answering { ROOM } else { END });
        self.settle();
    }

    /// Reports that this thread has done the work of the phase, if it has.
    fn settle(&mut self) {
        if self.shutdown_at.is_none() && self.quiescing == 0 {
            self.worker_handle().settled.store(true, Ordering::Release);
        }
    }
}

/// Returns the placeholder state of a client while its state changes.
fn blank() -> ClientState {
    ClientState::Refused(Refusal::new(Errno::ESHUTDOWN, Reason::Ending))
}
