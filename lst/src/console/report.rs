//! What operations end with: per node, and the sums that tables and JSON are made of.

use lnet_nid::ProcessId;
use lnet_proto::lst::{Features, LnetCounters, Name, SessionId, Statistics};
use nix::errno::Errno;

use super::{AddTest, ConsoleError, NodeState, Target, Warning};

/// Something that the console has to say ([`Console::next_event`](super::Console::next_event)).
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An interim result: an interval of `stat`, a round of `query`, clients that still run at
    /// `stop`.
    Progress(Report),
    /// The operation has ended.
    Done(Result<Report, ConsoleError>),
    /// A trap that the user should know of.
    Warning(Warning),
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// The session that this console has opened; no node knows it yet.
    Session(SessionInfo),
    /// A batch was made.
    Batch {
        /// The name of the new batch.
        name: Name,
    },
    /// A group was added, changed or deleted.
    Group {
        /// The group that was changed.
        name: Name,
        /// The kind of change.
        outcome: GroupOutcome,
        /// The nodes that were sent an RPC.
        nodes: Vec<NodeAnswer<()>>,
    },
    /// A test was added, or not.
    Test {
        /// The batch that the test was added to.
        batch: Name,
        /// The number of the test in the batch, from 1; `None` if it was not added.
        number: Option<u32>,
        /// The answers of the servers, then, if all of these were 0, those of the clients.
        nodes: Vec<NodeAnswer<()>>,
    },
    /// A batch was started.
    Run {
        /// The batch that was started.
        batch: Name,
        /// The answers of the clients.
        nodes: Vec<NodeAnswer<()>>,
    },
    /// Clients of a batch still run after a STOP.
    Stopping {
        /// The batch that is being stopped.
        batch: Name,
        /// Clients with test instances that still run.
        nodes: usize,
    },
    /// A batch was stopped.
    Stop {
        /// The batch that was stopped.
        batch: Name,
        /// The answers of the clients to STOP, or the failures of the last QUERYs.
        nodes: Vec<NodeAnswer<()>>,
        /// Clients that still ran when the console ceased to wait.
        running: usize,
    },
    /// One round of a query.
    Query(QueryReport),
    /// One interval of `stat`, for each target.
    Stat(Vec<TargetReport<Rates>>),
    /// The error counters, for each target.
    Errors(Vec<TargetReport<Statistics>>),
    /// The sessions that nodes hold.
    Ping(TargetReport<HeldSession>),
    /// The session was closed.
    End {
        /// The nodes that were ACTIVE.
        nodes: Vec<NodeAnswer<()>>,
    },
}

/// What happened to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupOutcome {
    /// The group is new.
    Added,
    /// It was deleted again, because no node is ACTIVE.
    AddedWithoutNodes,
    /// It was refreshed.
    Refreshed,
    /// Nodes were removed from it. If none was left, it was deleted.
    Shrunk,
    /// It was deleted.
    Deleted,
}

/// The answer of one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeAnswer<T> {
    /// The node that was asked.
    pub node: ProcessId,
    /// The state of the node after the answer, or after the wait for it.
    pub state: NodeState,
    /// The result, or the reason why the node has none.
    pub answer: Result<T, NodeFailure>,
}

/// Why a node has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFailure {
    /// The RPC failed: no answer in time (ETIMEDOUT), no way to the node, a reply that cannot be
    /// read (EPROTO), or the operation was cancelled (EINTR).
    Rpc(Errno),
    /// The node refused with this status, or its answer does not fit the session (EPROTO).
    Refused(Errno),
}

impl<T> NodeAnswer<T> {
    /// Returns the answer with its result converted.
    pub(super) fn map<U>(self, convert: impl FnOnce(T) -> U) -> NodeAnswer<U> {
        NodeAnswer { node: self.node, state: self.state, answer: self.answer.map(convert) }
    }
}

impl NodeFailure {
    /// Returns the errno of the RPC, or the status of the refusal.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            NodeFailure::Rpc(errno) | NodeFailure::Refused(errno) => errno,
        }
    }
}

/// One round of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryReport {
    /// The batch whose clients or servers were asked.
    pub batch: Name,
    /// The test, from 1; 0 is the whole batch.
    pub test: u32,
    /// What still runs at each node: of the batch test clients, of a test units.
    pub nodes: Vec<NodeAnswer<u32>>,
}

impl QueryReport {
    /// Returns whether anything runs at any node.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.nodes.iter().any(|node| node.answer.is_ok_and(|active| active > 0))
    }
}

/// The answers of a target's nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetReport<T> {
    /// The nodes that were asked, as the operation names them.
    pub target: Target,
    /// One answer for each node that was asked.
    pub nodes: Vec<NodeAnswer<T>>,
}

impl<T> TargetReport<T> {
    /// Returns the results of the nodes that have one.
    pub fn results(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().filter_map(|node| node.answer.as_ref().ok())
    }
}

impl TargetReport<Rates> {
    /// Returns the summary of a rate over the nodes that were measured; `None` if there are none.
    #[must_use]
    pub fn summary(&self, rate: impl Fn(&Rates) -> f64) -> Option<Summary> {
        Summary::of(self.results().filter(|rates| rates.interval_ms > 0).map(rate))
    }
}

/// What a node's LNet did between two STATs (lst 8). Traffic other than the tests' is counted, too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Milliseconds between the two STATs, by the node's clock. Rates of an interval of 0 are 0.
    pub interval_ms: u32,
    /// LNet messages received per second.
    pub received: f64,
    /// LNet messages sent per second.
    pub sent: f64,
    /// Bytes received per second.
    pub bytes_received: f64,
    /// Bytes sent per second.
    pub bytes_sent: f64,
    /// The counters of the second STAT.
    pub last: Statistics,
}

/// Average, minimum and maximum of a rate over nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The arithmetic mean over the nodes with rates.
    pub average: f64,
    /// The lowest rate of a node.
    pub minimum: f64,
    /// The highest rate of a node.
    pub maximum: f64,
    /// The sum over the nodes.
    pub total: f64,
}

/// The session that a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSession {
    /// The id: the NID of the console, and its stamp.
    pub sid: SessionId,
    /// The name that the console chose.
    pub name: Name,
    /// Seconds after which the node ends it without an RPC; 0 is never.
    pub timeout_s: u32,
}

/// The session of a console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// The name under which the nodes show the session.
    pub name: Name,
    /// The id: the NID of the console, and the stamp.
    pub sid: SessionId,
    /// Its features: those asked until a node has answered.
    pub features: Features,
    /// Seconds without a command after which the console ends it.
    pub timeout_s: u32,
    /// Whether it was made with force.
    pub force: bool,
    /// Number of its nodes.
    pub nodes: usize,
    /// Whether it has ended by its timeout. It is shown until it is closed.
    pub expired: bool,
}

/// A member of a group or a test, with its last known state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The process id of the node.
    pub node: ProcessId,
    /// The state after the last reply of the node, or after the wait for one.
    pub state: NodeState,
}

/// A group of the session, with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    /// The name, unique among groups.
    pub name: Name,
    /// The members, with their states.
    pub nodes: Vec<NodeInfo>,
}

/// A batch of the session, with its tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchInfo {
    /// The name, unique among batches.
    pub name: Name,
    /// The number that messages carry for the batch.
    pub id: u64,
    /// Whether it was run and not stopped since. Its clients may have ended.
    pub running: bool,
    /// The tests, in the order in which they were added.
    pub tests: Vec<TestInfo>,
    /// The clients of all tests, each once.
    pub clients: Vec<NodeInfo>,
    /// The servers of all tests, each once.
    pub servers: Vec<NodeInfo>,
}

/// A test of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestInfo {
    /// The test as it was added.
    pub test: AddTest,
    /// The nodes that accepted the test as clients.
    pub clients: Vec<NodeInfo>,
    /// The nodes that accepted the test as servers.
    pub servers: Vec<NodeInfo>,
}

/// Returns how many of the nodes are in each state, in the order of [`NodeState::ALL`].
#[must_use]
pub fn count_states(nodes: &[NodeInfo]) -> [usize; 4] {
    NodeState::ALL.map(|state| nodes.iter().filter(|node| node.state == state).count())
}

impl Rates {
    /// Computes the rates between two STATs of one node. Counters may have wrapped around once.
    #[must_use]
    pub fn between(first: &Statistics, second: &Statistics) -> Rates {
        let interval_ms = second.session_ms.wrapping_sub(first.session_ms);
        let per_second = |difference: u64| match interval_ms {
            0 => 0.0,
            ms => difference as f64 * 1000.0 / f64::from(ms),
        };
        let (old, new): (&LnetCounters, &LnetCounters) = (&first.lnet, &second.lnet);
        Rates {
            interval_ms,
            received: per_second(new.received.wrapping_sub(old.received).into()),
            sent: per_second(new.sent.wrapping_sub(old.sent).into()),
            bytes_received: per_second(new.bytes_received.wrapping_sub(old.bytes_received)),
            bytes_sent: per_second(new.bytes_sent.wrapping_sub(old.bytes_sent)),
            last: *second,
        }
    }
}

impl Summary {
    /// Returns the summary of the values; `None` if there are none.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Summary> {
        let (mut count, mut total) = (0u32, 0.0);
        let (mut minimum, mut maximum) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            count += 1;
            total += value;
            (minimum, maximum) = (minimum.min(value), maximum.max(value));
        }
        (count > 0).then(|| Summary { average: total / f64::from(count), minimum, maximum, total })
    }
}
