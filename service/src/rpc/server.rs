//! The server's side as a state machine without a clock or a network: it decides which requests run,
//! answers all other messages, and asks for more time for requests that will miss their deadlines.

use std::hash::Hash;

use nix::errno::Errno;
use nlx_sync::{Deadlines, SlotKey, Slots};

use super::estimate::Estimate;
use super::sessions::{Opened, RequestAction, Sessions};
use super::terms::{ResponderCounters, ResponderOptions};
use super::wire::{Header, Kind, milliseconds};
use super::{mixed, nanoseconds};
use crate::Class;

/// Maximum number of early replies of a request, those to its repetitions included. The times that
/// they ask for double, so this is more than any client waits for.
pub const EARLY_MAX: u8 = 64;

/// The longest time before its deadline at which an early reply is sent, in nanoseconds; of a short
/// deadline it is a quarter of the time left. The reply must arrive before the deadline.
pub const EARLY_MARGIN_NS: u64 = 5_000_000_000;

/// The shortest and longest time that an early reply asks for, in nanoseconds: a slow request costs at
/// most some tens of messages, and a client learns within a minute or two that its server has
/// died.
pub const EARLY_ASK_NS: std::ops::RangeInclusive<u64> = 100_000_000..=60_000_000_000;

/// Maximum number of requests that wait or run in one server. Further ones are dropped as if the
/// network had lost them, so that a flood takes bounded memory.
pub const RUNNING_MAX: usize = 1 << 16;

/// Names a request that waits or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestId(SlotKey);

/// The state of a server. `P` is the address of a client.
pub struct Server<P> {
    sessions: Sessions<P>,
    /// The number from which the id of the next session is made.
    next_session: u64,
    running: Slots<Running<P>>,
    /// The times of the next early replies.
    due: Deadlines,
    /// By class: the time from arrival to answer.
    estimates: [Estimate; 2],
    counters: ResponderCounters,
}

/// A request that waits or runs.
struct Running<P> {
    from: P,
    header: Header,
    arrived_ns: u64,
    deadline_ns: u64,
    /// The number of early replies.
    early: u8,
}

/// The decision on a message.
#[derive(Debug, PartialEq, Eq)]
pub enum MessageDecision<'a> {
    /// It is a request: run it, then call [`Server::answered`] or [`Server::dropped`].
    Run(RequestId, Header),
    /// Answer it with this header and these bytes.
    Answer(Header, &'a [u8]),
    /// Drop it.
    Drop,
}

impl<P: Clone + Eq + Hash> Server<P> {
    /// Creates the state of a server without sessions. `seed` must be random, so that no session has
    /// an id of an earlier server at this address.
    #[must_use]
    pub fn new(seed: u64, options: &ResponderOptions) -> Server<P> {
        Server {
            sessions: Sessions::new(options.sessions_max.max(1), nanoseconds(options.session_idle)),
            next_session: seed,
            running: Slots::new(RUNNING_MAX),
            due: Deadlines::default(),
            estimates: [Estimate::default(); 2],
            counters: ResponderCounters::default(),
        }
    }

    /// Handles a message from a client.
    pub fn receive(&mut self, message: &[u8], from: &P, now_ns: u64) -> MessageDecision<'_> {
        let Some(header) = Header::parse(message) else {
            self.counters.malformed += 1;
            return MessageDecision::Drop;
        };
        let estimate_ms = milliseconds(self.estimate_ns(header.class, now_ns));
        let (kind, status, session) = match header.kind {
            Kind::Often => return self.run(header, from, now_ns),
            Kind::Open => {
                self.next_session = self.next_session.wrapping_add(1);
                // 0 means none.
                let id = mixed(self.next_session).max(1);
                match self.sessions.open(from, header.client, id, now_ns) {
                    Opened::Session(session) => (Kind::Opened, 0, session),
                    Opened::Full => {
                        self.counters.full += 1;
                        (Kind::Refusal, Errno::EBUSY as u32, 0)
                    }
                    Opened::Late => {
                        self.counters.ignored += 1;
                        return MessageDecision::Drop;
                    }
                }
            }
            Kind::Once => match self.sessions.request(from, &header, now_ns) {
                RequestAction::Run => return self.run(header, from, now_ns),
                RequestAction::Running(id) => {
                    self.counters.ignored += 1;
                    self.repeated(id, &header, now_ns);
                    return MessageDecision::Drop;
                }
                RequestAction::Ignore => {
                    self.counters.ignored += 1;
                    return MessageDecision::Drop;
                }
                RequestAction::Repeat { status } => {
                    self.counters.repeated += 1;
                    (Kind::Answer, status, header.session)
                }
                RequestAction::Stale => {
                    self.counters.stale += 1;
                    (Kind::Refusal, Errno::ESTALE as u32, header.session)
                }
            },
            Kind::Opened | Kind::Answer | Kind::Refusal | Kind::Early => {
                self.counters.malformed += 1;
                return MessageDecision::Drop;
            }
        };
        let body = if kind == Kind::Answer { self.sessions.answer(from, &header) } else { &[] };
        let length = body.len() as u32;
        let answer = Header { kind, status, session, length, time_ms: 0, estimate_ms, ..header };
        MessageDecision::Answer(Header { has_offers: false, ..answer }, body)
    }

    fn run(&mut self, header: Header, from: &P, now_ns: u64) -> MessageDecision<'static> {
        let mut running =
            Running { from: from.clone(), header, arrived_ns: now_ns, deadline_ns: now_ns, early: 0 };
        running.extend(&header, now_ns);
        let due_ns = running.next_early_ns(now_ns);
        let Some(key) = self.running.insert(running) else {
            self.counters.overflow += 1;
            return MessageDecision::Drop;
        };
        self.counters.requests += 1;
        let id = RequestId(key);
        if header.kind == Kind::Once {
            self.sessions.begin(from, &header, id);
        }
        if let Some(due_ns) = due_ns {
            self.due.set(key.index, due_ns);
        }
        MessageDecision::Run(id, header)
    }

    /// Has an early reply sent now for a request that waits or runs, so that its client stops
    /// repeating it.
    fn repeated(&mut self, id: RequestId, repetition: &Header, now_ns: u64) {
        let Some(running) = self.running.get_mut(id.0) else { return };
        running.extend(repetition, now_ns);
        self.due.set(id.0.index, now_ns);
    }

    /// Returns the time at which [`Server::early`] returns the next early reply.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        self.due.first().map(|(due_ns, _)| due_ns)
    }

    /// Returns the next early reply that is due, and its destination; call it until it returns
    /// `None`.
    pub fn early(&mut self, now_ns: u64) -> Option<(Header, P)> {
        loop {
            let (_, index) = self.due.first().filter(|(due_ns, _)| *due_ns <= now_ns)?;
            self.due.remove(index);
            let Some(Running { from, header, .. }) = self.running.at(index) else { continue };
            if header.kind == Kind::Once && !self.sessions.is_awaited(from, header) {
                continue;
            }
            let to = from.clone();
            if let Some(header) = self.early_reply(self.running.key(index), now_ns) {
                return Some((header, to));
            }
        }
    }

    /// Returns an early reply; `None` if the request has ended or had [`EARLY_MAX`] of them.
    fn early_reply(&mut self, key: SlotKey, now_ns: u64) -> Option<Header> {
        let class = self.running.get(key)?.header.class;
        let estimate_ns = self.estimate_ns(class, now_ns);
        let running = self.running.get_mut(key)?;
        if running.early >= EARLY_MAX {
            return None;
        }
        running.early += 1;
        self.counters.early += 1;
        // At least the time taken so far, so that the number of early replies is logarithmic.
        let taken_ns = now_ns.saturating_sub(running.arrived_ns);
        let ask_ns = estimate_ns.max(taken_ns).clamp(*EARLY_ASK_NS.start(), *EARLY_ASK_NS.end());
        running.deadline_ns = running.deadline_ns.max(now_ns.saturating_add(ask_ns));
        if let Some(due_ns) = running.next_early_ns(now_ns) {
            self.due.set(key.index, due_ns);
        }
        Some(Header {
            kind: Kind::Early,
            has_offers: false,
            status: 0,
            length: 0,
            time_ms: milliseconds(ask_ns),
            estimate_ms: milliseconds(estimate_ns),
            ..running.header
        })
    }

    /// Ends a request that has run: stores its answer, and returns the header to send it with.
    /// `status` is 0, or the errno with which the request failed. `None` if it has ended already.
    pub fn answered(&mut self, id: RequestId, status: u32, body: &[u8], now_ns: u64) -> Option<Header> {
        let running = self.end(id, Some((status, body)))?;
        let took_ns = now_ns.saturating_sub(running.arrived_ns);
        self.estimates[class_index(running.header.class)].record(now_ns, took_ns);
        Some(Header {
            kind: Kind::Answer,
            has_offers: false,
            status,
            length: body.len() as u32,
            // Rounded down, so that a client does not underestimate the rest, the network.
            time_ms: (took_ns / 1_000_000).try_into().unwrap_or(u32::MAX),
            estimate_ms: milliseconds(self.estimate_ns(running.header.class, now_ns)),
            ..running.header
        })
    }

    /// Ends a request without an answer. Its repetitions are dropped, too.
    pub fn dropped(&mut self, id: RequestId) {
        self.end(id, None);
    }

    fn end(&mut self, id: RequestId, answer: Option<(u32, &[u8])>) -> Option<Running<P>> {
        let running = self.running.remove(id.0)?;
        self.due.remove(id.0.index);
        if running.header.kind == Kind::Once {
            self.sessions.ended(&running.from, &running.header, answer);
        }
        Some(running)
    }

    /// Returns the deadline of a request that waits or runs, with the time that early replies have
    /// asked for; `None` if it has ended, or its client has not said how long it waits.
    #[must_use]
    pub fn deadline_ns(&self, id: RequestId) -> Option<u64> {
        let running = self.running.get(id.0)?;
        (running.header.time_ms > 0).then_some(running.deadline_ns)
    }

    /// Returns the estimate of the time that a request of this class takes from its arrival to its
    /// answer, in nanoseconds: the largest of the last minutes.
    pub fn estimate_ns(&mut self, class: Class, now_ns: u64) -> u64 {
        self.estimates[class_index(class)].max_ns(now_ns)
    }

    /// Counts an answer that was not sent.
    pub fn count_unsent(&mut self) {
        self.counters.unsent += 1;
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn counters(&self) -> ResponderCounters {
        self.counters
    }

    /// Returns the number of clients whose answers are stored.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the number of bytes reserved for stored answers.
    #[must_use]
    pub fn answer_bytes(&self) -> usize {
        self.sessions.bytes()
    }

    /// Returns the number of requests that wait or run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

impl<P> Running<P> {
    /// Extends the deadline by the time left that a copy of the request has brought.
    fn extend(&mut self, copy: &Header, now_ns: u64) {
        self.deadline_ns = self.deadline_ns.max(now_ns.saturating_add(nanoseconds(copy.time())));
    }

    /// Returns the time of the next early reply; `None` if there is none.
    fn next_early_ns(&self, now_ns: u64) -> Option<u64> {
        let left_ns = self.deadline_ns.checked_sub(now_ns).filter(|&left_ns| left_ns > 0)?;
        (self.early < EARLY_MAX).then(|| self.deadline_ns - (left_ns / 4).min(EARLY_MARGIN_NS))
    }
}

/// Returns the place of a class in the estimates.
pub(super) fn class_index(class: Class) -> usize {
    usize::from(class == Class::Urgent)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap as Model, HashSet};
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::wire::{ClientId, HEADER};
    use super::*;

    const MS_NS: u64 = 1_000_000;

    fn server(sessions_max: usize, idle_ns: u64) -> Server<u8> {
        let session_idle = Duration::from_nanos(idle_ns);
        Server::new(1, &ResponderOptions { sessions_max, session_idle, ..ResponderOptions::default() })
    }

    fn message(kind: Kind, incarnation: u64, session: u64, slot: u16, sequence: u64) -> Header {
        Header {
            kind,
            class: Class::Normal,
            has_offers: false,
            attempt: 1,
            slot,
            client: ClientId { number: 0, incarnation },
            session,
            sequence,
            status: 0,
            length: 0,
            time_ms: 0,
            estimate_ms: 0,
        }
    }

    fn open(server: &mut Server<u8>, from: u8, incarnation: u64, now_ns: u64) -> Option<u64> {
        match server.receive(&message(Kind::Open, incarnation, 0, 0, 0).emit(), &from, now_ns) {
            MessageDecision::Answer(Header { kind: Kind::Opened, session, .. }, b"") => Some(session),
            MessageDecision::Answer(Header { kind: Kind::Refusal, status, .. }, b"") => {
                assert_eq!(status, Errno::EBUSY as u32);
                None
            }
            other => panic!("{other:?}"),
        }
    }

    fn begin(server: &mut Server<u8>, from: u8, header: &Header, now_ns: u64) -> RequestId {
        match server.receive(&header.emit(), &from, now_ns) {
            MessageDecision::Run(id, found) => {
                assert_eq!(found, *header);
                id
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_stale(verdict: &MessageDecision<'_>) -> bool {
        matches!(verdict, MessageDecision::Answer(Header { kind: Kind::Refusal, status, .. }, b"") if *status == Errno::ESTALE as u32)
    }

    #[test]
    fn a_retry_is_answered_and_does_not_run() {
        let mut server = server(1, 100);
        let session = open(&mut server, 1, 7, 0);
        assert_eq!(open(&mut server, 1, 7, 0), session, "an open that is sent again opens nothing new");
        let first = message(Kind::Once, 7, session.unwrap_or(0), 3, 1);
        let id = begin(&mut server, 1, &first, 0);
        assert_eq!(server.receive(&first.emit(), &1, 0), MessageDecision::Drop);
        assert_eq!(server.next_ns(), Some(0));
        let early = server.early(0).map(|(header, _)| (header.kind, header.slot, header.sequence));
        assert_eq!(early, Some((Kind::Early, 3, 1)));
        let answer = server.answered(id, 5, b"done", 3 * MS_NS).unwrap_or(first);
        assert_eq!((answer.kind, answer.status, answer.length, answer.time_ms), (Kind::Answer, 5, 4, 3));
        let repetition = Header { attempt: 2, ..first };
        let stored = Header { attempt: 2, time_ms: 0, ..answer };
        assert_eq!(server.receive(&repetition.emit(), &1, 0), MessageDecision::Answer(stored, b"done"));
        assert_eq!(server.answered(id, 0, b"again", 0), None, "it has ended");
        // The client may have abandoned requests that never arrived.
        let fourth = Header { sequence: 4, ..first };
        let id = begin(&mut server, 1, &fourth, 0);
        assert_eq!(server.receive(&Header { sequence: 2, ..first }.emit(), &1, 0), MessageDecision::Drop);
        // A request that its program drops is not run again, and gets no early reply.
        server.dropped(id);
        assert_eq!(server.receive(&fourth.emit(), &1, 0), MessageDecision::Drop);
        assert_eq!((server.running(), server.next_ns()), (0, None));
    }

    #[test]
    fn only_an_idle_session_makes_room() {
        let mut server = server(2, 100);
        let first = open(&mut server, 1, 7, 0).unwrap_or(0);
        let second = open(&mut server, 2, 8, 50).unwrap_or(0);
        assert_eq!(open(&mut server, 3, 9, 99), None);
        let id = begin(&mut server, 1, &message(Kind::Once, 7, first, 0, 1), 100);
        assert_eq!(open(&mut server, 3, 9, 149), None);
        let third = open(&mut server, 3, 9, 150).unwrap_or(0);
        assert!(is_stale(&server.receive(&message(Kind::Once, 8, second, 0, 1).emit(), &2, 150)));
        // The session belongs to another client.
        assert!(is_stale(&server.receive(&message(Kind::Once, 7, third, 0, 2).emit(), &1, 150)));
        // A session whose request runs is not idle.
        let _ = begin(&mut server, 3, &message(Kind::Once, 9, third, 0, 1), 150);
        assert_eq!(open(&mut server, 2, 8, 10_000), None);
        assert!(server.answered(id, 0, b"", 10_000).is_some());
        assert!(open(&mut server, 2, 8, 10_000).is_some());
        assert_eq!(server.sessions(), 2);
    }

    #[test]
    fn a_client_that_is_started_anew_replaces_its_former_session() {
        let mut server = server(4, 100);
        let old = open(&mut server, 1, 7, 0).unwrap_or(0);
        let request = message(Kind::Once, 7, old, 0, 1);
        let id = begin(&mut server, 1, &request, 0);
        assert!(open(&mut server, 1, 8, 0).is_some_and(|new| new != old));
        assert_eq!(server.sessions(), 1);
        // Late messages of the client's previous start change nothing.
        assert_eq!(server.receive(&message(Kind::Open, 7, 0, 0, 0).emit(), &1, 0), MessageDecision::Drop);
        assert!(is_stale(&server.receive(&request.emit(), &1, 0)));
        assert!(server.answered(id, 0, b"answer", 0).is_some());
        assert_eq!((server.sessions(), server.answer_bytes(), server.running()), (1, 0, 0));
        // Another client of the same address keeps its own session.
        let other = ClientId { number: 1, incarnation: 9 };
        let _ = server.receive(&Header { client: other, ..message(Kind::Open, 0, 0, 0, 0) }.emit(), &1, 0);
        assert_eq!(server.sessions(), 2);
    }

    /// Early replies come before each deadline, ask for doubling times, and end.
    #[test]
    fn a_slow_request_is_announced_before_each_deadline() {
        let mut server = server(4, 100);
        let request = Header { time_ms: 1000, ..message(Kind::Often, 7, 0, 2, 5) };
        let id = begin(&mut server, 1, &request, 0);
        let mut deadline_ns = 1000 * MS_NS;
        for number in 0..EARLY_MAX {
            let due_ns = server.next_ns().unwrap_or(0);
            assert!(due_ns < deadline_ns, "early reply {number} comes too late");
            assert_eq!(server.early(due_ns - 1), None);
            let Some((early, to)) = server.early(due_ns) else { panic!("no early reply {number}") };
            assert_eq!((early.kind, early.slot, early.sequence, to), (Kind::Early, 2, 5, 1));
            let ask_ns = u64::from(early.time_ms) * MS_NS;
            assert!(ask_ns >= due_ns.clamp(*EARLY_ASK_NS.start(), *EARLY_ASK_NS.end()));
            deadline_ns = due_ns + ask_ns;
            assert!(server.deadline_ns(id).is_some_and(|at_ns| at_ns <= deadline_ns));
            assert_eq!(server.early(due_ns), None);
        }
        assert_eq!((server.next_ns(), server.counters().early), (None, u64::from(EARLY_MAX)));
        // The estimate travels with the next answer.
        assert!(server.answered(id, 0, b"", deadline_ns).is_some_and(|answer| answer.estimate_ms > 1000));
    }

    #[test]
    fn too_many_requests_are_dropped() {
        let mut server = server(4, 100);
        for number in 0..RUNNING_MAX as u64 {
            let _ = begin(&mut server, 1, &message(Kind::Often, 7, 0, 0, number), 0);
        }
        assert_eq!(server.receive(&message(Kind::Often, 7, 0, 0, 0).emit(), &1, 0), MessageDecision::Drop);
        assert_eq!((server.counters().overflow, server.running()), (1, RUNNING_MAX));
    }

    /// A step of the test below: its kind, the client, the slot, the number, a choice.
    type Step = (u8, u8, u16, u64, usize);

    proptest! {
        // Whether requests are duplicated, late or out of order, and whichever sessions are
        // forgotten or replaced: no request runs twice, and each answer is its own.
        #[test]
        fn nothing_runs_twice(
            steps in prop::collection::vec((0..6_u8, 0..3_u8, 0..2_u16, 1..7_u64, 0..4_usize), 1..400),
        ) {
            let mut server = server(2, 3);
            let mut opened: Model<u8, Vec<(u64, u64)>> = Model::new();
            let mut incarnations: Model<u8, u64> = Model::new();
            let (mut ran, mut running, mut answered) = (HashSet::new(), Vec::new(), Model::new());
            for (now_ns, (step, from, slot, sequence, which)) in steps.into_iter().enumerate() {
                let step: Step = (step, from, slot, sequence, which);
                let now_ns = now_ns as u64;
                let incarnation = incarnations.entry(from).or_insert(1);
                let sessions = opened.entry(from).or_default();
                match step.0 {
                    0 => {
                        let header = message(Kind::Open, *incarnation, 0, 0, 0);
                        if let MessageDecision::Answer(Header { kind: Kind::Opened, session, .. }, _) =
                            server.receive(&header.emit(), &from, now_ns)
                        {
                            sessions.push((*incarnation, session));
                        }
                    }
                    1 => *incarnation += 1,
                    2 if !running.is_empty() => {
                        let (id, name) = running.swap_remove(which % running.len());
                        let body = now_ns.to_le_bytes();
                        prop_assert!(server.answered(id, 0, &body, now_ns).is_some());
                        answered.insert(name, body);
                    }
                    3 if !running.is_empty() => server.dropped(running.swap_remove(which % running.len()).0),
                    _ => {
                        let Some(&(incarnation, session)) = sessions.get(which % sessions.len().max(1)) else {
                            continue;
                        };
                        let header = message(Kind::Once, incarnation, session, slot, sequence);
                        let name = (from, incarnation, session, slot, sequence);
                        match server.receive(&header.emit(), &from, now_ns) {
                            MessageDecision::Run(id, _) => {
                                prop_assert!(ran.insert(name), "{:?} has run twice", name);
                                running.push((id, name));
                            }
                            MessageDecision::Answer(Header { kind: Kind::Answer, .. }, body) => {
                                prop_assert_eq!(body, &answered[&name]);
                            }
                            MessageDecision::Answer(..) | MessageDecision::Drop => {}
                        }
                    }
                }
                prop_assert!(server.sessions() <= 2);
                prop_assert_eq!(server.running(), running.len());
            }
        }

        /// Whatever arrives, from whichever client: the server goes on, and its memory is bounded.
        #[test]
        fn hostile_messages_are_counted(
            messages in prop::collection::vec((0..4_u8, prop::collection::vec(any::<u8>(), HEADER..HEADER + 8)), 1..200),
        ) {
            let mut server = server(2, 3);
            for (now_ns, (from, mut message)) in messages.into_iter().enumerate() {
                // Most are well-formed, or they would go no further than the parser.
                message[..5].copy_from_slice(b"nlxq\x02");
                message[5] %= 9;
                message[9] = 0;
                let length = (message.len() - HEADER) as u32;
                message[44..48].copy_from_slice(&length.to_le_bytes());
                let _ = server.receive(&message, &from, now_ns as u64);
                while server.early(now_ns as u64).is_some() {}
                prop_assert!(server.sessions() <= 2 && server.answer_bytes() == 0);
            }
        }
    }
}
