//! Operations of the console: one for each command of `lst` that changes something or asks nodes.

use lnet_nid::ProcessId;
use lnet_proto::lst::{Check, Direction, Features, Name};

use super::NodeStates;

/// A task for a console ([`Console::begin`](super::Console::begin)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsoleOperation {
    /// Opens a session. Sends nothing.
    NewSession(NewSession),
    /// Makes a group of nodes and sends MKSN to those that are not ACTIVE.
    AddGroup {
        /// The name of the new group, which no other group has.
        name: Name,
        /// The nodes that become members.
        nodes: Vec<ProcessId>,
    },
    /// Deletes a group that no test uses and sends RMSN to its ACTIVE nodes without another group.
    DelGroup {
        /// The group to delete.
        name: Name,
    },
    /// Changes a group that no test uses.
    UpdateGroup {
        /// The group to change.
        name: Name,
        /// The nodes to remove, or to ask again.
        update: GroupUpdate,
    },
    /// Makes a batch without tests. Sends nothing.
    AddBatch {
        /// The name of the new batch, which no other batch has.
        name: Name,
    },
    /// Adds a test to a batch that does not run: TEST to the servers, then to the clients.
    AddTest(AddTest),
    /// Starts the clients of a batch.
    Run {
        /// The batch to start.
        batch: Name,
        /// A number that goes to the nodes, which ignore it.
        timeout_s: u32,
    },
    /// Stops the clients of a batch, and waits until none of them runs.
    Stop {
        /// The batch to stop.
        batch: Name,
        /// Whether RPCs in flight are aborted.
        force: bool,
    },
    /// Asks the nodes of a batch how many of its clients run.
    Query(Query),
    /// Measures rates between STATs.
    Stat(Stat),
    /// Asks for the error counters.
    ShowError {
        /// The nodes to ask; the report has an entry for each target.
        targets: Vec<Target>,
    },
    /// Asks which session the nodes hold.
    Ping {
        /// The nodes to ask.
        target: Target,
        /// Seconds to wait, raised or lowered to [`WAIT_MIN_S`](super::WAIT_MIN_S) to
        /// [`WAIT_S`](super::WAIT_S).
        timeout_s: u32,
    },
    /// Closes the session and sends RMSN to all ACTIVE nodes. Without a session it does nothing.
    EndSession,
}

/// A session to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// The name under which the nodes show the session; at most 31 bytes.
    pub name: Name,
    /// Distinguishes it from other sessions of this console: milliseconds since the start of the
    /// host or of the epoch.
    pub stamp: i64,
    /// Seconds without a command after which the console ends it, not 0.
    pub timeout_s: u32,
    /// Whether a node ends the session of another console for it.
    pub force: bool,
    /// The features asked of the nodes. The first node to answer decides (lst 10.4).
    pub features: Features,
}

/// A change of the members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupUpdate {
    /// Sends MKSN again to the nodes that are not ACTIVE.
    Refresh,
    /// Removes the nodes in these states. An empty group is deleted.
    Clean(NodeStates),
    /// Removes these nodes. An empty group is deleted.
    Remove(Vec<ProcessId>),
}

/// A test to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddTest {
    /// The batch that starts and stops the test.
    pub batch: Name,
    /// The group whose nodes send the requests.
    pub from: Name,
    /// The group whose nodes answer the requests.
    pub to: Name,
    /// The kind of requests: PING, or BRW with its transfers.
    pub kind: TestKind,
    /// RPCs of each unit of a client; `None` is without end.
    pub repeats: Option<u32>,
    /// Units of a client for each of its servers.
    pub concurrency: u32,
    /// The assignment of servers to clients.
    pub distribution: Distribution,
}

/// The service that a test drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestKind {
    /// Round trips without data.
    Ping,
    /// Transfers of bulk data.
    Brw(BrwTest),
}

/// The transfers of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrwTest {
    /// Whether clients read from their servers or write to them.
    pub direction: Direction,
    /// The pattern that the receiver compares with; one side fills its buffer with it.
    pub check: Check,
    /// Bytes of each transfer.
    pub length: u32,
    /// Where a client's buffer begins in its first page.
    pub offset: u32,
}

/// Which servers a client has (lst 10.3): `clients` clients in a row share `servers` servers in a
/// row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distribution {
    /// Clients that have the same servers.
    pub clients: u32,
    /// Servers of each client.
    pub servers: u32,
}

/// A question for the state of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// The batch whose clients or servers are asked.
    pub batch: Name,
    /// The test of the batch, from 1; 0 is the whole batch.
    pub test: u32,
    /// Whether the servers are asked instead of the clients.
    pub servers: bool,
    /// Seconds to wait, at least [`WAIT_MIN_S`](super::WAIT_MIN_S).
    pub timeout_s: u32,
    /// How many times it is asked; `None` is without end.
    pub count: Option<u32>,
    /// Seconds between two times.
    pub delay_s: u32,
}

/// A measurement of rates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The nodes to measure; the report has an entry for each target.
    pub targets: Vec<Target>,
    /// Seconds to wait, raised or lowered to [`WAIT_MIN_S`](super::WAIT_MIN_S) to
    /// [`WAIT_S`](super::WAIT_S).
    pub timeout_s: u32,
    /// Seconds between two STATs, not 0.
    pub delay_s: u32,
    /// Number of intervals; `None` is without end.
    pub count: Option<u32>,
}

/// Nodes that are asked together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The members of all groups, each once.
    Session,
    /// The nodes of a group.
    Group(Name),
    /// The nodes of a batch's tests.
    Batch {
        /// The name of the batch.
        name: Name,
        /// Whether its servers are meant instead of its clients.
        servers: bool,
    },
    /// These nodes, of the session or not.
    Nodes(Vec<ProcessId>),
}
