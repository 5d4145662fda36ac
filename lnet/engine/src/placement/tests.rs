//! S-308, S-309: the partitions of entries, and the partitions that messages search.

use std::collections::BTreeSet;
use std::sync::Arc;

use lnet_api::{LNet, MeSpec};
use lnet_cpt::CptTable;
use lnet_nid::{Pid, Portal};
use proptest::prelude::*;

use super::*;
use crate::{Engine, EngineConfig};

const PORTAL: usize = 34;

fn bits() -> impl Strategy<Value = MatchBits> {
    (0u64..6, 0u64..2).prop_map(|(machine, low)| MatchBits(machine << MACHINE_SHIFT | low))
}

#[derive(Debug, Clone)]
struct Posted {
    partition: usize,
    /// The entry's match bits; `None` if it has ignore bits.
    bits: Option<MatchBits>,
    local: bool,
}

impl Posted {
    fn placement(&self, partitions: usize) -> EntryPlacement {
        match self.local {
            true => EntryPlacement::Local,
            false => EntryPlacement::of(PORTAL, self.bits, self.partition, partitions),
        }
    }
}

fn posted() -> impl Strategy<Value = Posted> {
    (0usize..4, prop::option::weighted(0.8, bits()), prop::bool::weighted(0.1))
        .prop_map(|(partition, bits, local)| Posted { partition, bits, local })
}

proptest! {
    /// Whatever partitions entries lie in, or removed entries were in before, a lookup of one
    /// partition misses no entry that matches.
    #[test]
    fn one_partition_is_enough_if_nothing_elsewhere_may_take_the_message(
        (partitions, entries) in prop_oneof![Just(2usize), Just(3), Just(4)]
            .prop_flat_map(|partitions| (Just(partitions), prop::collection::vec(posted(), 0..6))),
        gone in prop::collection::vec(any::<bool>(), 6), unpublished in any::<bool>(), wanted in bits(),
    ) {
        let portal = PortalState::new(0);
        let mut placed: Vec<PlacedEntries> = (0..partitions).map(|_| PlacedEntries::default()).collect();
        let entries: Vec<Posted> = entries
            .into_iter()
            .map(|entry| Posted { partition: entry.partition % partitions, ..entry })
            .collect();
        let masked = |entry: &Posted| entry.bits.is_none();
        for entry in &entries {
            placed[entry.partition].enter(&portal, entry.placement(partitions), masked(entry));
        }
        let mut left = Vec::new();
        for (entry, &gone) in entries.iter().zip(&gone) {
            match gone {
                true => placed[entry.partition].leave(&portal, entry.placement(partitions), masked(entry)),
                false => left.push(entry),
            }
        }
        if unpublished {
            placed.iter_mut().for_each(|placed| placed.unpublish_unused(&portal));
        }
        let takes = |entry: &&&Posted| entry.bits.is_none_or(|bits| bits == wanted);
        let local = left.iter().any(|entry| entry.local);
        let lookup = portal.lookup(PORTAL, wanted, partitions);
        match lookup {
            Lookup::One(partition) => {
                prop_assert!(!local);
                prop_assert!(left.iter().filter(takes).all(|entry| entry.partition == partition));
            }
            Lookup::EachPartition => prop_assert!(local || !unpublished),
            Lookup::WholeList => prop_assert!(!local),
        }
        // If all entries lie at the homes of their bits, a message searches the home of its bits
        // alone.
        let own = home_of_bits(PORTAL, wanted, partitions);
        let at_home = |entry: &&Posted| {
            !entry.local && entry.bits.is_some_and(|bits| entry.partition == home_of_bits(PORTAL, bits, partitions))
        };
        if unpublished && left.iter().all(at_home) {
            prop_assert_eq!(lookup, Lookup::One(own));
        }
        // A new entry joins those with ignore bits, if there are any that are not local.
        let masked = left.iter().any(|entry| entry.bits.is_none() && !entry.local);
        let home = portal.placements().home(PORTAL, Some(wanted), partitions);
        prop_assert_eq!(home, if masked { home_of_portal(PORTAL, partitions) } else { own });
    }
}

/// With one transfer machine per partition, the buffers of each machine lie in one partition, those
/// of different machines in different ones.
// Covers: S-308
#[test]
fn the_buffers_of_a_machine_are_in_a_partition_of_their_own() {
    const BUFFERS: u64 = 3;
    for partitions in [1, 2, 4] {
        let table = Arc::new(CptTable::virtual_parts(partitions).unwrap());
        let engine = Engine::new(EngineConfig { partitions: table, ..EngineConfig::new(Pid::LNET, 1) });
        let of_machine = |machine: u64| -> BTreeSet<usize> {
            let post = |low| {
                let me = engine.me_attach(&MeSpec::new(
                    Portal::new(PORTAL as u32).unwrap(),
                    MatchBits(machine << MACHINE_SHIFT | low),
                ));
                engine.common().handles.decode_me(me.unwrap()).unwrap().0
            };
            (0..BUFFERS).map(post).collect()
        };
        let machines: Vec<BTreeSet<usize>> = (0..partitions as u64).map(of_machine).collect();
        assert!(machines.iter().all(|of_one| of_one.len() == 1));
        assert_eq!(machines.into_iter().flatten().collect::<BTreeSet<_>>().len(), partitions);
        engine.audit().unwrap();
    }
}
