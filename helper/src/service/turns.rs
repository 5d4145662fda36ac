//! The turns of clients: the work for each, within its user's share.

use std::sync::atomic::Ordering::Relaxed;

use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::client::{ClientState, PollSource, RequestState, RingState};
use super::descriptors::DOORBELL;
use super::schedule::{REQUEST_UNITS, UserKey};
use super::turn_meter::rest_for;
use super::worker::{Worker, ns};
use super::{IDLE_ROUNDS, Phase};
use crate::Drained;

impl Worker {
    /// Queues a client that has work.
    pub(super) fn queue(&mut self, slot: usize) {
        let name = self.clients.name(slot);
        let Some(client) = self.clients.get(slot) else { return };
        if !std::mem::replace(&mut client.queued, true) {
            self.schedule.wake(client.user, name);
        }
    }

    /// Serves every user with work within its share. Returns the units of work done, without those
    /// of visits to clients that had nothing to do.
    pub(super) fn serve_round(&mut self) -> usize {
        self.schedule.begin_round();
        let mut work = 0;
        // The end of the work for one connection is the start of the next one's.
        let mut looked_ns = None;
        while let Some(turn) = self.schedule.next() {
            let slot = self.clients.named(turn.connection);
            self.turn_meter.begin(looked_ns.unwrap_or_else(|| self.now_ns()));
            let units = slot.map_or(0, |slot| self.serve(slot, turn.budget));
            let now_ns = self.now_ns();
            looked_ns = Some(now_ns);
            self.end_work_for(turn.user, now_ns);
            work += units;
            // The client may have gone meanwhile.
            let again = self.has_work(turn.connection);
            self.schedule.served(turn, units, again);
        }
        self.note_longest_turn();
        work
    }

    /// Does work for a client outside of its user's turn; if it takes long, it counts for the user.
    /// Not to be called in a turn.
    pub(super) fn for_client<T: Default>(
        &mut self,
        slot: usize,
        act: impl FnOnce(&mut Worker, usize) -> T,
    ) -> T {
        let Some(user) = self.clients.get(slot).map(|client| client.user) else { return T::default() };
        // The client may go meanwhile.
        self.schedule.stay(user);
        self.turn_meter.begin(self.now_ns());
        let done = act(self, slot);
        self.end_work_for(user, self.now_ns());
        self.schedule.leave(user);
        done
    }

    /// Ends the work for a user. If it has taken very long, the user rests.
    fn end_work_for(&mut self, user: UserKey, now_ns: u64) {
        if let Some(rest_ns) = self.turn_meter.end(now_ns) {
            self.let_rest(user, now_ns, rest_ns);
        }
    }

    /// Lets a client's user rest for work that was done for the client elsewhere.
    pub(super) fn pay(&mut self, slot: usize, owed_ns: u64) {
        let user = self.clients.get(slot).map(|client| client.user);
        if let Some((user, rest_ns)) = user.zip(rest_for(owed_ns)) {
            self.let_rest(user, self.now_ns(), rest_ns);
        }
    }

    /// Lets a user rest that has taken very long, so that others have the thread for a while. Work
    /// for a user that rests already extends its rest. Root never rests. A service that stops ends
    /// all clients without waiting for rests to end.
    fn let_rest(&mut self, user: UserKey, now_ns: u64, rest_ns: u64) {
        let user_id = self.schedule.user(user);
        if self.shared.host.accounts().is_privileged(user_id) || self.phase == Phase::Stopping {
            return;
        }
        self.shared.counters.rested.fetch_add(1, Relaxed);
        if self.shared.may_warn() {
            let (uid, rest_ms) = (user_id.0, rest_ns / 1_000_000);
            tracing::warn!(
                uid,
                rest_ms,
                "a user has occupied a serving thread for too long: it is not served for `rest_ms`"
            );
        }
        self.schedule.suspend(user);
        let from_ns = self.resting.due(user.number()).map_or(now_ns, |until_ns| until_ns.max(now_ns));
        self.resting.set(user.number(), Some(from_ns.saturating_add(rest_ns)));
    }

    /// Returns whether the client's user rests, and has no turns for now.
    pub(super) fn has_no_turns(&mut self, slot: usize) -> bool {
        self.clients.get(slot).is_some_and(|client| self.schedule.is_suspended(client.user))
    }

    /// Resumes the users whose rest has ended.
    pub(super) fn resume_rested(&mut self, now_ns: u64) {
        while let Some(number) = self.resting.take_due(now_ns) {
            self.schedule.resume(UserKey::of(number));
        }
    }

    /// Announces on the rings of clients that have a turn that they are no longer polled. Returns
    /// whether no client has work.
    pub(super) fn rest_round(&mut self) -> bool {
        self.schedule.begin_round();
        while let Some(turn) = self.schedule.next() {
            let slot = self.clients.named(turn.connection);
            let again = slot.is_some_and(|slot| self.for_client(slot, |worker, slot| !worker.rests(slot)));
            self.schedule.served(turn, 0, again);
        }
        self.schedule.is_idle()
    }

    /// Stops polling a client whose only work is a ring without entries. Returns whether it did.
    fn rests(&mut self, slot: usize) -> bool {
        let Some(served) = self.clients.served(slot) else { return false };
        let has_request = served.pending.is_some()
            || served.readable && matches!(served.request_state, RequestState::Reading);
        if has_request
            || served.quiescing.is_some()
            || served.ring != RingState::Hot
            || !self.prepare_ring_sleep(slot)
        {
            return false;
        }
        if let Some(client) = self.clients.get(slot) {
            client.queued = false;
        }
        true
    }

    /// Announces on a ring that it is no longer polled, unless it has entries. Returns whether it
    /// did.
    fn prepare_ring_sleep(&mut self, slot: usize) -> bool {
        let doorbell = self.clients.mark(PollSource::Doorbell(slot));
        let Some(served) = self.clients.served(slot) else { return false };
        if !served.session.prepare_sleep() {
            return false;
        }
        served.ring = RingState::Asleep;
        if std::mem::take(&mut served.bell_muted)
            && let Some(bell) = served.session.doorbell()
        {
            // Watched again: rings that came meanwhile are reported now. Cannot fail: the doorbell
            // is registered.
            let _ = self.epoll.modify(bell, &mut EpollEvent::new(DOORBELL, doorbell));
        }
        true
    }

    /// Handles the event of a doorbell.
    pub(super) fn handle_doorbell(&mut self, slot: usize) {
        let Some(served) = self.clients.served(slot) else { return };
        match served.ring {
            RingState::Asleep => self.for_client(slot, Worker::wake),
            RingState::Hot if !std::mem::replace(&mut served.bell_muted, true) => {
                // Muted: a doorbell that rings while its ring is polled could do so without end.
                let mut nothing =
                    EpollEvent::new(EpollFlags::EPOLLET, self.clients.mark(PollSource::Doorbell(slot)));
                if let Some(bell) = self.clients.served(slot).and_then(|served| served.session.doorbell()) {
                    let _ = self.epoll.modify(bell, &mut nothing);
                }
            }
            RingState::Hot | RingState::None => {}
        }
    }

    /// Returns whether the client has more work after its turn, and marks it as queued then.
    fn has_work(&mut self, name: u64) -> bool {
        let serves = self.phase == Phase::Serving;
        let Some(slot) = self.clients.named(name) else { return false };
        let Some(client) = self.clients.get(slot) else { return false };
        client.queued = match &client.state {
            ClientState::Served(served) => {
                let reads =
                    served.readable && matches!(served.request_state, RequestState::Reading) && serves;
                served.ring == RingState::Hot || served.pending.is_some() && !served.is_answering() || reads
            }
            ClientState::Departing { .. } => true,
            ClientState::Refused(_) | ClientState::Departed { .. } => false,
        };
        client.queued
    }

    /// Does the work of a client. Returns the units of work used.
    fn serve(&mut self, slot: usize, budget: usize) -> usize {
        match self.clients.get(slot).map(|client| &client.state) {
            Some(ClientState::Served(_)) => self.serve_client(slot, budget),
            Some(ClientState::Refused(_)) => {
                self.refuse(slot);
                REQUEST_UNITS
            }
            Some(ClientState::Departing { .. }) => self.tear_down(slot, budget),
            Some(ClientState::Departed { .. }) | None => 0,
        }
    }

    /// Serves a client. Requests come first: the ring entries before each of them are carried out
    /// anyway.
    fn serve_client(&mut self, slot: usize, budget: usize) -> usize {
        let mut units = 0;
        while units < budget {
            let left = budget - units;
            let Some(served) = self.clients.served(slot) else { break };
            if served.pending.is_some() && !served.is_answering() {
                units += self.continue_request(slot, left);
            } else if served.readable
                && matches!(served.request_state, RequestState::Reading)
                && self.phase == Phase::Serving
            {
                units += self.read_one(slot, left);
            } else if served.ring == RingState::Hot {
                return units + self.drain(slot, left);
            } else {
                break;
            }
        }
        units
    }

    /// Carries out entries of a client's ring. Returns the units of work used.
    fn drain(&mut self, slot: usize, budget: usize) -> usize {
        let drive = self.shared.host.drive();
        let busy_poll_ns = ns(self.shared.config.busy_poll.max(drive.spin()));
        let Some(served) = self.clients.served(slot) else { return 0 };
        let most = served.quiescing.map_or(budget, |left| left.min(budget));
        let drained = served.session.drain_slice(most).and_then(|drained| {
            // The entries may have corrupted something; other faults are found by the sweep.
            if drained.entries > 0 {
                served.session.check()?
            }
            Ok(drained)
        });
        let Drained { entries, units, is_over } = match drained {
            Ok(drained) => drained,
            Err(violation) => {
                self.cut_off(slot, &violation);
                return 1;
            }
        };
        served.entries = served.entries.saturating_add(entries);
        if let Some(left) = &mut served.quiescing {
            *left -= entries;
            if is_over || *left == 0 {
                self.end_quiescing(slot);
            }
            return units;
        }
        if entries > 0 {
            served.idle_rounds = 0;
            return units;
        }
        if served.idle_rounds == 0 && busy_poll_ns > 0 {
            served.idle_since_ns = drive.now_ns();
        }
        served.idle_rounds += 1;
        // A client that must find this thread awake must not find its ring asleep.
        let is_idle = |since_ns| busy_poll_ns == 0 || drive.now_ns() - since_ns >= busy_poll_ns;
        if served.idle_rounds > IDLE_ROUNDS && is_idle(served.idle_since_ns) {
            self.prepare_ring_sleep(slot);
        }
        0
    }

    /// Starts to poll a client's ring.
    pub(super) fn wake(&mut self, slot: usize) {
        let Some(served) = self.clients.served(slot) else { return };
        if served.ring == RingState::Asleep {
            served.session.finish_sleep();
            (served.ring, served.idle_rounds) = (RingState::Hot, 0);
            self.queue(slot);
        }
    }

    fn note_longest_turn(&mut self) {
        let longest = self.schedule.longest() as u64;
        if longest > self.longest_turn {
            self.longest_turn = longest;
            self.shared.counters.longest_turn.fetch_max(longest, Relaxed);
        }
    }
}
