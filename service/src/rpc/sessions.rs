//! Sessions: what a server stores so that no request runs twice.
//!
//! A client has a session, which has slots. A slot has one request at a time, with rising sequence
//! numbers; the server stores the number of the last one and its answer. A request with that number
//! is a retry: its answer is repeated, or it still runs. A request with a lower number was
//! abandoned by its client. So the memory is bounded, and no acknowledgement is needed: the next
//! request in a slot implies that the last answer has arrived, or is no longer awaited. A session
//! that was forgotten gets a new id when it is opened again, so that no late request runs in it.

use std::hash::Hash;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use nlx_sync::Slots;

use super::server::RequestId;
use super::wire::{ClientId, Header, SLOTS};

/// Maximum number of sessions that are examined to find an idle one that makes room for another: the
/// search continues at the next open, so that an open takes bounded time at any number of sessions.
pub(super) const EXAMINED_MAX: u32 = 64;

/// The sessions of a server.
pub(super) struct Sessions<P> {
    /// By address and number of the client: an index into `table`.
    indices: HashMap<(P, u32), u32, RandomState>,
    table: Slots<Session<P>>,
    /// The session that is examined next for room.
    hand: u32,
    idle_ns: u64,
    /// Bytes reserved for answers.
    bytes: usize,
}

struct Session<P> {
    address: P,
    client: ClientId,
    /// The incarnation whose session this one has replaced: a late copy of its open is dropped.
    replaced: u64,
    id: u64,
    slots: Vec<SessionSlot>,
    /// Requests that run. A session that has some is not forgotten.
    running: u32,
    used_ns: u64,
}

#[derive(Default)]
struct SessionSlot {
    sequence: u64,
    state: SlotState,
    /// The last answer; the vector is reused.
    body: Vec<u8>,
}

#[derive(Default, Clone, Copy)]
enum SlotState {
    #[default]
    Unused,
    Running(RequestId),
    /// Its program dropped it without an answer.
    Dropped,
    Answered {
        status: u32,
    },
}

/// The result of a request for a session.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    /// The client's session.
    Session(u64),
    /// There is no room, and no session is idle.
    Full,
    /// The request comes from an earlier start of the client, whose session has been replaced.
    Late,
}

/// The decision on an at-most-once request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestAction {
    /// It has not run: run it now.
    Run,
    /// It waits or runs.
    Running(RequestId),
    /// Its client or its program has given it up.
    Ignore,
    /// It has run, with this status: repeat its answer.
    Repeat { status: u32 },
    /// Its session is unknown, and so is whether it has run.
    Stale,
}

impl<P: Clone + Eq + Hash> Sessions<P> {
    /// Creates a table of at most `sessions_max` sessions; a session that was used within `idle_ns`
    /// is not replaced by another.
    pub(super) fn new(sessions_max: usize, idle_ns: u64) -> Sessions<P> {
        Sessions { indices: HashMap::default(), table: Slots::new(sessions_max), hand: 0, idle_ns, bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the number of bytes reserved for answers.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the session of a client, which gets the id `id` if it had none. A client that was
    /// restarted loses its previous session.
    pub(super) fn open(&mut self, from: &P, client: ClientId, id: u64, now_ns: u64) -> Opened {
        let mut replaced = 0;
        if let Some(&index) = self.indices.get(&(from.clone(), client.number)) {
            let session = &mut self.table[index];
            if session.client == client {
                session.used_ns = now_ns;
                return Opened::Session(session.id);
            }
            if session.replaced == client.incarnation {
                return Opened::Late;
            }
            replaced = session.client.incarnation;
            self.forget(index);
        }
        if self.table.is_full() && !self.make_room(now_ns) {
            return Opened::Full;
        }
        let (address, slots) = (from.clone(), Vec::new());
        let session = Session { address, client, replaced, id, slots, running: 0, used_ns: now_ns };
        let Some(key) = self.table.insert(session) else { return Opened::Full };
        self.indices.insert((from.clone(), client.number), key.index);
        Opened::Session(id)
    }

    /// Forgets an idle session. Returns false if none was found.
    fn make_room(&mut self, now_ns: u64) -> bool {
        for _ in 0..EXAMINED_MAX.min(self.table.used()) {
            self.hand = (self.hand + 1) % self.table.used();
            let idle_ns = self.idle_ns;
            let is_idle = |session: &&Session<P>| {
                session.running == 0 && now_ns.saturating_sub(session.used_ns) >= idle_ns
            };
            if self.table.at(self.hand).filter(is_idle).is_some() {
                self.forget(self.hand);
                return true;
            }
        }
        false
    }

    fn forget(&mut self, index: u32) {
        let Some(session) = self.table.take(index) else { return };
        self.bytes -= session.slots.iter().map(|slot| slot.body.capacity()).sum::<usize>();
        self.indices.remove(&(session.address, session.client.number));
    }

    fn find(&mut self, from: &P, header: &Header) -> Option<&mut Session<P>> {
        let &index = self.indices.get(&(from.clone(), header.client.number))?;
        let session = self.table.at_mut(index)?;
        (session.client == header.client && session.id == header.session).then_some(session)
    }

    /// Decides on an at-most-once request.
    pub(super) fn request(&mut self, from: &P, header: &Header, now_ns: u64) -> RequestAction {
        let Some(session) = self.find(from, header) else { return RequestAction::Stale };
        session.used_ns = now_ns;
        let slot = session.slot(header.slot);
        if header.sequence > slot.sequence {
            return RequestAction::Run;
        }
        match slot.state {
            _ if header.sequence < slot.sequence => RequestAction::Ignore,
            SlotState::Answered { status } => RequestAction::Repeat { status },
            SlotState::Running(id) => RequestAction::Running(id),
            SlotState::Unused | SlotState::Dropped => RequestAction::Ignore,
        }
    }

    /// Returns the stored answer of a request that [`RequestAction::Repeat`] was returned for.
    pub(super) fn answer(&mut self, from: &P, header: &Header) -> &[u8] {
        self.find(from, header).map_or(&[], |session| &session.slot(header.slot).body)
    }

    /// Marks a request that [`RequestAction::Run`] was returned for as running.
    pub(super) fn begin(&mut self, from: &P, header: &Header, id: RequestId) {
        let Some(session) = self.find(from, header) else { return };
        session.running += 1;
        let slot = session.slot(header.slot);
        (slot.sequence, slot.state) = (header.sequence, SlotState::Running(id));
    }

    /// Returns whether a request runs whose client has neither given it up nor been restarted.
    pub(super) fn is_awaited(&mut self, from: &P, header: &Header) -> bool {
        let slot = self.find(from, header).map(|session| session.slot(header.slot));
        slot.is_some_and(|slot| slot.sequence == header.sequence)
    }

    /// Stores the answer of a request that has run, unless its client has sent a later one in the
    /// slot; without an answer, notes that it was dropped.
    pub(super) fn ended(&mut self, from: &P, header: &Header, answer: Option<(u32, &[u8])>) {
        let Some(session) = self.find(from, header) else { return };
        session.running -= 1;
        let slot = session.slot(header.slot);
        if slot.sequence != header.sequence {
            return;
        }
        let Some((status, body)) = answer else {
            slot.state = SlotState::Dropped;
            return;
        };
        slot.state = SlotState::Answered { status };
        let before = slot.body.capacity();
        slot.body.clear();
        slot.body.extend_from_slice(body);
        let after = slot.body.capacity();
        self.bytes += after - before;
    }
}

impl<P> Session<P> {
    fn slot(&mut self, slot: u16) -> &mut SessionSlot {
        // Less than SLOTS: `Header::parse` has checked this.
        let index = usize::from(slot).min(SLOTS - 1);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, SessionSlot::default);
        }
        &mut self.slots[index]
    }
}
