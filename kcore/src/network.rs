//! The state below transfer machines: one LNet, its driver and its node, shared by all transfer
//! machines of a domain or of a helper's clients.

use std::sync::Arc;

use lnet_api::{Drive, LNet, LNetError};
use lnet_nid::{Nid, ProcessId};
use nlx_core::{
    Address, CoreError, Limits, MatchCounter, RegionError, StartAddress, match_bits, usable_portal,
};
use nlx_fallible::{NoMemory, text_of, try_push};
use nlx_sync::{AtomicU64, Ordering};

use crate::node::{self, DomainsShared};

/// LNet, and the state that all transfer machines over it share.
pub struct SharedNetwork {
    pub(crate) lnet: Arc<dyn LNet>,
    pub(crate) drive: Arc<dyn Drive>,
    pub(crate) limits: Limits,
    pub(crate) node: Arc<DomainsShared>,
    pub(crate) faults: Arc<AnomalyCounters>,
}

/// Counters of events that should never happen, since the start. None of them is fatal (MT-229).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies {
    /// Events of a kind that their operation cannot have.
    pub unexpected: u64,
    /// Events of operations that were over.
    pub stale: u64,
    /// Events for which the queue had no room.
    pub overruns: u64,
}

/// The counters behind [`Anomalies`].
#[derive(Default)]
pub struct AnomalyCounters {
    pub(crate) unexpected: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) overruns: AtomicU64,
}

impl SharedNetwork {
    /// Creates the network state over this LNet, which `drive` polls.
    pub fn new(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>) -> Arc<SharedNetwork> {
        let node = node::of(&lnet);
        Arc::new(SharedNetwork { node, lnet, drive, limits: Limits::LNET, faults: Arc::default() })
    }

    /// Returns the LNet that the transfer machines use.
    pub fn lnet(&self) -> &Arc<dyn LNet> {
        &self.lnet
    }

    /// Returns the object that drives the network and has its clock.
    pub fn drive(&self) -> &Arc<dyn Drive> {
        &self.drive
    }

    /// Returns the limits of transfer machines.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the counters of faults between LNet and this crate.
    pub fn faults(&self) -> Anomalies {
        let AnomalyCounters { unexpected, stale, overruns } = &*self.faults;
        Anomalies { unexpected: read(unexpected), stale: read(stale), overruns: read(overruns) }
    }

    /// Returns the node's NIDs, with `0@lo` last.
    pub(crate) fn nids(&self) -> Vec<Nid> {
        let mut nids: Vec<Nid> = self.lnet.local_ids().into_iter().map(|id| id.nid).collect();
        nids.sort_by_key(|nid| nid.is_loopback());
        nids
    }

    /// Returns the node's NIDs, with `0@lo` last, where an allocation may fail.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn try_nids(&self) -> Result<Vec<Nid>, NoMemory> {
        let mut nids = Vec::new();
        let mut outcome = Ok(());
        self.lnet.for_each_local_id(&mut |id| {
            outcome = outcome.and_then(|()| try_push(&mut nids, id.nid));
        });
        outcome?;
        // Both kinds keep their order, without the memory that a stable sort needs.
        let loopbacks = nids.iter().filter(|nid| nid.is_loopback()).count();
        nids.retain(|nid| !nid.is_loopback());
        nids.extend(std::iter::repeat_n(Nid::LOOPBACK, loopbacks));
        Ok(nids)
    }

    /// Checks that the node has this NID with this PID (MT-223).
    ///
    /// # Errors
    /// [`CoreError::NotLocal`] (ENOENT).
    pub fn check_local(&self, wanted: &StartAddress) -> Result<(), CoreError> {
        let StartAddress { nid, pid, .. } = *wanted;
        let own = ProcessId::new(nid, pid);
        let mut found = false;
        self.lnet.for_each_local_id(&mut |id| found |= id == own);
        if found { Ok(()) } else { Err(CoreError::NotLocal { nid, pid }) }
    }

    /// Returns the CPU partition in which the entries of this transfer machine lie and its events
    /// are produced.
    pub fn home(&self, address: &Address) -> usize {
        let bits = match_bits(address.tmid, MatchCounter::UNSOLICITED);
        // A machine that has started has a valid portal.
        usable_portal(address.portal).map_or(0, |portal| self.lnet.home(portal, bits))
    }

    /// Releases the address of a transfer machine, so that another one can take it.
    pub(crate) fn give_back(&self, address: &Address) {
        self.node.registry.lock().give_back(address);
    }
}

/// Translates an error of LNet into one of the Core interface, which has no LNet types.
pub(crate) fn transport_error(action: &'static str) -> impl Fn(LNetError) -> CoreError {
    // Without memory for the text it is truncated.
    move |error| CoreError::Transport { action, reason: text_of(&error), errno: error.errno() }
}

/// Returns ENOMEM as an error of the Core interface.
pub(crate) fn no_memory<E>(_: E) -> CoreError {
    RegionError::from(NoMemory).into()
}

/// Reads a counter. Relaxed, because each counter only grows and is independent of other data.
fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
