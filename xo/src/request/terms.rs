//! What both sides of a request are told, and tell: options, errors and counters.

use std::fmt;
use std::time::Duration;

use nlx_core::Errno;
use nlx_sync::SlotKey;

use crate::Error;

/// How long an answer may take to leave; a client that waits for it asks again.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a request may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Once, or not at all.
    #[default]
    AtMostOnce,
    /// Each time that it comes. For requests that may be repeated without harm: it needs no session, and nothing of it is
    /// remembered.
    AtLeastOnce,
}

/// How a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestOptions {
    /// After this time a call ends without an answer.
    pub deadline: Duration,
    /// The first time that an answer is waited for until the request is sent again; it doubles each time.
    pub retry_after: Duration,
    /// The longest such time.
    pub retry_max: Duration,
    /// Bytes of a message, 40 of which are the header; at most what a buffer may have. Both sides should have the same.
    pub message_max: usize,
    /// Calls in flight at each server, at most 64.
    pub in_flight_max: usize,
    /// How often a request may run.
    pub delivery: Delivery,
    /// Whether a call goes on until its deadline though its server is not there: for one that is about to be started, or
    /// started anew. Else it ends with [`RequestError::Unreachable`].
    pub patient: bool,
}

impl Default for RequestOptions {
    fn default() -> RequestOptions {
        RequestOptions {
            deadline: Duration::from_secs(30),
            // Longer than an answer takes, shorter than a person notices.
            retry_after: Duration::from_millis(500),
            retry_max: Duration::from_secs(8),
            message_max: 4096,
            in_flight_max: 64,
            delivery: Delivery::AtMostOnce,
            patient: false,
        }
    }
}

/// How a server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponderOptions {
    /// Bytes of a message, 40 of which are the header.
    pub message_max: usize,
    /// Clients to remember. Each costs up to 64 answers, as many as it has had in flight at a time: with these defaults at
    /// most 256 MiB, if all clients use all they may.
    pub sessions_max: usize,
    /// A client that was heard of within this time is not forgotten to make room for another, which is refused instead.
    /// Longer than the deadline of any client's calls, or these may fail as forgotten.
    pub session_idle: Duration,
}

impl Default for ResponderOptions {
    fn default() -> ResponderOptions {
        ResponderOptions { message_max: 4096, sessions_max: 1024, session_idle: Duration::from_secs(60) }
    }
}

/// Names a call of a requester.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u64);

impl CallId {
    /// The tags below 2^32 are those of peers: no call has the generation 0.
    pub(super) fn new(key: SlotKey) -> CallId {
        CallId(key.to_bits(u32::BITS))
    }

    pub(super) fn key(self) -> SlotKey {
        SlotKey::from_bits(self.0, u32::BITS)
    }

    pub(super) fn tag(self) -> u64 {
        self.0
    }

    pub(super) fn from_tag(tag: u64) -> CallId {
        CallId(tag)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlotKey { index, generation } = self.key();
        write!(f, "CallId({index}.{generation})")
    }
}

/// Why a message to a server could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct SendFailure {
    /// The errno.
    pub errno: Errno,
    /// The server, and what the transfer machine says.
    pub text: String,
}

impl SendFailure {
    /// Whether it says that the server's node is not there, and not just that a connection broke or is slow.
    pub(super) fn is_definite(&self) -> bool {
        matches!(
            self.errno,
            Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::EHOSTDOWN
        )
    }
}

/// What follows "sent n times": why not once more, if that is known.
fn because(failure: &Option<SendFailure>) -> String {
    failure.as_ref().map(|failure| format!("; the last time: {failure}")).unwrap_or_default()
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The deadline has passed.
    #[error("no answer by the deadline, after the request was sent {sent} times{}", because(failure))]
    Unanswered {
        /// How often the request was sent; 0 if no session could be had.
        sent: u32,
        /// Why it, or the message that asks for a session, could not be sent the last time; `None` if it has left, and
        /// no answer has come.
        failure: Option<SendFailure>,
    },
    /// The server's node is not there: its host refuses the connection, or no network leads to it. If the request was sent
    /// more than once, the server may have run it before.
    #[error("the server cannot be reached, after the request was sent {sent} times: {failure}")]
    Unreachable {
        /// How often the request was sent, this time included; 0 if no session could be had.
        sent: u32,
        /// Why it, or the message that asks for a session, could not be sent.
        failure: SendFailure,
    },
    /// The server does not know any more whether it has run the request.
    #[error(
        "the server has forgotten the session: whether the request, sent {sent} times, has run is unknown"
    )]
    Forgotten {
        /// How often the request was sent. If once, it has not run, unless the network has repeated it.
        sent: u32,
    },
    /// The server has run the request, and says that it failed.
    #[error("the server refuses the request: {errno}")]
    Refused {
        /// What it says.
        errno: Errno,
    },
    /// The program has given the call up.
    #[error("the call was given up")]
    GivenUp,
    /// The message does not fit.
    #[error("{bytes} bytes do not fit into a message, which holds {limit}")]
    TooLong {
        /// What was to be sent.
        bytes: usize,
        /// What can be.
        limit: usize,
    },
    /// Too many calls are in flight.
    #[error("{limit} calls are in flight at this server already")]
    Busy {
        /// How many there may be.
        limit: usize,
    },
    /// The transfer machine, memory or the system is the reason.
    #[error(transparent)]
    Machine(#[from] Error),
}

impl RequestError {
    /// The errno that fits.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            RequestError::Unanswered { .. } => Errno::ETIMEDOUT,
            RequestError::Unreachable { failure, .. } => failure.errno,
            RequestError::Forgotten { .. } => Errno::ESTALE,
            RequestError::Refused { errno } => *errno,
            RequestError::GivenUp => Errno::ECANCELED,
            RequestError::TooLong { .. } => Errno::EMSGSIZE,
            RequestError::Busy { .. } => Errno::EAGAIN,
            RequestError::Machine(error) => error.errno(),
        }
    }
}

/// What a requester has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RequestCounters {
    /// Calls begun.
    pub calls: u64,
    /// Calls answered, with a refusal of the server's or without.
    pub answered: u64,
    /// Calls whose deadline has passed.
    pub unanswered: u64,
    /// Calls whose server was not there.
    pub unreachable: u64,
    /// Calls of which the server has forgotten whether they ran.
    pub forgotten: u64,
    /// Requests sent again.
    pub retries: u64,
    /// Times that a session was asked for.
    pub opens: u64,
    /// Answers to calls that had ended without one. Dropped.
    pub late: u64,
    /// Answers to calls that were answered already. Dropped.
    pub duplicates: u64,
    /// Messages of servers that were not asked, or to an earlier program at this address, and answers to calls of which
    /// more than 64 others have used the slot since. Dropped.
    pub strays: u64,
    /// Messages that are no answers. Dropped.
    pub malformed: u64,
}

/// What a responder has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ResponderCounters {
    /// Requests given to the program.
    pub requests: u64,
    /// Requests that had run, and were answered again.
    pub repeated: u64,
    /// Requests that came again while they ran, or that their clients had given up. Dropped.
    pub ignored: u64,
    /// Requests of sessions that are unknown. Refused.
    pub stale: u64,
    /// Sessions refused because there are as many as may be.
    pub full: u64,
    /// Messages that are no requests. Dropped.
    pub malformed: u64,
    /// Answers dropped, because too many to that client's node had not left yet: it does not take them.
    pub unsent: u64,
}

/// A number that nobody else has.
pub(super) fn random() -> Result<u64, Error> {
    // 0 stands for none.
    getrandom::u64().map(|number| number.max(1)).map_err(|_| Error::Random)
}
