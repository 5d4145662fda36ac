//! A map from NIDs: a hash table that grows in steps.

use lnet_nid::{Nid, Pid, ProcessId};
use nlx_sync::Room;

use crate::buckets::{Buckets, CHAIN, Hashed};
use crate::keys::Hasher;
use crate::list::{Linked, ListLinks};
use crate::slab::{Slab, slab, some};

/// A map from NIDs to values. Entries do not move, so an entry's index stays valid. No insert waits
/// for the table to grow, and a lack of memory does not abort the process.
#[derive(Debug)]
pub(super) struct NidMap<V> {
    slab: Slab<NidEntry<V>>,
    index: Buckets,
    hasher: Hasher,
}

#[derive(Debug)]
struct NidEntry<V> {
    nid: Nid,
    value: V,
    hash: u32,
    chain: ListLinks,
}

impl<V> Linked<CHAIN> for NidEntry<V> {
    fn links(&self) -> ListLinks {
        self.chain
    }

    fn links_mut(&mut self) -> &mut ListLinks {
        &mut self.chain
    }
}

impl<V> Hashed for NidEntry<V> {
    fn hash(&self) -> u32 {
        self.hash
    }
}

impl<V> NidMap<V> {
    /// Creates a map for `limit` NIDs.
    pub(super) fn new(limit: usize) -> NidMap<V> {
        NidMap::within(limit, &Room::default())
    }

    /// Creates a map for `limit` NIDs whose memory comes from `room`.
    pub(super) fn within(limit: usize, room: &Room) -> NidMap<V> {
        NidMap { slab: slab(limit).within(room), index: Buckets::within(room), hasher: Hasher::default() }
    }

    /// Returns whether the map has no entries.
    pub(super) fn is_empty(&self) -> bool {
        self.slab.len() == 0
    }

    /// Returns the index of a NID's entry.
    pub(super) fn find(&self, nid: Nid) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let chain = std::iter::successors(some(self.index.first(self.hash(nid))), |&at| {
            some(self.slab[at].chain.next)
        });
        chain.into_iter().find(|&at| self.slab[at].nid == nid)
    }

    /// Returns the value of a NID.
    pub(super) fn get(&self, nid: Nid) -> Option<&V> {
        self.find(nid).map(|at| &self.slab[at].value)
    }

    /// Adds a NID that is not in the map; `None` if there is no room.
    pub(super) fn insert(&mut self, nid: Nid, value: V) -> Option<u32> {
        let entry = NidEntry { nid, value, hash: self.hash(nid), chain: ListLinks::NONE };
        let at = self.slab.insert(entry)?.index;
        if !self.index.insert(&mut self.slab, at) {
            self.slab.take(at);
            return None;
        }
        Some(at)
    }

    /// Returns the NID at this index, which must exist.
    pub(super) fn nid_at(&self, at: u32) -> Nid {
        self.slab[at].nid
    }

    /// Returns all values with their indices, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &V)> {
        self.slab.indices().map(|at| (at, &self.slab[at].value))
    }

    /// Returns the value at this index, which must exist.
    pub(super) fn at_mut(&mut self, at: u32) -> &mut V {
        &mut self.slab[at].value
    }

    /// Removes the entry at this index, which must exist.
    pub(super) fn remove(&mut self, at: u32) {
        self.index.remove(&mut self.slab, at);
        self.slab.take(at);
    }

    fn hash(&self, nid: Nid) -> u32 {
        self.hasher.process(ProcessId::new(nid, Pid::LNET), 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use lnet_nid::Net;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_agrees_with_a_map(steps in prop::collection::vec((0u32..60, any::<u16>()), 1..300)) {
            const LIMIT: usize = 40;
            let mut map = NidMap::new(LIMIT);
            let mut model = HashMap::new();
            for (number, value) in steps {
                let nid = Nid::new_numeric(Net::TCP, number);
                match map.find(nid) {
                    None if model.len() < LIMIT => {
                        let at = map.insert(nid, 0).unwrap();
                        *map.at_mut(at) = value;
                        prop_assert_eq!(model.insert(number, value), None);
                    }
                    None => prop_assert_eq!(map.insert(nid, value), None),
                    Some(at) => {
                        map.remove(at);
                        prop_assert!(model.remove(&number).is_some());
                    }
                }
                for number in 0..60 {
                    let nid = Nid::new_numeric(Net::TCP, number);
                    prop_assert_eq!(map.get(nid), model.get(&number));
                }
                prop_assert_eq!(map.is_empty(), model.is_empty());
            }
        }
    }
}
