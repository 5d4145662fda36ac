//! Which NI a message leaves over (lnet-semantics 14, lnet-routing 17).

use lnet_nid::Nid;

use super::ni::{Ni, Phase};
use super::{Net, NetShared};
use crate::slab::Key;

impl Net {
    /// Returns the NI for a message to a NID, whose MD belongs to partition `from`: `source`, if one is given; else one of the NIs
    /// on the target's network. `None` if there is none.
    ///
    /// The first difference decides: a link that is up, the smaller NUMA distance from the partition to the NI's device
    /// (S-209), the order in which they came. A node that has told of several NIDs is a multi-rail one, and takes each message
    /// from any NI. Another node would take several NIs for several nodes: it keeps the NI that its first message chose.
    pub(super) fn choose_ni<'a>(
        &mut self,
        shared: &'a NetShared,
        source: Option<Nid>,
        target: Nid,
        from: usize,
    ) -> Option<(Key, &'a Ni)> {
        let NetShared { nis, identities } = shared;
        let leads = |nid: Nid| nid.net() == target.net() && source.is_none_or(|source| source == nid);
        let all = || nis.iter().filter(|(_, ni)| ni.phase == Phase::Up && leads(ni.id.nid));
        let mut several = all();
        let only = several.next()?;
        if several.next().is_none() {
            return Some(only);
        }
        // One whose link is down is better than none: its LND says what becomes of the message.
        let linked = all().any(|(_, ni)| ni.link);
        let usable = || all().filter(|(_, ni)| ni.link == linked);
        let first = usable().next()?;
        if usable().all(|(_, ni)| ni.distances == first.1.distances) {
            return Some(first);
        }
        let nearest = usable().min_by_key(|(_, ni)| ni.distances.get(from).copied());
        if !identities.nids(target).is_empty() {
            return nearest;
        }
        let known = self.preferred.find(target);
        let preferred = known.map(|at| *self.preferred.at_mut(at));
        if let Some(kept) = preferred.and_then(|preferred| usable().find(|(key, _)| *key == preferred)) {
            return Some(kept);
        }
        let (key, _) = nearest?;
        match known {
            Some(at) => *self.preferred.at_mut(at) = key,
            // Without room it is chosen anew the next time.
            None => _ = self.preferred.insert(target, key),
        }
        nearest
    }
}
