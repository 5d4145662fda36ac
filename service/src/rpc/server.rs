//! The server's side as a state machine without a clock or a network: it decides which requests run,
//! and answers all other messages.

use std::hash::Hash;

use nix::errno::Errno;

use super::sessions::{RequestAction, Sessions};
use super::terms::{ResponderCounters, ResponderOptions};
use super::wire::{Header, Kind};
use super::{mixed, nanoseconds};

/// The state of a server. `P` is the address of a client.
pub struct Server<P> {
    sessions: Sessions<P>,
    /// The number from which the id of the next session is made.
    next_session: u64,
    counters: ResponderCounters,
}

/// The decision on a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It is a request: run it, and answer it with the header that [`Server::answered`] returns.
    Run(Header),
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
        let sessions = Sessions::new(options.sessions_max.max(1), nanoseconds(options.session_idle));
        Server { sessions, next_session: seed, counters: ResponderCounters::default() }
    }

    /// Handles a message from a client.
    pub fn receive(&mut self, message: &[u8], from: &P, now_ns: u64) -> Verdict<'_> {
        let Some(header) = Header::parse(message) else {
            self.counters.malformed += 1;
            return Verdict::Drop;
        };
        let key = (from.clone(), header.client);
        let (kind, status, session, body) = match header.kind {
            Kind::Often => {
                self.counters.requests += 1;
                return Verdict::Run(header);
            }
            Kind::Open => {
                self.next_session = self.next_session.wrapping_add(1);
                // 0 means none.
                match self.sessions.open(&key, mixed(self.next_session).max(1), now_ns) {
                    Some(session) => (Kind::Opened, 0, session, &[][..]),
                    None => {
                        self.counters.full += 1;
                        (Kind::Refusal, Errno::EBUSY as u32, 0, &[][..])
                    }
                }
            }
            Kind::Once => match self.sessions.request(&key, &header, now_ns) {
                RequestAction::Run => {
                    self.counters.requests += 1;
                    return Verdict::Run(header);
                }
                RequestAction::Ignore => {
                    self.counters.ignored += 1;
                    return Verdict::Drop;
                }
                RequestAction::Repeat { status, body } => {
                    self.counters.repeated += 1;
                    (Kind::Answer, status, header.session, body)
                }
                RequestAction::Stale => {
                    self.counters.stale += 1;
                    (Kind::Refusal, Errno::ESTALE as u32, header.session, &[][..])
                }
            },
            Kind::Opened | Kind::Answer | Kind::Refusal => {
                self.counters.malformed += 1;
                return Verdict::Drop;
            }
        };
        Verdict::Answer(Header { kind, status, session, length: body.len() as u32, ..header }, body)
    }

    /// Stores the answer of a request that has run, and returns the header to send it with. `status`
    /// is 0, or the errno with which the request failed.
    pub fn answered(&mut self, from: &P, request: &Header, status: u32, body: &[u8]) -> Header {
        if request.kind == Kind::Once {
            self.sessions.answered(&(from.clone(), request.client), request, status, body);
        }
        Header { kind: Kind::Answer, status, length: body.len() as u32, ..*request }
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
}
