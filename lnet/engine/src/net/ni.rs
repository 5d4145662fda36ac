//! Network interfaces.

use std::sync::Arc;

use lnet_api::{Lnd, NiLimits};
use lnet_nid::{Nid, ProcessId};
use smallvec::SmallVec;

use crate::slab::{Key, Slab, slab};

/// Maximum number of NIs of a node. More than any host has network cards; the search for an NI is
/// linear.
pub(super) const NIS_MAX: usize = 64;

/// Limits of an NI until its LND has reported them: LNet's defaults (lnet-semantics 28).
pub(super) const STARTING_LIMITS: NiLimits =
    NiLimits { credits: 256, peer_credits: 8, timeout_ns: 50_000_000_000 };

/// Time that a message may wait for credits beyond that of an attempt, in nanoseconds
/// (lnet-semantics 13).
const DEADLINE_SLACK_NS: u64 = 1_000_000_000;

/// A partition has credits for this many busy peers, if the NI has enough (lnet-semantics 13).
const BUSY_PEERS: u32 = 8;

/// Phase in the life of an NI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NiPhase {
    /// The LND is starting the NI: messages arrive and are answered, nothing else is sent.
    Starting,
    Up,
    /// The LND is stopping the NI: nothing arrives or is sent.
    Stopping,
}

/// The partitions over which an NI's peers are spread (S-315: `tcp0(eth0)[0,2]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cpts {
    /// The chosen partitions; an empty list means all.
    chosen: SmallVec<[u8; 8]>,
    all: usize,
}

impl Cpts {
    /// Creates the set of the chosen partitions of `all`; an empty list means all.
    pub(crate) fn new(all: usize, chosen: &[usize]) -> Cpts {
        Cpts { chosen: chosen.iter().map(|&cpt| cpt as u8).collect(), all }
    }

    /// Returns the number of partitions.
    pub(super) fn len(&self) -> usize {
        if self.chosen.is_empty() { self.all } else { self.chosen.len() }
    }

    /// Returns whether peers can belong to this partition.
    pub(super) fn contains(&self, partition: usize) -> bool {
        self.chosen.is_empty() || self.chosen.iter().any(|&cpt| usize::from(cpt) == partition)
    }

    /// Returns the partition of a peer (lnet-semantics 22).
    pub(super) fn of(&self, peer: Nid) -> usize {
        let index = peer.cpt_of(self.len());
        self.chosen.get(index).map_or(index, |&cpt| usize::from(cpt))
    }
}

/// NUMA distances from the CPUs of each partition.
pub(crate) type NiDistances = SmallVec<[u32; 8]>;

/// A network interface.
pub(super) struct NiState {
    pub(super) id: ProcessId,
    pub(super) lnd: Arc<dyn Lnd>,
    pub(super) limits: NiLimits,
    pub(super) phase: NiPhase,
    /// The link is not reported as down by its LND (LNet's fatal flag is clear).
    pub(super) link: bool,
    pub(super) cpts: Cpts,
    /// Distance of its device from each partition; distances up to `numa_range` count as equal.
    pub(super) distances: NiDistances,
}

impl NiState {
    pub(super) fn new(id: ProcessId, lnd: Arc<dyn Lnd>, cpts: Cpts, distances: NiDistances) -> NiState {
        NiState { id, lnd, limits: STARTING_LIMITS, phase: NiPhase::Starting, link: true, cpts, distances }
    }

    /// Returns whether the NI is announced to peers. It is from before it can be pinged until it
    /// stops.
    pub(super) fn is_published(&self) -> bool {
        self.phase != NiPhase::Stopping
    }

    /// Returns the deadline of a message that is sent now. There are no resends, so it covers one
    /// attempt.
    pub(super) fn deadline_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.limits.timeout_ns).saturating_add(DEADLINE_SLACK_NS)
    }

    /// Returns the credits of each partition to which peers of the NI belong (lnet-semantics 13).
    pub(super) fn credits_per_partition(&self, limits: &NiLimits) -> i64 {
        let (credits, partitions) = (limits.credits.max(1), self.cpts.len() as u32);
        if partitions == 1 {
            return i64::from(credits);
        }
        let share = (credits / partitions).max(limits.peer_credits.saturating_mul(BUSY_PEERS));
        i64::from(share.min(credits).max(1))
    }
}

/// All NIs, in the order in which they were added.
pub(super) struct Nis {
    slab: Slab<NiState>,
    order: Vec<u32>,
}

impl Nis {
    pub(super) fn new() -> Nis {
        Nis { slab: slab(NIS_MAX), order: Vec::with_capacity(NIS_MAX) }
    }

    /// Adds an NI; `None` if there are too many.
    pub(super) fn enter(&mut self, ni: NiState) -> Option<Key> {
        let key = self.slab.insert(ni)?;
        self.order.push(key.index);
        Some(key)
    }

    pub(super) fn remove(&mut self, ni: Key) -> Option<NiState> {
        let gone = self.slab.remove(ni)?;
        self.order.retain(|&known| known != ni.index);
        Some(gone)
    }

    /// Returns the NI with this NID, in any phase.
    pub(super) fn find(&self, nid: Nid) -> Option<(Key, &NiState)> {
        self.iter().find(|(_, ni)| ni.id.nid == nid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &NiState)> {
        self.order.iter().map(|&index| (self.slab.key(index), &self.slab[index]))
    }

    /// Returns whether the NID belongs to this node, including NIs that are starting or stopping.
    pub(super) fn is_local(&self, nid: Nid) -> bool {
        nid.is_loopback() || self.find(nid).is_some()
    }

    /// Returns the NI, if it still exists.
    pub(super) fn get(&self, ni: Key) -> Option<&NiState> {
        self.slab.get(ni)
    }

    /// Returns the NI of [`Nis::get`], for changes.
    pub(super) fn get_mut(&mut self, ni: Key) -> Option<&mut NiState> {
        self.slab.get_mut(ni)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Covers: S-209, S-307, S-315
    #[test]
    fn peers_belong_to_the_partitions_that_were_chosen() {
        let chosen = [1, 3];
        let (some, all) = (Cpts::new(4, &chosen), Cpts::new(4, &[]));
        for host in 1..200u8 {
            let nid: Nid = format!("10.0.0.{host}@tcp").parse().unwrap();
            assert!(chosen.contains(&some.of(nid)));
            assert_eq!(all.of(nid), nid.cpt_of(4));
        }
        assert_eq!((some.len(), all.len()), (2, 4));
    }
}
