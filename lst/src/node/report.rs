//! The state of a node, for reports.

use super::session::{Batch, Session};
use super::{Framework, SessionView};

/// The state of a node at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// The session that the node holds; `None` if it has none.
    pub session: Option<SessionReport>,
    /// Ended sessions with test clients that have not ended.
    pub zombies: u32,
    /// Bytes of destinations, units and bulk buffers that the tests use.
    pub memory_used: u64,
    /// Most bytes that they may use.
    pub memory_max: u64,
}

/// The session of a node at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// The id, the name and the features of the session.
    pub view: SessionView,
    /// Nanoseconds since it was made.
    pub age_ns: u64,
    /// Nanoseconds until it expires without another request of its console; `None` is never.
    pub expires_in_ns: Option<u64>,
    /// Its batches, in the order in which they were made here.
    pub batches: Vec<BatchReport>,
}

/// A batch of a node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchReport {
    /// The console's number of it.
    pub id: u64,
    /// Tests in which the node is a server.
    pub servers: usize,
    /// Tests in which it is a client.
    pub clients: usize,
    /// Test clients that run.
    pub running_clients: u32,
    /// Units of test clients that run.
    pub running_units: u32,
    /// RPCs of its test clients that failed.
    pub errors: u64,
}

impl Framework {
    /// Returns the state of the node.
    #[must_use]
    pub fn report(&mut self, now_ns: u64) -> NodeReport {
        NodeReport {
            session: self.session.as_ref().map(|session| session.report(now_ns)),
            zombies: self.zombies(),
            memory_used: self.node.memory_used(),
            memory_max: self.node.config.memory_max,
        }
    }
}

impl Session {
    fn report(&self, now_ns: u64) -> SessionReport {
        let never = self.deadline_ns == u64::MAX;
        SessionReport {
            view: self.view(),
            age_ns: now_ns.saturating_sub(self.made_ns),
            expires_in_ns: (!never).then(|| self.deadline_ns.saturating_sub(now_ns)),
            batches: self.batches.iter().map(Batch::report).collect(),
        }
    }
}
