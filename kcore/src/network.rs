//! What stands below the transfer machines of a domain, or of a helper's clients.

use std::sync::Arc;

use lnet_api::{Drive, LNet, LNetError};
use lnet_nid::{Nid, ProcessId};
use nlx_core::{Address, CoreError, Limits, StartAddress};

use crate::node::{self, Node};
use crate::sync::{AtomicU64, Ordering};

/// LNet, and what is shared by all that stand on it.
pub(crate) struct Network {
    pub(crate) lnet: Arc<dyn LNet>,
    pub(crate) drive: Arc<dyn Drive>,
    pub(crate) limits: Limits,
    pub(crate) node: Arc<Node>,
    pub(crate) faults: Arc<FaultCounters>,
}

/// What should never happen, counted since the start. None of it is fatal (MT-229).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Events of a kind that their operation cannot have.
    pub unexpected: u64,
    /// Events of operations that were over.
    pub stale: u64,
    /// Events for which there was no room.
    pub overruns: u64,
}

#[derive(Default)]
pub(crate) struct FaultCounters {
    pub(crate) unexpected: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) overruns: AtomicU64,
}

impl Network {
    pub(crate) fn new(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>) -> Arc<Network> {
        let node = node::of(&lnet);
        Arc::new(Network { node, lnet, drive, limits: Limits::LNET, faults: Arc::default() })
    }

    /// What has gone wrong between LNet and this crate so far.
    pub(crate) fn faults(&self) -> Faults {
        let FaultCounters { unexpected, stale, overruns } = &*self.faults;
        Faults { unexpected: read(unexpected), stale: read(stale), overruns: read(overruns) }
    }

    /// The node's NIDs, `0@lo` as the last.
    pub(crate) fn nids(&self) -> Vec<Nid> {
        let mut nids: Vec<Nid> = self.lnet.local_ids().into_iter().map(|id| id.nid).collect();
        nids.sort_by_key(|nid| nid.is_loopback());
        nids
    }

    /// The node has this NID with this PID (MT-223).
    pub(crate) fn check_local(&self, wanted: &StartAddress) -> Result<(), CoreError> {
        let StartAddress { nid, pid, .. } = *wanted;
        let own = ProcessId::new(nid, pid);
        if self.lnet.local_ids().contains(&own) { Ok(()) } else { Err(CoreError::NotLocal { nid, pid }) }
    }

    /// An address is free again.
    pub(crate) fn give_back(&self, address: &Address) {
        self.node.registry.lock().give_back(address);
    }
}

/// What LNet says, in the words of the Core interface, which knows no LNet.
pub(crate) fn transport_error(action: &'static str) -> impl Fn(LNetError) -> CoreError {
    move |error| CoreError::Transport { action, reason: error.to_string(), errno: error.errno() }
}

/// Faults are numbers that only grow.
fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
