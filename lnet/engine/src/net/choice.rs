//! Choice of the NI for a message (lnet-semantics 14, lnet-routing 17).

use lnet_nid::{Nid, ProcessId};

use super::ni::{NiPhase, NiState};
use super::{NetPartition, NetShared};
use crate::message::NewOperation;
use crate::slab::Key;

impl NetShared {
    /// Returns whether the network of this NI has other NIs of this node.
    pub(crate) fn has_rails_beside(&self, ni: Nid) -> bool {
        self.nis.iter().filter(|(_, other)| other.id.nid.net() == ni.net()).nth(1).is_some()
    }
}

impl NetPartition {
    /// Returns the NI for a message of an MD of this partition: the one that the request names, if
    /// any; otherwise one of the NIs on the target's network. `None` if there is none.
    ///
    /// A node that has announced several NIDs is a multi-rail one, and accepts each message from
    /// any NI. The first difference decides: a link that is up, the smaller NUMA distance from the
    /// MD's partition to the NI's device (S-209), the order in which the NIs were added. Pings and
    /// pushes to any node are treated in this way.
    ///
    /// A node that has announced no NIDs would take several NIs for several nodes. For such a node,
    /// the NI of the first message between the two nodes, in either direction, is kept while the NI
    /// exists and its link is up.
    pub(super) fn choose_ni<'a>(
        &mut self,
        shared: &'a NetShared,
        request: &NewOperation,
        partition: usize,
    ) -> Option<(Key, &'a NiState)> {
        let NetShared { nis, identities } = shared;
        let &NewOperation { via: source, target: ProcessId { nid: target, .. }, portal, .. } = request;
        let leads = |nid: Nid| nid.net() == target.net() && source.is_none_or(|source| source == nid);
        let all = || nis.iter().filter(|(_, ni)| ni.phase == NiPhase::Up && leads(ni.id.nid));
        let mut several = all();
        let only = several.next()?;
        if several.next().is_none() {
            return Some(only);
        }
        // An NI whose link is down is better than none: its LND decides how the message ends.
        let linked = all().any(|(_, ni)| ni.link);
        let usable = || all().filter(|(_, ni)| ni.link == linked);
        let nearest = |partition| usable().min_by_key(|(_, ni)| ni.distances.get(partition).copied());
        if portal == 0 || !identities.nids(target).is_empty() {
            return nearest(partition);
        }
        let known = self.preferred.find(target);
        let preferred = known.map(|at| *self.preferred.at_mut(at));
        if let Some(kept) = preferred.and_then(|preferred| usable().find(|(key, _)| *key == preferred)) {
            return Some(kept);
        }
        let chosen = nearest(partition)?;
        match known {
            Some(at) => *self.preferred.at_mut(at) = chosen.0,
            // Without room to remember the NI, each message makes the same choice.
            None if self.preferred.insert(target, chosen.0).is_none() => return nearest(self.partition),
            None => {}
        }
        Some(chosen)
    }

    /// Records the NI of a message from this NID. If it is the first one between the two nodes,
    /// messages to that NID use the same NI. Must be called on the partition of the NID's hash
    /// among all partitions.
    pub(crate) fn record_source_ni(&mut self, shared: &NetShared, from: Nid, ni: Key) {
        match self.preferred.find(from) {
            // The recorded NI is that of an earlier message, and may be gone.
            Some(at) => {
                let preferred = self.preferred.at_mut(at);
                if shared.nis.get(*preferred).is_none() {
                    *preferred = ni;
                }
            }
            // Without room nothing is recorded.
            None => _ = self.preferred.insert(from, ni),
        }
    }
}
