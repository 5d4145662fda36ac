//! A test client: its work, its units' common state, its results (lst 9.1).

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use lnet_nid::ProcessId;
use lnet_proto::lst::{Check, Direction, Features, LstService};

use super::progress::Progress;
use super::results::Results;
use super::shared::{MemoryCharge, NodeShared};

/// What the units of a test do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// PING requests.
    Ping,
    /// BRW requests.
    Brw {
        /// The direction of the data.
        direction: Direction,
        /// How they are checked.
        check: Check,
        /// Bytes of each transfer.
        length: u32,
    },
}

impl Work {
    /// Returns the service that the requests are sent to.
    #[must_use]
    pub const fn service(self) -> LstService {
        match self {
            Work::Ping => LstService::Ping,
            Work::Brw { .. } => LstService::Brw,
        }
    }

    /// Bytes of the bulk buffer that each unit needs.
    #[must_use]
    pub const fn bulk_length(self) -> usize {
        match self {
            Work::Ping => 0,
            Work::Brw { length, .. } => length as usize,
        }
    }
}

/// Errors of a session's test clients at this node, for its STAT replies.
#[derive(Debug, Default)]
pub(super) struct SessionErrors {
    pub(super) brw: AtomicU32,
    pub(super) ping: AtomicU32,
}

/// A test client: concurrency × destinations units of the same work.
#[derive(Debug)]
pub struct TestInstance {
    pub(super) node: Arc<NodeShared>,
    pub(super) session: Arc<SessionErrors>,
    pub(super) work: Work,
    pub(super) features: Features,
    pub(super) repeats: u32,
    pub(super) stop_on_error: bool,
    pub(super) destinations: Vec<ProcessId>,
    pub(super) concurrency: u32,
    pub(super) progress: Progress,
    pub(super) results: Arc<Results>,
    pub(super) _charge: MemoryCharge,
}

impl TestInstance {
    /// Returns the kind of requests that the units send.
    #[must_use]
    pub fn work(&self) -> Work {
        self.work
    }

    /// Returns the processes that the units send to: each has as many units as the others.
    #[must_use]
    pub fn destinations(&self) -> &[ProcessId] {
        &self.destinations
    }

    /// Returns the number of units: concurrency × destinations.
    #[must_use]
    pub fn units(&self) -> u32 {
        // At most 1,024 times 87,296.
        self.concurrency * self.destinations.len() as u32
    }

    /// Number of units that have not ended.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.progress.running()
    }

    /// Returns the results, which outlive the test client.
    #[must_use]
    pub fn results(&self) -> Arc<Results> {
        Arc::clone(&self.results)
    }
}
