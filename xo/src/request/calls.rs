//! Requests in flight, as a state machine without a clock or a network: it says what is to be sent when, and what an answer
//! belongs to.

use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use nlx_core::{Address, Errno};
use nlx_sync::Slots;

use super::terms::{CallId, Delivery, RequestCounters, RequestError, RequestOptions, SendFailure};
use super::wire::{Header, Kind, SLOTS};
use crate::deadlines::Deadlines;
use crate::{Buffer, EndPoint, Error};

pub(super) struct Calls {
    /// Its name, for servers: random, so that no answer to an earlier program at this address is taken for one of its own.
    client: u64,
    options: RequestOptions,
    /// Every server it has called: what has been asked in a session counts on.
    peers: Vec<Peer>,
    by_address: HashMap<Address, usize, RandomState>,
    entries: Slots<Call>,
    due: Deadlines,
    pub(super) counters: RequestCounters,
}

struct Peer {
    end_point: EndPoint,
    session: Option<u64>,
    /// When it was last asked for a session.
    asked_ns: Option<u64>,
    /// Why it could not be asked for one, if so.
    failure: Option<SendFailure>,
    slots: Vec<Slot>,
    free: Vec<u16>,
}

#[derive(Default)]
struct Slot {
    sequence: u64,
    /// The call that it is used for.
    call: Option<CallId>,
    /// Which of the calls before the one it is used for, or the last one, have ended without an answer: the lowest bit
    /// is that of the call before.
    given_up: u64,
    /// The last one has.
    last_given_up: bool,
}

impl Slot {
    /// Whether a call ended without an answer; `None` if it has not ended, or is more than 64 calls ago.
    fn gave_up(&self, sequence: u64) -> Option<bool> {
        match self.sequence.checked_sub(sequence)? {
            0 => self.call.is_none().then_some(self.last_given_up),
            ago => (ago <= u64::from(u64::BITS)).then(|| self.given_up >> (ago - 1) & 1 == 1),
        }
    }
}

struct Call {
    peer: usize,
    delivery: Delivery,
    slot: u16,
    sequence: u64,
    started_ns: u64,
    deadline_ns: u64,
    backoff_ns: u64,
    /// How often the request itself has been sent, in this session.
    sent: u32,
    session: u64,
    length: u32,
    /// The request; away while it is being sent.
    buffer: Option<Buffer>,
    /// Why it could not be sent the last time, if so.
    failure: Option<SendFailure>,
}

/// What is to be done.
pub(super) enum Action {
    /// The request is to be sent; its buffer comes back to [`Calls::returned`].
    Request { id: CallId, buffer: Buffer, header: Header, to: EndPoint, within: Duration },
    /// A session is to be asked for.
    Open { tag: u64, header: Header, to: EndPoint },
    /// It is over.
    Ended(Ended),
}

/// A call is over: how, and its buffer if it is there.
pub(super) struct Ended {
    pub(super) id: CallId,
    pub(super) result: Result<(), RequestError>,
    pub(super) after: Duration,
    pub(super) buffer: Option<Buffer>,
}

impl Calls {
    pub(super) fn new(client: u64, options: RequestOptions) -> Calls {
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

    pub(super) fn in_flight(&self) -> usize {
        self.entries.len()
    }

    /// Whether another call of this server may begin.
    pub(super) fn check_room(&self, to: &EndPoint) -> Result<(), RequestError> {
        let limit = self.options.in_flight_max.clamp(1, SLOTS);
        let known = self.by_address.get(&to.address()).map(|&peer| &self.peers[peer]);
        match known {
            Some(peer) if peer.slots.len() - peer.free.len() >= limit => Err(RequestError::Busy { limit }),
            _ => Ok(()),
        }
    }

    /// When a call that begins now ends at the latest.
    pub(super) fn deadline_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(nanoseconds(self.options.deadline))
    }

    pub(super) fn delivery(&self) -> Delivery {
        self.options.delivery
    }

    /// Begins a call; it is due at once. There must be room.
    pub(super) fn begin(
        &mut self,
        to: &EndPoint,
        buffer: Buffer,
        length: u32,
        delivery: Delivery,
        (now_ns, deadline_ns): (u64, u64),
    ) -> CallId {
        let peer = self.peer(to);
        let (slot, sequence) = self.peers[peer].take_slot();
        let call = Call {
            peer,
            delivery,
            slot,
            sequence,
            started_ns: now_ns,
            deadline_ns,
            backoff_ns: nanoseconds(self.options.retry_after),
            sent: 0,
            session: 0,
            length,
            buffer: Some(buffer),
            failure: None,
        };
        let key =
            self.entries.insert(call).expect("there are fewer buffers than places, and memory for a call");
        let id = CallId::new(key);
        self.peers[peer].slots[usize::from(slot)].call = Some(id);
        self.due.set(key.index, now_ns);
        self.counters.calls += 1;
        id
    }

    fn peer(&mut self, to: &EndPoint) -> usize {
        let peers = &mut self.peers;
        *self.by_address.entry(to.address()).or_insert_with(|| {
            peers.push(Peer {
                end_point: to.clone(),
                session: None,
                asked_ns: None,
                failure: None,
                slots: Vec::new(),
                free: Vec::new(),
            });
            peers.len() - 1
        })
    }

    /// When [`Calls::act`] has something to say next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| due_ns)
    }

    /// What is to be done now; to be asked until there is nothing.
    pub(super) fn act(&mut self, now_ns: u64) -> Option<Action> {
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

    fn attempt(&mut self, id: CallId, now_ns: u64) -> Option<Action> {
        let client = self.client;
        let retry_ns = nanoseconds(self.options.retry_after);
        let call = self.entries.get_mut(id.key())?;
        let peer = &mut self.peers[call.peer];
        let pause_ns = shortened(call.backoff_ns, client ^ call.sequence ^ call.backoff_ns);
        self.due.set(id.key().index, now_ns.saturating_add(pause_ns).min(call.deadline_ns));
        let header = |kind| Header { kind, slot: 0, client, session: 0, sequence: 0, status: 0, length: 0 };
        let to = peer.end_point.clone();
        let kind = match call.delivery {
            Delivery::AtLeastOnce => Kind::Often,
            Delivery::AtMostOnce => Kind::Once,
        };
        if kind == Kind::Once && call.sent == 0 {
            let Some(session) = peer.session else {
                call.back_off(&self.options);
                // One of several calls asks.
                if peer.asked_ns.is_some_and(|asked_ns| now_ns < asked_ns.saturating_add(retry_ns / 2)) {
                    return None;
                }
                peer.asked_ns = Some(now_ns);
                self.counters.opens += 1;
                return Some(Action::Open { tag: call.peer as u64, header: header(Kind::Open), to });
            };
            call.session = session;
        }
        call.back_off(&self.options);
        // While it has not even left, sending it once more is no use.
        let buffer = call.buffer.take()?;
        call.sent += 1;
        self.counters.retries += u64::from(call.sent > 1);
        let Call { slot, session, sequence, length, .. } = *call;
        let header = Header { slot, session, sequence, length, ..header(kind) };
        let within = Duration::from_nanos(call.deadline_ns - now_ns);
        Some(Action::Request { id, buffer, header, to, within })
    }

    /// The buffer of a request has been sent, or could not be; it is given back if its call is over.
    pub(super) fn returned(&mut self, id: CallId, buffer: Buffer) -> Option<Buffer> {
        match self.find(id) {
            Some(call) if call.buffer.is_none() => {
                call.buffer = Some(buffer);
                None
            }
            _ => Some(buffer),
        }
    }

    /// How the sending of a request, or of an open, has ended. A failure that says that nothing is there ends the calls
    /// that it is about, unless the options have them wait. To be asked until there is none.
    pub(super) fn sent(&mut self, tag: u64, error: Option<&Error>, now_ns: u64) -> Option<Ended> {
        let id = CallId::from_tag(tag);
        let call = self.find(id).map(|call| (call.peer, call.sent));
        let (index, sent) = call.or_else(|| (tag < self.peers.len() as u64).then_some((tag as usize, 0)))?;
        let peer = &mut self.peers[index];
        let failure = error.map(|error| SendFailure {
            errno: error.errno(),
            text: format!("sending to {}: {error}", peer.end_point),
        });
        let definite = failure.clone().filter(|failure| !self.options.patient && failure.is_definite());
        let id = if sent > 0 {
            self.find(id)?.failure = failure;
            id
        } else {
            peer.failure = failure;
            // The next call asks at once.
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
    /// A message from a server: the call that it ends, if it does.
    pub(super) fn heard(&mut self, header: &Header, from: &EndPoint, now_ns: u64) -> Option<Ended> {
        let known = self.by_address.get(&from.address()).copied();
        let Some(peer) = known.filter(|_| header.client == self.client) else {
            self.counters.strays += 1;
            return None;
        };
        match header.kind {
            Kind::Opened => self.opened(peer, header.session, now_ns),
            Kind::Answer => return self.answered(peer, header, now_ns),
            Kind::Refusal => return self.refused(peer, header, now_ns),
            Kind::Open | Kind::Once | Kind::Often => self.counters.strays += 1,
        }
        None
    }

    fn opened(&mut self, peer: usize, session: u64, now_ns: u64) {
        let Peer { session: known, slots, .. } = &mut self.peers[peer];
        if session == 0 || known.is_some() {
            return;
        }
        *known = Some(session);
        // What waited for it is sent now.
        for id in slots.iter().filter_map(|slot| slot.call) {
            if self.entries.get(id.key()).is_some_and(|call| call.sent == 0) {
                self.due.set(id.key().index, now_ns);
            }
        }
    }

    fn answered(&mut self, peer: usize, header: &Header, now_ns: u64) -> Option<Ended> {
        let Some(id) = self.called(peer, header) else {
            let slot = self.peers[peer].slots.get(usize::from(header.slot));
            *match slot.and_then(|slot| slot.gave_up(header.sequence)) {
                Some(true) => &mut self.counters.late,
                Some(false) => &mut self.counters.duplicates,
                None => &mut self.counters.strays,
            } += 1;
            return None;
        };
        self.counters.answered += 1;
        let result = match header.status {
            0 => Ok(()),
            errno => Err(RequestError::Refused { errno: Errno::from_raw(errno.cast_signed()) }),
        };
        self.end(id, result, now_ns)
    }

    /// The server does not know the session (any more). What was sent in it must not be sent in another: even if it was sent
    /// once only, a network may have brought it twice, and the first time to a server that knew the session.
    fn refused(&mut self, peer: usize, header: &Header, now_ns: u64) -> Option<Ended> {
        if header.status != Errno::ESTALE as u32 {
            // It has no room for another session: asking again later is all there is.
            return None;
        }
        let session = &mut self.peers[peer].session;
        *session = session.filter(|&session| session != header.session);
        let id = self.called(peer, header)?;
        let sent = self.find(id)?.sent;
        self.counters.forgotten += 1;
        self.end(id, Err(RequestError::Forgotten { sent }), now_ns)
    }

    /// The call that this is about.
    fn called(&mut self, peer: usize, header: &Header) -> Option<CallId> {
        let id = self.peers[peer].slots.get(usize::from(header.slot))?.call?;
        let call = self.find(id)?;
        let matches = call.sent > 0 && (call.sequence, call.session) == (header.sequence, header.session);
        matches.then_some(id)
    }

    /// Ends a call that its program does not want any more.
    pub(super) fn give_up(&mut self, id: CallId, now_ns: u64) -> Option<Ended> {
        self.end(id, Err(RequestError::GivenUp), now_ns)
    }

    fn end(&mut self, id: CallId, result: Result<(), RequestError>, now_ns: u64) -> Option<Ended> {
        let call = self.entries.remove(id.key())?;
        self.due.remove(id.key().index);
        let answered = matches!(result, Ok(()) | Err(RequestError::Refused { .. }));
        self.peers[call.peer].free_slot(call.slot, !answered);
        let after = Duration::from_nanos(now_ns.saturating_sub(call.started_ns));
        Some(Ended { id, result, after, buffer: call.buffer })
    }

    fn find(&mut self, id: CallId) -> Option<&mut Call> {
        self.entries.get_mut(id.key())
    }
}

impl Peer {
    /// A free slot, and the number of the next request in it.
    fn take_slot(&mut self) -> (u16, u64) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u16 - 1
        });
        let state = &mut self.slots[usize::from(slot)];
        state.sequence += 1;
        state.given_up = state.given_up << 1 | u64::from(state.last_given_up);
        (slot, state.sequence)
    }

    fn free_slot(&mut self, slot: u16, given_up: bool) {
        let state = &mut self.slots[usize::from(slot)];
        (state.call, state.last_given_up) = (None, given_up);
        self.free.push(slot);
    }
}

impl Call {
    fn back_off(&mut self, options: &RequestOptions) {
        self.backoff_ns = self.backoff_ns.saturating_mul(2).min(nanoseconds(options.retry_max));
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Up to a quarter less, so that the retries of many clients do not come at one moment; at least a nanosecond, so that time
/// goes on.
fn shortened(pause_ns: u64, seed: u64) -> u64 {
    // The last step of splitmix64: every bit of the seed moves every bit.
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 32;
    (pause_ns - (pause_ns / 4 / 1024) * (mixed % 1024)).max(1)
}
