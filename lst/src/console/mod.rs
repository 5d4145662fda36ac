//! The console of `lst`: sessions, groups, batches and tests, as a state machine (lst 10).
//!
//! [`Console`] has no clock, no thread and no network. A caller begins a [`ConsoleOperation`], sends the
//! RPCs that the console hands out, reports how each of them ended, and calls
//! [`Console::advance`] when the time of [`Console::next_ns`] has come. One operation is in
//! progress at a time. Keep-alive RPCs go on beside it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lnet_proto::lst::{Features, Name};
//! use nlx_lst::Ids;
//! use nlx_lst::console::{Console, ConsoleOperation, Event, NewSession, Report};
//!
//! let ids = Arc::new(Ids::new(1_795_793_000));
//! let mut console = Console::new("10.0.0.9@tcp".parse()?, ids)?;
//! let name = Name::new("main")?;
//! let session =
//!     NewSession { name, stamp: 1, timeout_s: 300, force: false, features: Features::BULK_LENGTH };
//! console.begin(ConsoleOperation::NewSession(session), 0)?;
//! assert!(matches!(console.next_event(), Some(Event::Done(Ok(Report::Session(_))))));
//!
//! let nodes = vec!["12345-10.0.0.10@tcp".parse()?];
//! console.begin(ConsoleOperation::AddGroup { name: Name::new("clients")?, nodes }, 0)?;
//! let rpc = console.next_rpc().expect("the node is new, so it is sent a MKSN");
//! assert_eq!(rpc.to.to_string(), "12345-10.0.0.10@tcp");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod add_test;
mod batches;
mod check;
mod error;
mod groups;
mod join;
mod lifetime;
mod node;
mod observe;
mod operation;
mod report;
mod rpc;
mod session;
mod steps;
mod transaction;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use lnet_nid::Nid;
use lnet_proto::lst::{MESSAGE_LEN, SessionId};
use nix::errno::Errno;

pub use error::{ConsoleError, Hazard, Warning};
pub use node::{NodeState, NodeStates};
pub use operation::{
    AddTest, BrwTest, ConsoleOperation, Distribution, GroupUpdate, NewSession, Query, Stat, Target, TestKind,
};
pub use report::{
    BatchInfo, Event, GroupInfo, GroupOutcome, HeldSession, NodeAnswer, NodeFailure, NodeInfo, QueryReport,
    Rates, Report, SessionInfo, Summary, TargetReport, TestInfo, count_states,
};
pub use rpc::{ConsoleRpc, DestinationList};

use crate::Ids;
use session::Session;
use steps::Running;
use transaction::Pending;

/// Most nodes of a session, and of an operation: as many as a list of NIDs may have.
pub const NODES_MAX: usize = lnet_nid::NidList::MEMBERS_MAX;

/// Most members of all groups of a session: each node in four of them.
pub const MEMBERS_MAX: usize = 4 * NODES_MAX;

/// Most groups of a session. A group for each node of a large site.
pub const GROUPS_MAX: usize = 4096;

/// Most batches of a session.
pub const BATCHES_MAX: usize = 1024;

/// Most tests of a batch, those included that were refused by some nodes.
pub const TESTS_MAX: usize = 1024;

/// Seconds to wait for a reply (lst 10.3); also the longest wait that an option may set.
pub const WAIT_S: u32 = 30;

/// Least seconds to wait that an option may set.
pub const WAIT_MIN_S: u32 = 3;

/// Seconds to wait for the replies of [`ConsoleOperation::ShowError`].
const SHOW_ERROR_WAIT_S: u32 = 10;

/// Least wait whose end marks the node as DOWN: a shorter one counts as interrupted (lst 10.3).
const DOWN_WAIT_S: u32 = 6;

/// Seconds after which a node that has not announced a timeout is taken to end its session: the
/// default of kernel nodes.
const NODE_TIMEOUT_S: u32 = 100;

/// Interval at which the console looks for nodes to keep alive, and for its own timeout (lst 10.5).
const TICK_NS: u64 = 8 * SECOND_NS;

/// Interval between two QUERYs of [`ConsoleOperation::Stop`].
const DRAIN_NS: u64 = SECOND_NS;

/// Time after which [`ConsoleOperation::Stop`] does not wait any longer. An RPC of a client ends at the
/// latest 72 s after the STOP, by its own timeout of 64 s, which is checked every 8 s (lst 9.2).
const DRAIN_MAX_NS: u64 = 90 * SECOND_NS;

const SECOND_NS: u64 = 1_000_000_000;

/// A console with at most one session.
#[derive(Debug)]
pub struct Console {
    own: Nid,
    ids: Arc<Ids>,
    /// Number of the next batch. It goes on over sessions (lst 10.3).
    next_batch: u64,
    session: Option<Session>,
    running: Option<Running>,
    /// RPCs in flight, by reply id.
    pending: BTreeMap<u64, Pending>,
    rpcs: VecDeque<ConsoleRpc>,
    aborts: VecDeque<u64>,
    events: VecDeque<Event>,
}

impl Console {
    /// Creates a console without a session.
    ///
    /// `own` is the first NID of this host that is not the loopback's. `ids` is the counter of the
    /// program, from which reply ids and bulk ids are taken.
    ///
    /// # Errors
    /// [`ConsoleError::LargeNid`]: session ids have room for 4-byte addresses only (lst 14).
    pub fn new(own: Nid, ids: Arc<Ids>) -> Result<Console, ConsoleError> {
        SessionId::new(own, 0).map_err(|_| ConsoleError::LargeNid { nid: own })?;
        Ok(Console {
            own,
            ids,
            next_batch: 1,
            session: None,
            running: None,
            pending: BTreeMap::new(),
            rpcs: VecDeque::new(),
            aborts: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Begins an operation. Its end is an [`Event::Done`].
    ///
    /// # Errors
    /// The operation cannot be done, and nothing was changed or sent.
    pub fn begin(&mut self, operation: ConsoleOperation, now_ns: u64) -> Result<(), ConsoleError> {
        if self.running.is_some() {
            return Err(ConsoleError::Busy);
        }
        let next = self.start(operation, now_ns)?;
        if let Some(session) = &mut self.session {
            session.command_ns = now_ns;
        }
        self.apply(next, now_ns);
        self.settle(now_ns);
        Ok(())
    }

    /// Ends the operation in progress: RPCs in flight are aborted and count as failed with EINTR,
    /// and no further step begins. Does nothing if there is none.
    pub fn cancel(&mut self, now_ns: u64) {
        self.interrupt(now_ns);
        self.settle(now_ns);
    }

    /// Takes the outcome of an RPC: its reply, or the reason why there is none. An RPC that has
    /// ended already is ignored.
    pub fn answered(&mut self, reply_id: u64, outcome: Result<&[u8], Errno>, now_ns: u64) {
        self.take_outcome(reply_id, outcome, now_ns);
        self.settle(now_ns);
    }

    /// Answers a JOIN from `from`, which came to [`lnet_proto::lst::LstService::Join`]. Returns the
    /// match bits and the bytes of the reply; `None` if the request is malformed and gets none.
    pub fn join(
        &mut self,
        from: lnet_nid::ProcessId,
        request: &[u8],
        now_ns: u64,
    ) -> Option<(u64, [u8; MESSAGE_LEN])> {
        self.take_join(from, request, now_ns)
    }

    /// Does what is due: timeouts, the next step of the operation, keep-alive, expiry.
    pub fn advance(&mut self, now_ns: u64) {
        self.expire_transaction(now_ns);
        self.tick(now_ns);
        self.settle(now_ns);
    }

    /// Returns the time at which [`Console::advance`] has something to do.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        let operation = self.running.as_ref().map(Running::due_ns);
        operation.into_iter().chain(self.next_tick_ns()).min()
    }

    /// Returns the next RPC to be sent.
    pub fn next_rpc(&mut self) -> Option<ConsoleRpc> {
        self.rpcs.pop_front()
    }

    /// Returns the reply id of the next RPC that is given up: the caller withdraws its buffers and
    /// does not report its outcome.
    pub fn next_abort(&mut self) -> Option<u64> {
        self.aborts.pop_front()
    }

    /// Returns the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns whether an operation is in progress.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// Returns the session, also an expired one.
    #[must_use]
    pub fn session(&self) -> Option<SessionInfo> {
        self.session.as_ref().map(Session::info)
    }

    /// Returns the groups, in the order in which they were made. Asking is no command: it does not
    /// keep the session from expiring.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupInfo> {
        self.session.iter().flat_map(Session::group_infos).collect()
    }

    /// Returns the batches, in the order in which they were made.
    #[must_use]
    pub fn batches(&self) -> Vec<BatchInfo> {
        self.session.iter().flat_map(Session::batch_infos).collect()
    }

    /// Returns the open session.
    fn open(&mut self) -> Result<&mut Session, ConsoleError> {
        let session = self.session.as_mut().ok_or(ConsoleError::NoSession)?;
        match session.expired {
            false => Ok(session),
            true => Err(ConsoleError::Expired { name: session.name, timeout_s: session.timeout_s }),
        }
    }
}
