//! Which NIDs are one node: what pushes have told (lnet-wire 17).

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lnet_nid::Nid;
use smallvec::SmallVec;

/// The most NIDs of one node that are remembered. A storage server has a handful; a list that is longer is cut.
const NIDS_MAX: usize = 32;

/// Nodes with more than one NID. A node with one NID needs no entry: it is its own primary NID.
#[derive(Debug)]
pub(crate) struct Identities {
    by_nid: HashMap<Nid, u64, RandomState>,
    /// In the order in which they became known; the number of the first is `oldest`.
    nodes: VecDeque<SmallVec<[Nid; 4]>>,
    oldest: u64,
    limit: usize,
}

impl Identities {
    /// Room for `limit` nodes.
    pub(crate) fn new(limit: usize) -> Identities {
        Identities { by_nid: HashMap::default(), nodes: VecDeque::new(), oldest: 0, limit }
    }

    /// The primary NID of the node that `nid` belongs to; `nid` itself if nothing else is known.
    pub(crate) fn primary(&self, nid: Nid) -> Nid {
        self.nids(nid).first().copied().unwrap_or(nid)
    }

    /// All NIDs of the node that `nid` belongs to, the primary one first; none if nothing is known.
    pub(crate) fn nids(&self, nid: Nid) -> &[Nid] {
        if self.by_nid.is_empty() {
            return &[];
        }
        let number = self.by_nid.get(&nid).map(|number| (number - self.oldest) as usize);
        number.and_then(|number| self.nodes.get(number)).map_or(&[], |nids| nids)
    }

    /// Whether both are NIDs of one node.
    pub(crate) fn same(&self, one: Nid, other: Nid) -> bool {
        one == other || self.nids(one).contains(&other)
    }

    /// Takes note of what the node behind `sender` says its NIDs are, the primary one first; replaces what it said
    /// before. NIDs that another node has claimed, or that `foreign` says are somebody else's, are not believed; without
    /// its primary NID nothing is. What was believed before stays so: the node's traffic may have begun since.
    pub(crate) fn learn(
        &mut self,
        sender: Nid,
        nids: impl Iterator<Item = Nid>,
        ours: impl Fn(Nid) -> bool,
        foreign: impl Fn(Nid) -> bool,
    ) {
        let before = self.forget(sender);
        let mut kept: SmallVec<[Nid; 4]> = SmallVec::new();
        for (place, nid) in nids.enumerate() {
            let free = !self.by_nid.contains_key(&nid) && !ours(nid) && !nid.is_loopback() && !nid.is_any();
            let free = free && (nid == sender || before.contains(&nid) || !foreign(nid));
            if place == 0 && !free {
                return;
            }
            if free && !kept.contains(&nid) && kept.len() < NIDS_MAX {
                kept.push(nid);
            }
        }
        if kept.len() < 2 || !kept.contains(&sender) {
            return;
        }
        if self.nodes.len() >= self.limit {
            self.forget_oldest();
        }
        let number = self.oldest + self.nodes.len() as u64;
        self.by_nid.extend(kept.iter().map(|&nid| (nid, number)));
        self.nodes.push_back(kept);
    }

    /// Forgets the node behind a NID; gives its NIDs.
    fn forget(&mut self, nid: Nid) -> SmallVec<[Nid; 4]> {
        let Some(&number) = self.by_nid.get(&nid) else { return SmallVec::new() };
        let node = std::mem::take(&mut self.nodes[(number - self.oldest) as usize]);
        for nid in &node {
            self.by_nid.remove(nid);
        }
        node
    }

    fn forget_oldest(&mut self) {
        if let Some(node) = self.nodes.pop_front() {
            self.oldest += 1;
            for nid in node {
                self.by_nid.remove(&nid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nid(number: u32) -> Nid {
        Nid::new_numeric(lnet_nid::Net::TCP, number)
    }

    fn learn(table: &mut Identities, sender: u32, nids: &[u32]) {
        table.learn(
            nid(sender),
            nids.iter().map(|&number| nid(number)),
            |nid| nid == self::nid(99),
            |_| false,
        );
    }

    #[test]
    fn all_nids_of_a_node_have_its_first_one_as_primary() {
        let mut table = Identities::new(4);
        learn(&mut table, 2, &[1, 2, 3]);
        for number in 1..=3 {
            assert_eq!(table.primary(nid(number)), nid(1));
            assert!(table.same(nid(3), nid(number)));
        }
        assert_eq!(table.primary(nid(4)), nid(4));
        assert!(!table.same(nid(1), nid(4)));
    }

    #[test]
    fn a_new_list_replaces_the_old_one() {
        let mut table = Identities::new(4);
        learn(&mut table, 1, &[1, 2]);
        learn(&mut table, 1, &[1, 3]);
        assert_eq!(table.primary(nid(2)), nid(2));
        assert_eq!(table.primary(nid(3)), nid(1));
        learn(&mut table, 1, &[1]);
        assert_eq!(table.primary(nid(3)), nid(3));
    }

    #[test]
    fn nobody_takes_the_nids_of_another_node_or_ours() {
        let mut table = Identities::new(4);
        learn(&mut table, 1, &[1, 2]);
        learn(&mut table, 5, &[1, 5]);
        assert_eq!(table.primary(nid(5)), nid(5));
        learn(&mut table, 5, &[5, 2, 99, 6]);
        assert_eq!((table.primary(nid(2)), table.primary(nid(99))), (nid(1), nid(99)));
        assert_eq!(table.primary(nid(6)), nid(5));
        // A list that leaves out the NID it came from is not believed.
        learn(&mut table, 7, &[8, 9]);
        assert_eq!(table.primary(nid(9)), nid(9));
    }

    #[test]
    fn the_oldest_node_makes_room() {
        let mut table = Identities::new(2);
        for first in [10, 20, 30] {
            learn(&mut table, first, &[first, first + 1]);
        }
        assert_eq!(table.primary(nid(11)), nid(11));
        assert_eq!((table.primary(nid(21)), table.primary(nid(31))), (nid(20), nid(30)));
    }
}
