//! The parameters of both sides: options, errors and counters.

use std::fmt;
use std::iter::Sum;
use std::time::Duration;

use nix::errno::Errno;
use nlx_sync::SlotKey;

use crate::Class;

/// The delivery guarantee of requests: the number of times that a request may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// Once, or not at all.
    #[default]
    AtMostOnce,
    /// Each time that it arrives. For idempotent requests: it needs no session, and the server
    /// stores nothing.
    AtLeastOnce,
}

/// The options of a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestOptions {
    /// A call ends without an answer after this time, unless its server asks for more.
    pub deadline: Duration,
    /// A call ends after this time although its server asks for more; at least the deadline counts.
    pub deadline_max: Duration,
    /// The shortest delay before the request is sent again for the first time: that of a server
    /// whose speed is not known yet. It doubles each time.
    pub retry_after: Duration,
    /// The longest such delay.
    pub retry_max: Duration,
    /// Bytes of a message, including a header of 64; at most the length of a buffer. Both sides
    /// should use the same.
    pub message_max: usize,
    /// Maximum number of calls in flight at each server; at most 64.
    pub in_flight_max: usize,
    /// The delivery guarantee: the number of times that a request may run.
    pub delivery: Delivery,
    /// Repeats a call until its deadline if its server cannot be reached: for a server that is
    /// being started or restarted. Without this the call ends with [`RequestError::Unreachable`].
    pub patient: bool,
}

impl Default for RequestOptions {
    fn default() -> RequestOptions {
        RequestOptions {
            deadline: Duration::from_secs(30),
            // A storage server that is overloaded for longer than this has failed.
            deadline_max: Duration::from_secs(600),
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

/// The options of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponderOptions {
    /// Bytes of a message, including a header of 64.
    pub message_max: usize,
    /// Maximum number of clients whose answers are stored. Each costs up to 64 answers, the largest
    /// number of calls that it has had in flight: with these defaults at most 256 MiB, if all
    /// clients use all their slots.
    pub sessions_max: usize,
    /// A client that sent a request within this time is not forgotten to make room for another,
    /// which is refused instead. Must be longer than the deadline of any client's calls, or these
    /// may fail as forgotten.
    pub session_idle: Duration,
}

impl Default for ResponderOptions {
    fn default() -> ResponderOptions {
        ResponderOptions { message_max: 4096, sessions_max: 1024, session_idle: Duration::from_secs(60) }
    }
}

/// A new call, for [`Calls::begin`](super::Calls::begin).
#[derive(Debug, Clone, Copy)]
pub struct NewCall<B> {
    /// The memory in which the request lies.
    pub buffer: B,
    /// The length of the request in bytes.
    pub length: u32,
    /// The number of times that the request may run.
    pub delivery: Delivery,
    /// The class of the request.
    pub class: Class,
    /// Set if the request begins with offers of memory.
    pub has_offers: bool,
    /// The time at which the call ends without an answer.
    pub deadline_ns: u64,
}

/// The id of a call of a requester.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u64);

impl CallId {
    /// Tags below 2^32 are those of peers, because no call has the generation 0.
    pub(super) fn new(key: SlotKey) -> CallId {
        CallId(key.to_bits(u32::BITS))
    }

    pub(super) fn key(self) -> SlotKey {
        SlotKey::from_bits(self.0, u32::BITS)
    }

    /// Returns the number that names the call in [`Calls::sent`](super::Calls::sent).
    #[must_use]
    pub fn tag(self) -> u64 {
        self.0
    }

    /// Returns the id with this tag.
    #[must_use]
    pub fn from_tag(tag: u64) -> CallId {
        CallId(tag)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlotKey { index, generation } = self.key();
        write!(f, "CallId({index}.{generation})")
    }
}

/// The reason why a message to a server could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct SendFailure {
    /// The errno of the network, of memory, or of the system.
    pub errno: Errno,
    /// The server, and the error of the transfer machine.
    pub text: String,
}

impl SendFailure {
    /// Returns whether it proves that the server's node is not running or not reachable, and not
    /// only that a connection broke or is slow.
    pub(super) fn is_definite(&self) -> bool {
        matches!(
            self.errno,
            Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH | Errno::EHOSTDOWN
        )
    }
}

/// Returns the end of an error message, after "sent n times": why the last attempt failed, if that
/// is known.
fn because(failure: &Option<SendFailure>) -> String {
    failure.as_ref().map(|failure| format!("; the last time: {failure}")).unwrap_or_default()
}

/// The error of a call: the reason why it has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The deadline has passed.
    #[error("no answer by the deadline, after the request was sent {sent} times{}", because(failure))]
    Unanswered {
        /// The number of times that the request was sent; 0 if no session was opened.
        sent: u32,
        /// The reason why the request, or the request for a session, could not be sent the last
        /// time; `None` if it was sent, and no answer arrived.
        failure: Option<SendFailure>,
    },
    /// The server's node cannot be reached: its host refuses the connection, or no network leads to
    /// it. If the request was sent more than once, the server may have run it.
    #[error("the server cannot be reached, after the request was sent {sent} times: {failure}")]
    Unreachable {
        /// The number of times that the request was sent, this time included; 0 if no session was
        /// opened.
        sent: u32,
        /// The reason why the request, or the request for a session, could not be sent.
        failure: SendFailure,
    },
    /// The server has forgotten the session, so that it is unknown whether the request has run.
    #[error(
        "the server has forgotten the session: whether the request, sent {sent} times, has run is unknown"
    )]
    Forgotten {
        /// The number of times that the request was sent. If 1, the request has not run, unless the
        /// network has duplicated it.
        sent: u32,
    },
    /// The server refuses the request, or has run it and reports that it failed.
    #[error("the server refuses the request: {errno}")]
    Refused {
        /// The server's errno.
        errno: Errno,
    },
    /// The program has given the call up.
    #[error("the call was given up")]
    GivenUp,
    /// The message does not fit.
    #[error("{bytes} bytes do not fit into a message: it holds at most {limit}")]
    TooLong {
        /// The length of the message.
        bytes: usize,
        /// Maximum number of bytes of a message.
        limit: usize,
    },
    /// The limit of calls in flight is reached.
    #[error("the limit of {limit} calls in flight to this server is reached")]
    Busy {
        /// The maximum number of calls in flight to one server.
        limit: usize,
    },
    /// An error of the network below, of memory, or of the system, at the caller's own node.
    #[error("{text}")]
    System {
        /// The errno, for programs.
        errno: Errno,
        /// The message, with the step that failed.
        text: String,
    },
}

impl RequestError {
    /// Returns the matching errno.
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
            RequestError::System { errno, .. } => *errno,
        }
    }
}

/// The counters of a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RequestCounters {
    /// Calls started.
    pub calls: u64,
    /// Calls answered, including refusals by the server.
    pub answered: u64,
    /// Calls whose deadline has passed.
    pub unanswered: u64,
    /// Calls whose server could not be reached.
    pub unreachable: u64,
    /// Calls whose session the server had forgotten.
    pub forgotten: u64,
    /// Requests sent again.
    pub retries: u64,
    /// Early replies: times that a server has asked for more time.
    pub early: u64,
    /// Requests for a session that were sent.
    pub opens: u64,
    /// Answers and early replies to calls that had ended without an answer; dropped.
    pub late: u64,
    /// Answers to calls that were answered already; dropped.
    pub duplicates: u64,
    /// Messages of servers that were not called, answers to an earlier program at this address, and
    /// answers to calls more than 64 calls ago in their slot; dropped.
    pub strays: u64,
    /// Messages that are no answers; dropped.
    pub malformed: u64,
}

/// The counters of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ResponderCounters {
    /// Requests passed to the program.
    pub requests: u64,
    /// Repeated requests that had run, and whose answer was sent again.
    pub repeated: u64,
    /// Requests that were repeated while they ran, or that their clients had abandoned; dropped.
    pub ignored: u64,
    /// Requests of unknown sessions; refused.
    pub stale: u64,
    /// Sessions refused because the limit is reached.
    pub full: u64,
    /// Requests dropped because too many wait or run.
    pub overflow: u64,
    /// Early replies: times that clients were asked for more time.
    pub early: u64,
    /// Messages that are no requests; dropped.
    pub malformed: u64,
    /// Answers dropped because too many answers to the client's node were in flight: the node does
    /// not receive them.
    pub unsent: u64,
}

impl Sum for ResponderCounters {
    fn sum<I: Iterator<Item = ResponderCounters>>(all: I) -> ResponderCounters {
        all.fold(ResponderCounters::default(), |sum, one| ResponderCounters {
            requests: sum.requests + one.requests,
            repeated: sum.repeated + one.repeated,
            ignored: sum.ignored + one.ignored,
            stale: sum.stale + one.stale,
            full: sum.full + one.full,
            overflow: sum.overflow + one.overflow,
            early: sum.early + one.early,
            malformed: sum.malformed + one.malformed,
            unsent: sum.unsent + one.unsent,
        })
    }
}
