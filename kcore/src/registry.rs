//! The addresses in use (S-404): one set of ids for each (NID, PID, portal) of a node.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use lnet_nid::{Nid, Pid};
use nlx_core::{Address, CoreError, StartAddress, TmId};

use crate::network::no_memory;

/// Words of 64 ids each; one bit for every id, and for 0, which is never assigned.
const WORDS: usize = (TmId::MAX.get() as usize + 1) / 64;

/// The addresses of all running transfer machines of a node.
#[derive(Default)]
pub(crate) struct Registry {
    groups: HashMap<(Nid, Pid, u32), Ids, foldhash::fast::RandomState>,
}

impl Registry {
    /// Takes the requested address, or the highest free id. One pass over the ids (S-418).
    pub(crate) fn take(&mut self, wanted: &StartAddress) -> Result<Address, CoreError> {
        let StartAddress { nid, pid, portal, tmid } = *wanted;
        self.groups.try_reserve(1).map_err(no_memory)?;
        let ids = self.groups.entry((nid, pid, portal)).or_default();
        let tmid = match tmid {
            Some(tmid) if ids.has(tmid) => {
                return Err(CoreError::AddressInUse { address: wanted.with(tmid) });
            }
            Some(tmid) => tmid,
            None => ids.highest_free().ok_or(CoreError::NoFreeTmId { nid, pid, portal })?,
        };
        ids.flip(tmid);
        Ok(wanted.with(tmid))
    }

    /// Frees an address.
    pub(crate) fn give_back(&mut self, address: &Address) {
        let Address { nid, pid, portal, tmid } = *address;
        let Entry::Occupied(mut group) = self.groups.entry((nid, pid, portal)) else {
            debug_assert!(false, "{address} is given back, but was never taken");
            return;
        };
        debug_assert!(group.get().has(tmid));
        group.get_mut().flip(tmid);
        if group.get().is_empty() {
            group.remove();
        }
    }
}

/// A set of ids: bit `n % 64` of word `n / 64`.
struct Ids([u64; WORDS]);

impl Default for Ids {
    fn default() -> Ids {
        Ids([0; WORDS])
    }
}

impl Ids {
    fn has(&self, tmid: TmId) -> bool {
        self.0[tmid.get() as usize / 64] & bit(tmid) != 0
    }

    fn flip(&mut self, tmid: TmId) {
        self.0[tmid.get() as usize / 64] ^= bit(tmid);
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    fn highest_free(&self) -> Option<TmId> {
        let (index, word) = self.0.iter().enumerate().rev().find(|&(_, &word)| word != u64::MAX)?;
        // The highest free id of the word: 63 less the number of taken ones above it. Word 0 may
        // have only bit 0 left, which is no id.
        let value = index as u32 * 64 + 63 - word.leading_ones();
        TmId::new(value).ok()
    }
}

fn bit(tmid: TmId) -> u64 {
    1 << (tmid.get() % 64)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::BTreeSet;

    use nlx_core::Errno;
    use proptest::prelude::*;

    use super::*;

    fn wanted(portal: u32, tmid: Option<u32>) -> StartAddress {
        let tmid = tmid.map(|value| TmId::new(value).unwrap());
        StartAddress { nid: Nid::LOOPBACK, pid: Pid::LNET, portal, tmid }
    }

    // Covers: S-404, MT-59, MT-60, MT-209, MT-222
    #[test]
    fn ids_come_from_the_top_until_none_is_left() {
        let mut registry = Registry::default();
        for expected in (1..=4095).rev() {
            assert_eq!(registry.take(&wanted(30, None)).unwrap().tmid.get(), expected);
        }
        let error = registry.take(&wanted(30, None)).unwrap_err();
        assert_eq!(error.errno(), Errno::EADDRNOTAVAIL);
        let middle = wanted(30, None).with(TmId::new(77).unwrap());
        registry.give_back(&middle);
        assert_eq!(registry.take(&wanted(30, None)), Ok(middle));
    }

    // Covers: MT-221
    #[test]
    fn a_fixed_id_is_taken_once_per_portal() {
        let mut registry = Registry::default();
        let address = registry.take(&wanted(30, Some(101))).unwrap();
        assert_eq!(registry.take(&wanted(30, Some(101))), Err(CoreError::AddressInUse { address }));
        assert_eq!(CoreError::AddressInUse { address }.errno(), Errno::EADDRINUSE);
        assert!(registry.take(&wanted(31, Some(101))).is_ok());
    }

    #[test]
    fn what_is_given_back_leaves_nothing_behind() {
        let mut registry = Registry::default();
        let taken: Vec<_> = (0..70).map(|_| registry.take(&wanted(30, None)).unwrap()).collect();
        for address in taken {
            registry.give_back(&address);
        }
        assert!(registry.groups.is_empty());
    }

    proptest! {
        // Covers: S-2
        #[test]
        fn the_registry_agrees_with_a_set(steps in prop::collection::vec((1u32..=130, 0u8..3), 1..300)) {
            let mut registry = Registry::default();
            let mut model = BTreeSet::new();
            // Ids above 130 are taken, so that the dynamic ones come from the range of the fixed
            // ones.
            for value in 131..=4095 {
                registry.take(&wanted(30, Some(value))).unwrap();
            }
            for (value, action) in steps {
                match action {
                    0 => prop_assert_eq!(registry.take(&wanted(30, Some(value))).is_ok(), model.insert(value)),
                    1 if model.remove(&value) => {
                        registry.give_back(&wanted(30, None).with(TmId::new(value).unwrap()));
                    }
                    _ => {
                        let free = (1..=130).rev().find(|value| !model.contains(value));
                        let given = registry.take(&wanted(30, None)).ok().map(|address| address.tmid.get());
                        prop_assert_eq!(given, free);
                        model.extend(given);
                    }
                }
            }
        }
    }
}
