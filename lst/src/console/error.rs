//! Why the console does not begin an operation, and what it warns of.

use lnet_nid::{Nid, ProcessId};
use lnet_proto::lst::{Features, Name};
use nix::errno::Errno;
use thiserror::Error;

use super::NodeState;

/// The reason why an operation was refused by the console itself. Nothing has been sent, except by
/// [`ConsoleError::Canceled`] and for a probe.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConsoleError {
    /// The operation needs a session.
    #[error("no session is open")]
    NoSession,
    /// A session is open already.
    #[error("session {name} is open: end it first")]
    SessionOpen {
        /// The open session.
        name: Name,
    },
    /// The session has ended because no command was given.
    #[error("session {name} has expired after {timeout_s} s without a command: end it and open a new one")]
    Expired {
        /// The session that has expired.
        name: Name,
        /// Seconds without a command after which it expires.
        timeout_s: u32,
    },
    /// The operation before this one has not ended.
    #[error("another operation is in progress")]
    Busy,
    /// The operation was cancelled between two of its steps.
    #[error("cancelled")]
    Canceled,
    /// The name is taken.
    #[error("{object} {name} exists already")]
    Exists {
        /// `group` or `batch`.
        object: &'static str,
        /// The name that is in use.
        name: Name,
    },
    /// No object has the name.
    #[error("{object} {name} does not exist")]
    NotFound {
        /// `group`, `batch` or `test`.
        object: &'static str,
        /// The name or number that was not found.
        name: String,
    },
    /// A group cannot change because a test uses it.
    #[error("group {group} is used by a test of batch {batch}")]
    InUse {
        /// The group that was to change.
        group: Name,
        /// The batch with the test that uses the group.
        batch: Name,
    },
    /// A batch cannot change between `run` and `stop`.
    #[error("batch {batch} is running: stop it first")]
    Running {
        /// The batch that runs.
        batch: Name,
    },
    /// A batch without a test cannot run.
    #[error("batch {batch} has no test")]
    NoTests {
        /// The batch that was to run.
        batch: Name,
    },
    /// A node that takes part is not ACTIVE.
    #[error("node {node} is {state}, not Active")]
    NotActive {
        /// The node that the operation needs.
        node: ProcessId,
        /// The state of the node, other than ACTIVE.
        state: NodeState,
    },
    /// A node is no member of the group.
    #[error("node {node} is not in group {group}")]
    NotMember {
        /// The node that is not in the group.
        node: ProcessId,
        /// The group that was searched.
        group: Name,
    },
    /// A number is out of range.
    #[error("{what} is {value}, not {min} to {limit}")]
    Range {
        /// What the number is.
        what: &'static str,
        /// The number that was given.
        value: u64,
        /// The least valid one.
        min: u64,
        /// The greatest valid one.
        limit: u64,
    },
    /// A limit on the number of objects is reached.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The kind of objects, in the plural.
        what: &'static str,
        /// The maximum number of these objects.
        limit: usize,
    },
    /// A NID has no 64-bit form, which session ids and lists of destinations need (lst 14).
    #[error("{nid} has no 4-byte address, and lst has room for no other")]
    LargeNid {
        /// The NID with a larger address.
        nid: Nid,
    },
    /// A kernel node could die of it.
    #[error(transparent)]
    Hazard(#[from] Hazard),
}

impl ConsoleError {
    /// Returns the errno that LNet's console has for it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            ConsoleError::NoSession | ConsoleError::Expired { .. } => Errno::ESRCH,
            ConsoleError::SessionOpen { .. } => Errno::EOPNOTSUPP,
            ConsoleError::Busy | ConsoleError::InUse { .. } => Errno::EBUSY,
            ConsoleError::Canceled => Errno::EINTR,
            ConsoleError::Exists { .. } => Errno::EEXIST,
            ConsoleError::NotFound { .. } | ConsoleError::NotMember { .. } => Errno::ENOENT,
            ConsoleError::NotActive { .. } => Errno::ENETDOWN,
            ConsoleError::TooMany { .. } => Errno::ENOMEM,
            ConsoleError::Running { .. }
            | ConsoleError::NoTests { .. }
            | ConsoleError::Range { .. }
            | ConsoleError::LargeNid { .. }
            | ConsoleError::Hazard(_) => Errno::EINVAL,
        }
    }
}

/// A parameter that stops kernel nodes with an assertion (lst 13).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} is {value}, must be {limit}: nodes of {releases} would stop with an assertion")]
pub struct Hazard {
    /// The name of the number, for the message.
    pub what: &'static str,
    /// The number that was given.
    pub value: String,
    /// The accepted range, as text.
    pub limit: &'static str,
    /// The releases of LNet that would have died of it.
    pub releases: &'static str,
}

/// A trap that an operation has set, or found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Warning {
    /// The session ends those of other consoles.
    #[error(
        "the session is forced: a kernel node whose own tests run while its session is replaced may keep a \
         zombie session and answer no further framework RPC until it is restarted"
    )]
    Forced,
    /// A node has sessions that have ended and do not go away.
    #[error(
        "node {node} has {sessions} zombie sessions: it may answer no further framework RPC until it is \
         restarted"
    )]
    Zombies {
        /// The node that holds ended sessions.
        node: ProcessId,
        /// The number of zombie sessions.
        sessions: u32,
    },
    /// A node has joined a forced session and does not answer any more.
    #[error(
        "node {node} was taken by force and does not answer any more: a kernel node with a zombie session \
         answers no framework RPC until it is restarted"
    )]
    SilentForced {
        /// The node that does not answer.
        node: ProcessId,
    },
    /// The console ends its session while a batch runs.
    #[error(
        "the session ends with batch {batch} running: a kernel node may keep it as a zombie session, and \
         rmmod lnet_selftest may hang there; stop the batch first"
    )]
    EndedRunning {
        /// A batch that runs.
        batch: Name,
    },
    /// A client has lost the session while its batch ran: to another console, or because it expired.
    #[error(
        "node {node} is {state} and has lost the session with batch {batch} running: a kernel node may keep a \
         zombie session, answer no further framework RPC until it is restarted, and rmmod lnet_selftest may \
         hang there"
    )]
    SessionLost {
        /// The client that lost the session.
        node: ProcessId,
        /// Its state now: BUSY if another console has it.
        state: NodeState,
        /// A batch that ran there.
        batch: Name,
    },
    /// A batch is stopped by force after a STOP without.
    #[error(
        "batch {batch} was stopped without force before, and kernel nodes abort nothing then: their RPCs in \
         flight end by their own timeout, 64 s"
    )]
    ForcedTooLate {
        /// The batch that is stopped twice.
        batch: Name,
    },
    /// The console's session has ended by its timeout while batches ran.
    #[error(
        "the session has expired after {timeout_s} s without a command, with batch {batch} running: on its \
         kernel nodes rmmod lnet_selftest may hang"
    )]
    ExpiredRunning {
        /// Seconds without a command.
        timeout_s: u32,
        /// A batch that ran.
        batch: Name,
    },
    /// A client has not answered for longer than its session lives without an RPC, and its batch ran.
    #[error(
        "node {node} has not answered for {silent_s} s: its session has expired with batch {batch} running, \
         and rmmod lnet_selftest may hang there"
    )]
    NodeExpired {
        /// The client that does not answer.
        node: ProcessId,
        /// Seconds since its last answer.
        silent_s: u64,
        /// A batch that ran there.
        batch: Name,
    },
    /// The first node has other features than were asked for.
    #[error("the session has the features {features:?}, as its first node has")]
    FeaturesChanged {
        /// The features of the session.
        features: Features,
    },
    /// A test that was refused by some nodes has been added at others, where it starts with the batch.
    #[error(
        "{nodes} nodes have added the test that others refused, and run it with batch {batch}: use a new batch"
    )]
    TestLeftovers {
        /// The batch that the test was added to.
        batch: Name,
        /// The number of nodes that have added the test.
        nodes: usize,
    },
}
