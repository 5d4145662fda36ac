//! Who reads and who writes which bytes of a region right now.

use std::ops::Range;

use smallvec::SmallVec;

use crate::RegionError;

/// The most ranges of one region that can be leased at a time. A receive buffer of 1 MiB filled with the smallest sensible messages
/// stays below it; beyond it the linear search would cost more than the message.
pub(crate) const MAX_LEASES: usize = 4096;

/// What the holder of a lease does with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A range that is leased, and how often: readers of the same range share an entry, so that ten thousand answers sent
/// from one buffer cost no more than one.
#[derive(Debug, Clone)]
struct Lease {
    range: Range<usize>,
    access: Access,
    holders: usize,
}

impl Lease {
    fn is_of(&self, range: &Range<usize>, access: Access) -> bool {
        self.range == *range && self.access == access
    }
}

/// The leases of one region. Invariant: no write lease overlaps any other lease.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: SmallVec<[Lease; 4]>,
}

impl Leases {
    /// Enters a lease, unless it would break the invariant. Empty ranges need no entry.
    pub(crate) fn take(&mut self, range: Range<usize>, access: Access) -> Result<(), RegionError> {
        if range.is_empty() {
            return Ok(());
        }
        if access == Access::Read
            && let Some(same) = self.held.iter_mut().find(|held| held.is_of(&range, access))
        {
            // Whoever could clash with another reader here would clash with the one that is there.
            same.holders += 1;
            return Ok(());
        }
        let clash = |held: &Lease| {
            held.range.start < range.end
                && range.start < held.range.end
                && (access == Access::Write || held.access == Access::Write)
        };
        if self.held.iter().any(clash) {
            return Err(RegionError::InUse { start: range.start, end: range.end });
        }
        if self.held.len() == MAX_LEASES {
            return Err(RegionError::TooManyLeases { max: MAX_LEASES });
        }
        self.held.push(Lease { range, access, holders: 1 });
        Ok(())
    }

    /// Removes one lease with these values; equal leases are interchangeable.
    pub(crate) fn give_back(&mut self, range: Range<usize>, access: Access) {
        if range.is_empty() {
            return;
        }
        let found = self.held.iter().position(|held| held.is_of(&range, access));
        debug_assert!(found.is_some(), "a lease is given back that was never taken: {range:?}, {access:?}");
        if let Some(at) = found {
            self.held[at].holders -= 1;
            if self.held[at].holders == 0 {
                self.held.swap_remove(at);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plain model: for each byte, how many readers and writers it has.
    fn model_allows(model: &[(u32, u32)], range: &Range<usize>, access: Access) -> bool {
        model[range.clone()].iter().all(|&(readers, writers)| match access {
            Access::Read => writers == 0,
            Access::Write => readers == 0 && writers == 0,
        })
    }

    #[test]
    fn readers_of_one_range_are_not_limited() {
        let mut leases = Leases::default();
        for _ in 0..=MAX_LEASES {
            leases.take(0..8, Access::Read).unwrap();
        }
        assert!(leases.take(7..9, Access::Write).is_err());
        for _ in 0..=MAX_LEASES {
            leases.give_back(0..8, Access::Read);
        }
        assert!(leases.is_empty());
        for at in 0..MAX_LEASES {
            leases.take(at..at + 1, Access::Write).unwrap();
        }
        let error = leases.take(MAX_LEASES..MAX_LEASES + 1, Access::Write).unwrap_err();
        assert_eq!(error, RegionError::TooManyLeases { max: MAX_LEASES });
    }

    proptest! {
        #[test]
        fn leases_agree_with_a_byte_by_byte_model(
            steps in prop::collection::vec((0usize..64, 0usize..64, any::<bool>(), any::<bool>()), 1..200)
        ) {
            let mut leases = Leases::default();
            let mut model = vec![(0u32, 0u32); 64];
            let mut held: Vec<(Range<usize>, Access)> = Vec::new();
            for (a, b, write, release) in steps {
                if release && !held.is_empty() {
                    let (range, access) = held.swap_remove(a % held.len());
                    for byte in &mut model[range.clone()] {
                        match access { Access::Read => byte.0 -= 1, Access::Write => byte.1 -= 1 }
                    }
                    leases.give_back(range, access);
                    continue;
                }
                let (range, access) = (a.min(b)..a.max(b), if write { Access::Write } else { Access::Read });
                let allowed = model_allows(&model, &range, access);
                prop_assert_eq!(leases.take(range.clone(), access).is_ok(), allowed);
                if allowed {
                    for byte in &mut model[range.clone()] {
                        match access { Access::Read => byte.0 += 1, Access::Write => byte.1 += 1 }
                    }
                    held.push((range, access));
                }
            }
            for (range, access) in held {
                leases.give_back(range, access);
            }
            prop_assert!(leases.is_empty());
        }
    }
}
