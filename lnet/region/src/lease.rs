//! Who reads and who writes which bytes of a region right now.

use std::ops::Range;

use smallvec::SmallVec;

use crate::RegionError;

/// The most leases one region can have at a time. A receive buffer of 1 MiB filled with the smallest sensible messages
/// stays below it; beyond it the linear search would cost more than the message.
pub(crate) const MAX_LEASES: usize = 4096;

/// What the holder of a lease does with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Lease {
    range: Range<usize>,
    access: Access,
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
        self.held.push(Lease { range, access });
        Ok(())
    }

    /// Removes one lease with these values; equal leases are interchangeable.
    pub(crate) fn give_back(&mut self, range: Range<usize>, access: Access) {
        if range.is_empty() {
            return;
        }
        let lease = Lease { range, access };
        let found = self.held.iter().position(|held| *held == lease);
        debug_assert!(found.is_some(), "a lease is given back that was never taken: {lease:?}");
        if let Some(at) = found {
            self.held.swap_remove(at);
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
