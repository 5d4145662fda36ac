//! Requests in flight, as a state machine without a clock or a network: it decides what to send and
//! when, and finds the call of an answer.

use std::fmt::Display;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use nix::errno::Errno;
use nlx_sync::{Deadlines, Slots};

use super::estimate::Estimate;
use super::server::class_index;
use super::terms::{CallId, Delivery, NewCall, RequestCounters, RequestError, RequestOptions, SendFailure};
use super::wire::{ClientId, Header, Kind, SLOTS, milliseconds};
use super::{mixed, nanoseconds};
use crate::Class;

/// The calls of a client. `P` is the address of a server, `B` the memory in which a request lies.
pub struct Calls<P, B> {
    client: ClientId,
    options: RequestOptions,
    /// Every server that was called: the sequence numbers of a session continue.
    peers: Vec<Peer<P>>,
    by_address: HashMap<P, usize, RandomState>,
    entries: Slots<PendingCall<B>>,
    due: Deadlines,
    counters: RequestCounters,
}

struct Peer<P> {
    address: P,
    session: Option<u64>,
    /// The time of the last request for a session.
    asked_ns: Option<u64>,
    /// The number of requests for a session, at most 255.
    asked: u8,
    /// The error of the last attempt to send a request for a session.
    failure: Option<SendFailure>,
    /// The round trip time of the network.
    round_trip: Estimate,
    /// By class: the server's latest estimate of the time that a request takes.
    service_ns: [u64; 2],
    slots: Vec<PeerSlot>,
    free: Vec<u16>,
}

#[derive(Default)]
struct PeerSlot {
    sequence: u64,
    /// The call that uses the slot.
    call: Option<CallId>,
    /// Bit set of the calls before the latest one of this slot that ended without an answer; the
    /// lowest bit is for the call just before it.
    given_up: u64,
    /// Set if the last call that ended in this slot had no answer.
    last_given_up: bool,
}

impl PeerSlot {
    /// Returns whether a call ended without an answer; `None` if it has not ended, or is more than
    /// 64 calls ago.
    fn gave_up(&self, sequence: u64) -> Option<bool> {
        match self.sequence.checked_sub(sequence)? {
            0 => self.call.is_none().then_some(self.last_given_up),
            ago => (ago <= u64::from(u64::BITS)).then(|| self.given_up >> (ago - 1) & 1 == 1),
        }
    }
}

struct PendingCall<B> {
    peer: usize,
    delivery: Delivery,
    class: Class,
    has_offers: bool,
    slot: u16,
    sequence: u64,
    started_ns: u64,
    deadline_ns: u64,
    /// The latest time to which the server can move the deadline.
    deadline_max_ns: u64,
    backoff_ns: u64,
    /// The number of times that the request was sent.
    sent: u32,
    /// The times at which it was sent first and last.
    sent_ns: (u64, u64),
    session: u64,
    length: u32,
    /// The request; `None` while it is being sent.
    buffer: Option<B>,
    /// The error of its last attempt to be sent.
    failure: Option<SendFailure>,
}

/// The next step for the caller of [`Calls::act`].
#[derive(Debug)]
pub enum Action<P, B> {
    /// Send the request: the header, then the bytes in the memory. When it has left, or failed,
    /// [`Calls::returned`] takes the memory, and [`Calls::sent`] the result, with [`CallId::tag`].
    Request {
        /// The call whose request is sent.
        id: CallId,
        /// The memory in which the request lies.
        buffer: B,
        /// The header, to put before the bytes.
        header: Header,
        /// The server that gets the request.
        to: P,
        /// The time left until the call's deadline: sending it takes no longer.
        within: Duration,
    },
    /// Request a session from the server, with a message of the header alone. [`Calls::sent`] takes
    /// the result.
    Open {
        /// The tag for [`Calls::sent`].
        tag: u64,
        /// The message: a header without a body.
        header: Header,
        /// The server that is asked for a session.
        to: P,
    },
    /// Report the end of a call.
    Ended(EndedCall<B>),
}

/// The end of a call.
#[derive(Debug)]
pub struct EndedCall<B> {
    /// The call; its id is not used again.
    pub id: CallId,
    /// The result. If it is `Ok`, the answer is the body of the message that ended the call.
    pub result: Result<(), RequestError>,
    /// The time from its start to its end.
    pub after: Duration,
    /// The memory of the request, unless it is being sent: then [`Calls::returned`] returns it.
    pub buffer: Option<B>,
}

impl<P: Clone + Eq + Hash + Display, B> Calls<P, B> {
    /// Creates the state of a client without calls.
    #[must_use]
    pub fn new(client: ClientId, options: RequestOptions) -> Calls<P, B> {
        Calls {
            client,
            options,
            peers: Vec::new(),
            by_address: HashMap::default(),
            entries: Slots::new(usize::MAX),
            due: Deadlines::default(),
            counters: RequestCounters::default(),
        }
    }

    /// Returns the number of calls that have not ended.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.entries.len()
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn counters(&self) -> RequestCounters {
        self.counters
    }

    /// Returns what is known about the speed of a server: the round trip time of the network, and the
    /// server's estimate of its service time for this class, in nanoseconds; 0 if it is not known.
    pub fn estimates_ns(&mut self, of: &P, class: Class, now_ns: u64) -> (u64, u64) {
        let Some(&peer) = self.by_address.get(of) else { return (0, 0) };
        let peer = &mut self.peers[peer];
        (peer.round_trip.max_ns(now_ns), peer.service_ns[class_index(class)])
    }

    /// Refuses another call of this server if the limit of calls in flight is reached.
    ///
    /// # Errors
    /// [`RequestError::Busy`].
    pub fn check_room(&self, to: &P) -> Result<(), RequestError> {
        let limit = self.options.in_flight_max.clamp(1, SLOTS);
        let known = self.by_address.get(to).map(|&peer| &self.peers[peer]);
        match known {
            Some(peer) if peer.slots.len() - peer.free.len() >= limit => Err(RequestError::Busy { limit }),
            _ => Ok(()),
        }
    }

    /// Returns the deadline of a call that begins now.
    #[must_use]
    pub fn deadline_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(nanoseconds(self.options.deadline))
    }

    /// Returns the delivery guarantee of the options.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.options.delivery
    }

    /// Begins a call, which is due at once: [`Calls::act`] sends it. Call [`Calls::check_room`] first.
    ///
    /// # Panics
    /// Without memory for the entry of the call.
    pub fn begin(&mut self, to: &P, new: NewCall<B>, now_ns: u64) -> CallId {
        let NewCall { buffer, length, delivery, class, has_offers, deadline_ns } = new;
        let peer = self.peer(to);
        let (slot, sequence) = self.peers[peer].take_slot();
        let latest_ns = now_ns.saturating_add(nanoseconds(self.options.deadline_max));
        let call = PendingCall {
            peer,
            delivery,
            class,
            has_offers,
            slot,
            sequence,
            started_ns: now_ns,
            deadline_ns,
            deadline_max_ns: deadline_ns.max(latest_ns),
            backoff_ns: nanoseconds(self.options.retry_after),
            sent: 0,
            sent_ns: (now_ns, now_ns),
            session: 0,
            length,
            buffer: Some(buffer),
            failure: None,
        };
        let key = self
            .entries
            .insert(call)
            .expect("the table has a free entry for each buffer, and memory for a call");
        let id = CallId::new(key);
        self.peers[peer].slots[usize::from(slot)].call = Some(id);
        self.due.set(key.index, now_ns);
        self.counters.calls += 1;
        id
    }

    fn peer(&mut self, to: &P) -> usize {
        let peers = &mut self.peers;
        *self.by_address.entry(to.clone()).or_insert_with(|| {
            peers.push(Peer {
                address: to.clone(),
                session: None,
                asked_ns: None,
                asked: 0,
                failure: None,
                round_trip: Estimate::default(),
                service_ns: [0; 2],
                slots: Vec::new(),
                free: Vec::new(),
            });
            peers.len() - 1
        })
    }

    /// Returns the time at which [`Calls::act`] returns the next action; `None` without calls.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| due_ns)
    }

    /// Returns the next action that is due; call it until it returns `None`.
    pub fn act(&mut self, now_ns: u64) -> Option<Action<P, B>> {
        loop {
            let (_, index) = self.due.first().filter(|(due_ns, _)| *due_ns <= now_ns)?;
            let id = CallId::new(self.entries.key(index));
            let Some(call) = self.entries.at(index) else {
                self.due.remove(index);
                continue;
            };
            if now_ns >= call.deadline_ns {
                let failure = match call.sent {
                    0 => self.peers[call.peer].failure.clone(),
                    _ => call.failure.clone(),
                };
                let error = RequestError::Unanswered { sent: call.sent, failure };
                self.counters.unanswered += 1;
                return self.end(id, Err(error), now_ns).map(Action::Ended);
            }
            if let Some(action) = self.attempt(id, now_ns) {
                return Some(action);
            }
        }
    }

    fn attempt(&mut self, id: CallId, now_ns: u64) -> Option<Action<P, B>> {
        let client = self.client;
        let retry_ns = nanoseconds(self.options.retry_after);
        let call = self.entries.get_mut(id.key())?;
        let peer = &mut self.peers[call.peer];
        if call.sent == 0 && (peer.session.is_some() || call.delivery == Delivery::AtLeastOnce) {
            call.backoff_ns = peer.first_pause_ns(call.class, &self.options, now_ns);
        }
        let pause_ns = shortened(call.backoff_ns, client.incarnation ^ call.sequence ^ call.backoff_ns);
        self.due.set(id.key().index, now_ns.saturating_add(pause_ns).min(call.deadline_ns));
        let (class, time_ms) = (call.class, milliseconds(call.deadline_ns - now_ns));
        let header = move |kind, attempt| Header {
            kind,
            class,
            has_offers: false,
            attempt,
            slot: 0,
            client,
            session: 0,
            sequence: 0,
            status: 0,
            length: 0,
            time_ms,
            estimate_ms: 0,
        };
        let to = peer.address.clone();
        let kind = match call.delivery {
            Delivery::AtLeastOnce => Kind::Often,
            Delivery::AtMostOnce => Kind::Once,
        };
        if kind == Kind::Once && call.sent == 0 {
            let Some(session) = peer.session else {
                let asked = peer.asked.saturating_add(1);
                let open = header(Kind::Open, asked);
                call.back_off(&self.options);
                // If several calls wait for a session, only one of them requests it.
                if peer.asked_ns.is_some_and(|asked_ns| now_ns < asked_ns.saturating_add(retry_ns / 2)) {
                    return None;
                }
                (peer.asked_ns, peer.asked) = (Some(now_ns), asked);
                self.counters.opens += 1;
                return Some(Action::Open { tag: call.peer as u64, header: open, to });
            };
            call.session = session;
        }
        call.back_off(&self.options);
        // While the last copy has not left, another one is useless.
        let buffer = call.buffer.take()?;
        call.sent += 1;
        self.counters.retries += u64::from(call.sent > 1);
        call.sent_ns = (if call.sent == 1 { now_ns } else { call.sent_ns.0 }, now_ns);
        let PendingCall { slot, session, sequence, length, has_offers, .. } = *call;
        let header =
            Header { slot, session, sequence, length, has_offers, ..header(kind, attempt(call.sent)) };
        let within = Duration::from_nanos(call.deadline_ns - now_ns);
        Some(Action::Request { id, buffer, header, to, within })
    }

    /// Takes the buffer of a request after it was sent, or could not be; returns it if its call has
    /// ended.
    pub fn returned(&mut self, id: CallId, buffer: B) -> Option<B> {
        match self.find(id) {
            Some(call) if call.buffer.is_none() => {
                call.buffer = Some(buffer);
                None
            }
            _ => Some(buffer),
        }
    }

    /// Handles the result of sending a request, or a request for a session. An error that proves
    /// that the server cannot be reached ends the calls concerned, unless the options are patient.
    /// Call this until it returns `None`.
    pub fn sent(
        &mut self,
        tag: u64,
        error: Option<(Errno, &dyn Display)>,
        now_ns: u64,
    ) -> Option<EndedCall<B>> {
        let id = CallId::from_tag(tag);
        let call = self.find(id).map(|call| (call.peer, call.sent));
        let (index, sent) = call.or_else(|| (tag < self.peers.len() as u64).then_some((tag as usize, 0)))?;
        let peer = &mut self.peers[index];
        let failure = error.map(|(errno, error)| SendFailure {
            errno,
            text: format!("sending to {}: {error}", peer.address),
        });
        let definite = failure.clone().filter(|failure| !self.options.patient && failure.is_definite());
        let id = if sent > 0 {
            self.find(id)?.failure = failure;
            id
        } else {
            peer.failure = failure;
            // The next call requests a session at once.
            peer.asked_ns = peer.asked_ns.filter(|_| definite.is_none());
            let unsent = |id: &CallId| {
                let call = self.entries.get(id.key());
                call.is_some_and(|call| call.sent == 0 && call.delivery == Delivery::AtMostOnce)
            };
            peer.slots.iter().filter_map(|slot| slot.call).find(unsent).filter(|_| definite.is_some())?
        };
        let error = RequestError::Unreachable { sent, failure: definite? };
        self.counters.unreachable += 1;
        self.end(id, Err(error), now_ns)
    }

    /// Handles a message from a server. Returns the end of the call that it answers.
    pub fn receive(&mut self, message: &[u8], from: &P, now_ns: u64) -> Option<EndedCall<B>> {
        let Some(header) = &Header::parse(message) else {
            self.counters.malformed += 1;
            return None;
        };
        let known = self.by_address.get(from).copied();
        let Some(peer) = known.filter(|_| header.client == self.client) else {
            self.counters.strays += 1;
            return None;
        };
        match header.kind {
            Kind::Opened => self.opened(peer, header, now_ns),
            Kind::Answer => return self.answered(peer, header, now_ns),
            Kind::Refusal => return self.refused(peer, header, now_ns),
            Kind::Early => self.early(peer, header, now_ns),
            Kind::Open | Kind::Once | Kind::Often => self.counters.strays += 1,
        }
        None
    }

    fn opened(&mut self, peer: usize, header: &Header, now_ns: u64) {
        let peer = &mut self.peers[peer];
        if header.session == 0 || peer.session.is_some() {
            return;
        }
        peer.session = Some(header.session);
        peer.learn(header);
        // Only the time of the latest request for a session is known.
        if let Some(asked_ns) = peer.asked_ns.filter(|_| header.attempt == peer.asked && peer.asked < u8::MAX)
        {
            peer.round_trip.record(now_ns, now_ns.saturating_sub(asked_ns));
        }
        let slots = &peer.slots;
        // Calls that wait for the session are sent now.
        for id in slots.iter().filter_map(|slot| slot.call) {
            if self.entries.get(id.key()).is_some_and(|call| call.sent == 0) {
                self.due.set(id.key().index, now_ns);
            }
        }
    }

    /// Gives the server of a call the time that it asks for. The request is repeated only when that
    /// has passed, and the deadline is later by half of it or more, so that one lost early reply is
    /// made up for by a repetition.
    fn early(&mut self, peer: usize, header: &Header, now_ns: u64) {
        let Some(id) = self.call_of(peer, header) else { return self.count_unexpected(peer, header) };
        self.peers[peer].learn(header);
        self.counters.early += 1;
        let ask_ns = nanoseconds(header.time());
        let Some(call) = self.entries.get_mut(id.key()) else { return };
        call.backoff_ns = self.peers[peer].first_pause_ns(call.class, &self.options, now_ns);
        let again_ns = now_ns.saturating_add(ask_ns);
        let deadline_ns = again_ns.saturating_add(call.backoff_ns.max(ask_ns / 2));
        call.deadline_ns = deadline_ns.min(call.deadline_max_ns).max(call.deadline_ns);
        self.due.set(id.key().index, again_ns.min(call.deadline_ns));
    }

    fn answered(&mut self, peer: usize, header: &Header, now_ns: u64) -> Option<EndedCall<B>> {
        let Some(id) = self.call_of(peer, header) else {
            self.count_unexpected(peer, header);
            return None;
        };
        self.counters.answered += 1;
        self.peers[peer].learn(header);
        if let Some(sent_ns) = self.find(id).and_then(|call| call.sent_ns(header.attempt)) {
            let total_ns = now_ns.saturating_sub(sent_ns);
            let network_ns = total_ns.saturating_sub(nanoseconds(header.time()));
            self.peers[peer].round_trip.record(now_ns, network_ns);
        }
        let result = match header.status {
            0 => Ok(()),
            errno => Err(RequestError::Refused { errno: Errno::from_raw(errno.cast_signed()) }),
        };
        self.end(id, result, now_ns)
    }

    /// Counts an answer or early reply that no call waits for.
    fn count_unexpected(&mut self, peer: usize, header: &Header) {
        let slot = self.peers[peer].slots.get(usize::from(header.slot));
        *match slot.and_then(|slot| slot.gave_up(header.sequence)) {
            Some(true) => &mut self.counters.late,
            Some(false) => &mut self.counters.duplicates,
            None => &mut self.counters.strays,
        } += 1;
    }

    /// Handles a refusal: the server does not have the session. A request that was sent in the
    /// session must not be sent in another one: even if it was sent only once, the network may have
    /// duplicated it, and the first copy may have reached a server that had the session.
    fn refused(&mut self, peer: usize, header: &Header, now_ns: u64) -> Option<EndedCall<B>> {
        if header.status != Errno::ESTALE as u32 {
            // The server has no room for another session: the request for one is repeated later.
            return None;
        }
        let session = &mut self.peers[peer].session;
        *session = session.filter(|&session| session != header.session);
        let id = self.call_of(peer, header)?;
        let sent = self.find(id)?.sent;
        self.counters.forgotten += 1;
        self.end(id, Err(RequestError::Forgotten { sent }), now_ns)
    }

    /// Returns the call that a header belongs to.
    fn call_of(&mut self, peer: usize, header: &Header) -> Option<CallId> {
        let id = self.peers[peer].slots.get(usize::from(header.slot))?.call?;
        let call = self.find(id)?;
        let matches = call.sent > 0 && (call.sequence, call.session) == (header.sequence, header.session);
        matches.then_some(id)
    }

    /// Ends a call that the program gives up.
    pub fn give_up(&mut self, id: CallId, now_ns: u64) -> Option<EndedCall<B>> {
        self.end(id, Err(RequestError::GivenUp), now_ns)
    }

    fn end(&mut self, id: CallId, result: Result<(), RequestError>, now_ns: u64) -> Option<EndedCall<B>> {
        let call = self.entries.remove(id.key())?;
        self.due.remove(id.key().index);
        let answered = matches!(result, Ok(()) | Err(RequestError::Refused { .. }));
        self.peers[call.peer].free_slot(call.slot, !answered);
        let after = Duration::from_nanos(now_ns.saturating_sub(call.started_ns));
        Some(EndedCall { id, result, after, buffer: call.buffer })
    }

    fn find(&mut self, id: CallId) -> Option<&mut PendingCall<B>> {
        self.entries.get_mut(id.key())
    }
}

impl<P> Peer<P> {
    /// Takes a free slot, and returns it with the sequence number of its next request.
    fn take_slot(&mut self) -> (u16, u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(PeerSlot::default());
            self.slots.len() as u16 - 1
        });
        let state = &mut self.slots[usize::from(slot)];
        state.sequence += 1;
        state.given_up = state.given_up << 1 | u64::from(state.last_given_up);
        (slot, state.sequence)
    }

    /// Takes over the server's estimate of its service time.
    fn learn(&mut self, header: &Header) {
        self.service_ns[class_index(header.class)] = u64::from(header.estimate_ms) * 1_000_000;
    }

    /// Returns the pause before the first repetition of a request: the time in which the answer
    /// should come, and a half more, because pauses are shortened by up to a quarter.
    fn first_pause_ns(&mut self, class: Class, options: &RequestOptions, now_ns: u64) -> u64 {
        let expected_ns = self.round_trip.max_ns(now_ns).saturating_add(self.service_ns[class_index(class)]);
        let bounds_ns = (nanoseconds(options.retry_after), nanoseconds(options.retry_max));
        expected_ns.saturating_add(expected_ns / 2).min(bounds_ns.1).max(bounds_ns.0)
    }

    fn free_slot(&mut self, slot: u16, given_up: bool) {
        let state = &mut self.slots[usize::from(slot)];
        (state.call, state.last_given_up) = (None, given_up);
        self.free.push(slot);
    }
}

impl<B> PendingCall<B> {
    /// Returns the time at which this attempt was sent, if that is known.
    fn sent_ns(&self, number: u8) -> Option<u64> {
        match number {
            u8::MAX => None,
            1 => Some(self.sent_ns.0),
            _ => (number == attempt(self.sent)).then_some(self.sent_ns.1),
        }
    }

    fn back_off(&mut self, options: &RequestOptions) {
        self.backoff_ns = self.backoff_ns.saturating_mul(2).min(nanoseconds(options.retry_max));
    }
}

/// Returns the number of an attempt for the wire.
fn attempt(sent: u32) -> u8 {
    sent.try_into().unwrap_or(u8::MAX)
}

/// Shortens a delay by up to a quarter, so that retries of many clients do not coincide; at least 1
/// ns, so that time advances.
fn shortened(pause_ns: u64, seed: u64) -> u64 {
    (pause_ns - (pause_ns / 4 / 1024) * (mixed(seed) % 1024)).max(1)
}
