//! The NIDs of each known node, as announced by pushes (lnet-wire 17).

use lnet_nid::Nid;
use smallvec::SmallVec;

use super::nid_map::NidMap;
use crate::list::{List, ListLinks, linked};
use crate::slab::{Slab, slab};

/// Maximum number of remembered NIDs per node. A storage server has a handful; a longer list is cut
/// off.
const NIDS_MAX: usize = 32;

/// The list number of all nodes, the oldest first.
const AGE: usize = 0;

/// Nodes with more than one NID. A node with one NID needs no entry: it is its own primary NID.
#[derive(Debug)]
pub(super) struct Identities {
    nodes: Slab<KnownNode>,
    by_nid: NidMap<u32>,
    /// All nodes, in the order in which their present lists were learnt.
    ages: List<AGE>,
}

#[derive(Debug)]
struct KnownNode {
    /// The node's NIDs, the primary one first.
    nids: SmallVec<[Nid; 4]>,
    age: ListLinks,
}

linked!(KnownNode: AGE => age);

impl Identities {
    /// Creates a table for `limit` nodes.
    pub(super) fn new(limit: usize) -> Identities {
        let by_nid = NidMap::new(limit.saturating_mul(NIDS_MAX));
        Identities { nodes: slab(limit), by_nid, ages: List::new() }
    }

    /// Returns the primary NID of the node to which `nid` belongs; `nid` itself if it is unknown.
    pub(super) fn primary(&self, nid: Nid) -> Nid {
        self.nids(nid).first().copied().unwrap_or(nid)
    }

    /// Returns all NIDs of the node to which `nid` belongs, the primary one first; none if it is
    /// unknown.
    pub(super) fn nids(&self, nid: Nid) -> &[Nid] {
        self.by_nid.get(nid).map_or(&[], |&node| &self.nodes[node].nids)
    }

    /// Returns whether both are NIDs of one node.
    pub(super) fn same(&self, one: Nid, other: Nid) -> bool {
        one == other || self.nids(one).contains(&other)
    }

    /// Stores the NIDs that the node behind `sender` announces, the primary one first; replaces its
    /// earlier list. NIDs that another node has claimed, or for which `foreign` holds, are
    /// rejected; without its primary NID the whole list is. Accepted NIDs stay accepted: traffic of
    /// the node may have started since. Without memory the node is known by each of its NIDs alone.
    pub(super) fn learn(
        &mut self,
        sender: Nid,
        nids: impl Iterator<Item = Nid>,
        ours: impl Fn(Nid) -> bool,
        foreign: impl Fn(Nid) -> bool,
    ) {
        let kept = self.accepted_nids(sender, nids, ours, foreign);
        if kept[..] == *self.nids(sender) {
            return;
        }
        if let Some(&node) = self.by_nid.get(sender) {
            self.forget(node);
        }
        if !kept.is_empty() && self.enter(&kept).is_none() {
            tracing::warn!(%sender, "no memory for the NIDs of a node: each of them is treated as a separate node");
        }
    }

    /// Returns whether [`Identities::learn`] would change anything. Also true if `foreign` misses a
    /// foreign NID: that NID was rejected before, so it makes a difference, and is checked again.
    pub(super) fn is_news(
        &self,
        sender: Nid,
        nids: impl Iterator<Item = Nid>,
        ours: impl Fn(Nid) -> bool,
        foreign: impl Fn(Nid) -> bool,
    ) -> bool {
        self.accepted_nids(sender, nids, ours, foreign)[..] != *self.nids(sender)
    }

    /// Returns the accepted part of a list; an empty one if the node would have fewer than two
    /// NIDs.
    fn accepted_nids(
        &self,
        sender: Nid,
        nids: impl Iterator<Item = Nid>,
        ours: impl Fn(Nid) -> bool,
        foreign: impl Fn(Nid) -> bool,
    ) -> SmallVec<[Nid; NIDS_MAX]> {
        let before = self.by_nid.get(sender);
        let mut kept = SmallVec::new();
        for (index, nid) in nids.enumerate() {
            let free = match self.by_nid.get(nid) {
                None => nid == sender || !foreign(nid),
                claimed => claimed == before,
            };
            let free = free && !ours(nid) && !nid.is_loopback() && !nid.is_any();
            if index == 0 && !free {
                return SmallVec::new();
            }
            if free && !kept.contains(&nid) && kept.len() < NIDS_MAX {
                kept.push(nid);
            }
        }
        if kept.len() < 2 || !kept.contains(&sender) {
            kept.clear();
        }
        kept
    }

    /// Adds a node, none of whose NIDs belongs to another; `None` if there is no memory for it.
    fn enter(&mut self, kept: &[Nid]) -> Option<()> {
        let mut nids = SmallVec::new();
        nids.try_reserve_exact(kept.len()).ok()?;
        nids.extend_from_slice(kept);
        if self.nodes.is_full()
            && let Some(oldest) = self.ages.head()
        {
            self.forget(oldest);
        }
        let node = self.nodes.insert(KnownNode { nids, age: ListLinks::NONE })?.index;
        self.ages.push_back(&mut self.nodes, node);
        for &nid in kept {
            if self.by_nid.insert(nid, node).is_none() {
                self.forget(node);
                return None;
            }
        }
        Some(())
    }

    fn forget(&mut self, node: u32) {
        self.ages.remove(&mut self.nodes, node);
        let Some(KnownNode { nids, .. }) = self.nodes.take(node) else { return };
        for nid in nids {
            if let Some(at) = self.by_nid.find(nid) {
                self.by_nid.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The nodes with their NIDs, in the order in which they became known.
    type Model = Vec<Vec<u32>>;

    const LIMIT: usize = 3;
    const OURS: u32 = 11;

    /// Applies the rules of [`Identities::learn`] to the model, in a simple form.
    fn model_learns(model: &mut Model, sender: u32, list: &[u32], foreign: &[u32]) {
        let before = model.iter().find(|node| node.contains(&sender)).cloned().unwrap_or_default();
        let others: Vec<u32> = model.iter().filter(|node| **node != before).flatten().copied().collect();
        let somebody_elses = |nid: u32| foreign.contains(&nid) && nid != sender && !before.contains(&nid);
        let free = |nid: &u32| !others.contains(nid) && *nid != OURS && !somebody_elses(*nid);
        let mut kept: Vec<u32> = Vec::new();
        for nid in list.iter().copied().filter(free) {
            if !kept.contains(&nid) {
                kept.push(nid);
            }
        }
        if !free(&list[0]) || kept.len() < 2 || !kept.contains(&sender) {
            kept.clear();
        }
        if kept == before {
            return;
        }
        model.retain(|node| *node != before);
        if !kept.is_empty() {
            if model.len() == LIMIT {
                model.remove(0);
            }
            model.push(kept);
        }
    }

    proptest! {
        #[test]
        fn they_agree_with_a_list_of_lists(
            steps in prop::collection::vec(
                (1u32..12, prop::collection::vec(1u32..12, 1..6), prop::collection::vec(1u32..12, 0..4)),
                1..60,
            ),
        ) {
            let mut table = Identities::new(LIMIT);
            let mut model = Model::new();
            for (sender, list, foreign) in steps {
                let nids = || list.iter().map(|&number| nid(number));
                let is_foreign = |nid: Nid| foreign.iter().any(|&number| self::nid(number) == nid);
                let ours = |nid: Nid| nid == self::nid(OURS);
                let before = model.clone();
                model_learns(&mut model, sender, &list, &foreign);
                prop_assert_eq!(table.is_news(nid(sender), nids(), ours, is_foreign), model != before);
                // A caller whose `foreign` is incomplete may get a report of news once too often,
                // but never too rarely.
                prop_assert!(model == before || table.is_news(nid(sender), nids(), ours, |_| false));
                table.learn(nid(sender), nids(), ours, is_foreign);
                for number in 1..12 {
                    let node = model.iter().find(|node| node.contains(&number));
                    let expected: Vec<Nid> = node.into_iter().flatten().map(|&number| nid(number)).collect();
                    prop_assert_eq!(table.nids(nid(number)), &expected[..]);
                }
            }
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_cut() {
        let mut table = Identities::new(4);
        let all: Vec<u32> = (100..100 + 2 * NIDS_MAX as u32).collect();
        learn(&mut table, 100, &all);
        assert_eq!(
            table.nids(nid(100)),
            all[..NIDS_MAX].iter().map(|&number| nid(number)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_node_that_changes_its_list_displaces_no_other() {
        let mut table = Identities::new(2);
        learn(&mut table, 1, &[1, 2]);
        for other in 10..20 {
            learn(&mut table, 5, &[5, other]);
        }
        assert_eq!((table.primary(nid(2)), table.primary(nid(19))), (nid(1), nid(5)));
    }

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
    fn no_peer_takes_the_nids_of_another_node_or_ours() {
        let mut table = Identities::new(4);
        learn(&mut table, 1, &[1, 2]);
        learn(&mut table, 5, &[1, 5]);
        assert_eq!(table.primary(nid(5)), nid(5));
        learn(&mut table, 5, &[5, 2, 99, 6]);
        assert_eq!((table.primary(nid(2)), table.primary(nid(99))), (nid(1), nid(99)));
        assert_eq!(table.primary(nid(6)), nid(5));
        // A list without the NID from which it came is rejected.
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
