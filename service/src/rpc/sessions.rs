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

use super::wire::{Header, SLOTS};

/// A client: its address and its random id, which a restarted program does not share.
type ClientKey<P> = (P, u64);

/// The sessions of a server.
pub(super) struct Sessions<P> {
    table: HashMap<ClientKey<P>, Session, RandomState>,
    sessions_max: usize,
    idle_ns: u64,
}

struct Session {
    id: u64,
    slots: Vec<SessionSlot>,
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
    Running,
    Answered {
        status: u32,
    },
}

/// The responder's decision on a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestAction<'a> {
    /// It has not run: run it now.
    Run,
    /// It is running, or its client has given it up.
    Ignore,
    /// It has run: repeat its answer.
    Repeat { status: u32, body: &'a [u8] },
    /// Its session is unknown, and so is whether it has run.
    Stale,
}

impl<P: Clone + Eq + Hash> Sessions<P> {
    /// Creates a table of at most `sessions_max` sessions; a session that was used within `idle_ns`
    /// is not replaced by another.
    pub(super) fn new(sessions_max: usize, idle_ns: u64) -> Sessions<P> {
        Sessions { table: HashMap::default(), sessions_max, idle_ns }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the session id of a client, which is `id` if it had none; `None` without room.
    pub(super) fn open(&mut self, key: &ClientKey<P>, id: u64, now_ns: u64) -> Option<u64> {
        if let Some(session) = self.table.get_mut(key) {
            session.used_ns = now_ns;
            return Some(session.id);
        }
        if self.table.len() >= self.sessions_max {
            self.forget_one(now_ns)?;
        }
        self.table.insert(key.clone(), Session { id, slots: Vec::new(), used_ns: now_ns });
        Some(id)
    }

    /// Searches all sessions, up to a few thousand, which takes less time than the round trip of
    /// the client's open.
    fn forget_one(&mut self, now_ns: u64) -> Option<()> {
        let (key, oldest) = self.table.iter().min_by_key(|(_, session)| session.used_ns)?;
        if now_ns.saturating_sub(oldest.used_ns) < self.idle_ns {
            return None;
        }
        let key = key.clone();
        self.table.remove(&key);
        Some(())
    }

    /// Decides on an at-most-once request.
    pub(super) fn request(&mut self, key: &ClientKey<P>, header: &Header, now_ns: u64) -> RequestAction<'_> {
        let known = self.table.get_mut(key).filter(|session| session.id == header.session);
        let Some(session) = known else { return RequestAction::Stale };
        session.used_ns = now_ns;
        let slot = session.slot(header.slot);
        if header.sequence > slot.sequence {
            (slot.sequence, slot.state) = (header.sequence, SlotState::Running);
            return RequestAction::Run;
        }
        match slot.state {
            SlotState::Answered { status } if header.sequence == slot.sequence => {
                RequestAction::Repeat { status, body: &slot.body }
            }
            _ => RequestAction::Ignore,
        }
    }

    /// Stores the answer of a request that has run, unless its client has sent a later one in the
    /// slot.
    pub(super) fn answered(&mut self, key: &ClientKey<P>, header: &Header, status: u32, body: &[u8]) {
        let known = self.table.get_mut(key).filter(|session| session.id == header.session);
        let Some(session) = known else { return };
        let slot = session.slot(header.slot);
        if slot.sequence == header.sequence && matches!(slot.state, SlotState::Running) {
            slot.state = SlotState::Answered { status };
            slot.body.clear();
            slot.body.extend_from_slice(body);
        }
    }
}

impl Session {
    fn slot(&mut self, slot: u16) -> &mut SessionSlot {
        // Less than SLOTS: `Header::parse` has checked this.
        let index = usize::from(slot).min(SLOTS - 1);
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, SessionSlot::default);
        }
        &mut self.slots[index]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap as Model, HashSet};

    use proptest::prelude::*;

    use super::super::wire::Kind;
    use super::*;

    fn key(number: u8) -> ClientKey<u8> {
        (number, u64::from(number))
    }

    fn request(session: u64, slot: u16, sequence: u64) -> Header {
        Header { kind: Kind::Once, slot, client: 0, session, sequence, status: 0, length: 0 }
    }

    #[test]
    fn a_retry_is_answered_and_does_not_run() {
        let mut sessions = Sessions::new(1, 100);
        assert_eq!(sessions.open(&key(1), 77, 0), Some(77));
        assert_eq!(sessions.open(&key(1), 78, 0), Some(77), "an open that is sent again opens nothing new");
        let first = request(77, 3, 1);
        assert_eq!(sessions.request(&key(1), &first, 0), RequestAction::Run);
        assert_eq!(sessions.request(&key(1), &first, 0), RequestAction::Ignore);
        sessions.answered(&key(1), &first, 5, b"done");
        assert_eq!(sessions.request(&key(1), &first, 0), RequestAction::Repeat { status: 5, body: b"done" });
        // The client may have abandoned requests that never arrived.
        assert_eq!(sessions.request(&key(1), &request(77, 3, 4), 0), RequestAction::Run);
        assert_eq!(sessions.request(&key(1), &request(77, 3, 2), 0), RequestAction::Ignore);
        sessions.answered(&key(1), &first, 0, b"late");
        assert_eq!(sessions.request(&key(1), &request(77, 3, 4), 0), RequestAction::Ignore);
    }

    #[test]
    fn only_an_idle_session_makes_room() {
        let mut sessions = Sessions::new(2, 100);
        assert_eq!(sessions.open(&key(1), 11, 0), Some(11));
        assert_eq!(sessions.open(&key(2), 12, 50), Some(12));
        assert_eq!(sessions.open(&key(3), 13, 99), None);
        assert_eq!(sessions.request(&key(1), &request(11, 0, 1), 100), RequestAction::Run);
        assert_eq!(sessions.open(&key(3), 13, 149), None);
        assert_eq!(sessions.open(&key(3), 13, 150), Some(13));
        assert_eq!(sessions.request(&key(2), &request(12, 0, 1), 150), RequestAction::Stale);
        assert_eq!(
            sessions.request(&key(1), &request(13, 0, 2), 150),
            RequestAction::Stale,
            "the session belongs to another client"
        );
        assert_eq!(sessions.len(), 2);
    }

    proptest! {
        // Whether requests are duplicated, late or out of order, and whichever sessions are
        // forgotten: no request runs twice.
        #[test]
        fn nothing_runs_twice(
            steps in prop::collection::vec((0..4_u8, 0..3_u8, 0..2_u16, 0..6_u64, 0..4_usize), 1..400),
        ) {
            let mut sessions = Sessions::new(2, 3);
            let mut opened: Model<u8, Vec<u64>> = Model::new();
            let mut ran = HashSet::new();
            let mut answered = Model::new();
            for (now, (step, client, slot, sequence, which)) in steps.into_iter().enumerate() {
                let now = now as u64;
                let ids = opened.entry(client).or_default();
                if step == 0 {
                    // Ids are never reused.
                    ids.extend(sessions.open(&key(client), 1000 + now, now));
                    continue;
                }
                let Some(&session) = ids.get(which % ids.len().max(1)) else { continue };
                let header = request(session, slot, sequence + 1);
                let name = (client, session, slot, sequence + 1);
                if step == 1 {
                    if ran.contains(&name) && !answered.contains_key(&name) {
                        sessions.answered(&key(client), &header, 0, &now.to_le_bytes());
                        answered.insert(name, now);
                    }
                    continue;
                }
                match sessions.request(&key(client), &header, now) {
                    RequestAction::Run => prop_assert!(ran.insert(name), "{name:?} has run twice"),
                    RequestAction::Repeat { body, .. } => prop_assert_eq!(body, &answered[&name].to_le_bytes()),
                    RequestAction::Ignore | RequestAction::Stale => {}
                }
                prop_assert!(sessions.len() <= 2);
            }
        }
    }
}
