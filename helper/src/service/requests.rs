//! Requests: read in their client's turn, carried out after the ring entries before them.

use std::mem;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use nix::sys::epoll::{EpollEvent, EpollFlags};
use nlx_driver_proto::{Header, Kind, PACKET_MAX};

use super::client::{ClientState, PendingRequest, PollSource, RequestState, RingState};
use super::descriptors::{DOORBELL, END, ENDED, REQUESTS};
use super::schedule::{REQUEST_UNITS, request_units};
use super::socket::ReceiveResult;
use super::worker::Worker;
use crate::Drained;

impl Worker {
    pub(super) fn handle_client_event(&mut self, slot: usize, flags: EpollFlags) {
        if flags.intersects(ENDED) {
            // The client may have closed only its sending direction: then it waits for the end of
            // ours, which means that LNet has released its memory.
            return self.for_client(slot, Worker::depart);
        }
        let Some(client) = self.clients.get(slot) else { return };
        match &mut client.state {
            ClientState::Served(served) if matches!(served.request_state, RequestState::Answering { .. }) => {
                self.for_client(slot, Worker::answer_now);
            }
            ClientState::Served(served) if served.readable => {
                // Reported again before the earlier requests were read: mute it until then.
                if !mem::replace(&mut served.muted, true) {
                    self.watch(slot, END);
                }
            }
            ClientState::Served(served) => {
                served.readable = true;
                self.queue(slot);
            }
            ClientState::Refused(_) => self.queue(slot),
            ClientState::Departing { .. } | ClientState::Departed { .. } => {}
        }
    }

    /// Reads a request, and answers it once the ring entries before it are carried out. Returns the
    /// units of work used.
    pub(super) fn read_one(&mut self, slot: usize, budget: usize) -> usize {
        let now_ns = self.now_ns();
        let Some(client) = self.clients.get(slot) else { return 0 };
        let ClientState::Served(served) = &mut client.state else { return 0 };
        let mut rate = served.rate;
        let shared_rate = self.schedule.state(client.user).and_then(|user| user.requests.clone());
        if let Err(later_ns) = rate.take(now_ns) {
            served.request_state = RequestState::Throttled;
            self.shared.counters.throttled.fetch_add(1, Ordering::Relaxed);
            self.set_due(slot, Some(later_ns));
            return 1;
        }
        if let Some(Err(later_ns)) = shared_rate.as_ref().map(|shared| shared.take(now_ns)) {
            self.park(slot, later_ns);
            return 1;
        }
        let may_attach = client.may_attach;
        match self.inbox.receive(client.socket.as_fd(), may_attach) {
            ReceiveResult::Packet(length) if length > PACKET_MAX => {
                self.cut_off(slot, &format_args!("it sent a packet of more than {PACKET_MAX} bytes"));
                REQUEST_UNITS
            }
            ReceiveResult::Packet(length) => {
                served.rate = rate;
                self.wake(slot);
                self.begin_request(slot, length, budget)
            }
            ReceiveResult::Attached => {
                self.cut_off(slot, &"it sent descriptors with a packet, which no packet may have");
                REQUEST_UNITS
            }
            ReceiveResult::Nothing => {
                if let Some(shared) = shared_rate {
                    shared.give_back();
                }
                served.readable = false;
                if mem::take(&mut served.muted) {
                    // Reports the requests that have come since.
                    self.watch(slot, REQUESTS);
                }
                1
            }
            ReceiveResult::End => {
                self.depart(slot);
                1
            }
        }
    }

    /// Carries out the request in the inbox now if the budget is enough for the ring entries before
    /// it; else keeps it.
    pub(super) fn begin_request(&mut self, slot: usize, length: usize, budget: usize) -> usize {
        let Some(served) = self.clients.served(slot) else { return REQUEST_UNITS };
        let slots = served.session.quotas().ring_slots as usize;
        // `None`: the client has been cut off.
        let Some(drained) = self.drain_before(slot, slots.min(budget)) else { return REQUEST_UNITS };
        let Drained { entries, mut units, mut is_over } = drained;
        let mut left = slots - entries;
        let mut packet = Vec::new();
        if !is_over && packet.try_reserve_exact(length).is_err() {
            // Without memory to keep the packet, the entries are carried out beyond the budget.
            while !is_over && left > 0 {
                let Some(drained) = self.drain_before(slot, left) else { return units };
                (left, units, is_over) = (left - drained.entries, units + drained.units, drained.is_over);
            }
            is_over = true;
        }
        if is_over {
            return units + self.carry_out(slot, length);
        }
        let Some(served) = self.clients.served(slot) else { return units };
        packet.extend_from_slice(self.inbox.packet(length));
        served.pending = Some(PendingRequest { packet, entries: left });
        units
    }

    /// Continues with a request that has been received. Returns the units of work used.
    pub(super) fn continue_request(&mut self, slot: usize, budget: usize) -> usize {
        let Some(PendingRequest { entries, .. }) =
            self.clients.served(slot).and_then(|served| served.pending.as_ref())
        else {
            return 0;
        };
        let most = budget.min(*entries);
        let Some(Drained { entries, units, is_over }) = self.drain_before(slot, most) else {
            return REQUEST_UNITS;
        };
        let Some(served) = self.clients.served(slot) else { return units };
        if let Some(pending) = &mut served.pending {
            pending.entries -= entries;
            if !is_over {
                return units.max(1);
            }
        }
        let Some(PendingRequest { packet, .. }) = served.pending.take() else { return units };
        let length = self.inbox.put(&packet);
        units + self.carry_out(slot, length)
    }

    /// Carries out ring entries that may precede a request; `None` if the client is cut off because
    /// of one.
    fn drain_before(&mut self, slot: usize, most: usize) -> Option<Drained> {
        let served = self.clients.served(slot)?;
        match served.session.drain_slice(most) {
            Ok(drained) => {
                served.entries = served.entries.saturating_add(drained.entries);
                Some(drained)
            }
            Err(violation) => {
                self.cut_off(slot, &violation);
                None
            }
        }
    }

    /// Carries out the request in the inbox, and answers it. Returns the units of work used.
    pub(super) fn carry_out(&mut self, slot: usize, length: usize) -> usize {
        let units = request_units(self.inbox.packet(length));
        self.repay_sync(slot, length);
        let Some(served) = self.clients.served(slot) else { return units };
        let carried_out = served.session.request_alone(self.inbox.packet(length), &mut self.answer);
        if let Err(violation) = carried_out {
            self.cut_off(slot, &violation);
            return units;
        }
        if served.ring == RingState::None && !self.begin_ring(slot) {
            return units;
        }
        self.send_answer(slot);
        units
    }

    /// Refunds a sync request. A client whose ring is full requests by a sync that it be carried
    /// out: one sync for each half of a ring does not count against its requests per second,
    /// because its entries have used its share already.
    pub(super) fn repay_sync(&mut self, slot: usize, length: usize) {
        let is_sync = kind_of(self.inbox.packet(length)) == Some(Kind::Sync as u16);
        let Some(client) = self.clients.get(slot).filter(|_| is_sync) else { return };
        let ClientState::Served(served) = &mut client.state else { return };
        if served.entries < (served.session.quotas().ring_slots as usize / 2).max(1) {
            return;
        }
        served.entries = 0;
        served.rate.give_back();
        if let Some(shared) = self.schedule.state(client.user).and_then(|user| user.requests.as_ref()) {
            shared.give_back();
        }
    }

    /// Starts to watch the doorbell, which exists after the hello. Returns false if it cannot be
    /// watched.
    pub(super) fn begin_ring(&mut self, slot: usize) -> bool {
        let event = EpollEvent::new(DOORBELL, self.clients.mark(PollSource::Doorbell(slot)));
        let Some(client) = self.clients.get(slot) else { return false };
        let ClientState::Served(served) = &mut client.state else { return false };
        let Some(doorbell) = served.session.doorbell() else { return true };
        if let Err(errno) = self.epoll.add(doorbell, event) {
            self.cut_off(slot, &format_args!("its doorbell cannot be watched: {errno}"));
            return false;
        }
        (served.ring, served.greet_until_ns) = (RingState::Hot, None);
        self.queue(slot);
        self.set_due(slot, None);
        true
    }
}

/// Returns the kind that a packet claims to have.
pub(super) fn kind_of(packet: &[u8]) -> Option<u16> {
    Header::peek(packet).map(|header| header.kind.get())
}
