//! Objects of one client, by handles of that client (D3): a handle of another client, or a stale
//! one, names nothing.

use std::collections::TryReserveError;

use nlx_sync::SlotKey;

/// A table of objects. A handle has the slot's index in its lower 16 bits and the slot's
/// generation, which is never 0, above.
pub(super) struct HandleTable<T>(nlx_sync::Slots<T>);

const INDEX_BITS: u32 = 16;

impl<T> HandleTable<T> {
    /// Creates a table of at most `most` objects, whose handles fit into 32 bits.
    pub(super) fn short(most: u32) -> HandleTable<T> {
        HandleTable(HandleTable::long(most).0.with_generations(u16::MAX.into()))
    }

    /// Creates a table whose handles need 48 bits and repeat later.
    pub(super) fn long(most: u32) -> HandleTable<T> {
        HandleTable(nlx_sync::Slots::new(most.min(1 << INDEX_BITS) as usize))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the maximum number of objects.
    pub(super) fn most(&self) -> usize {
        self.0.limit()
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    /// Reserves room for one further object: inserting and removing it then allocates nothing.
    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.0.reserve(1)
    }

    /// Inserts an object and returns its handle; `None` if there is no room.
    pub(super) fn insert(&mut self, tenant: T) -> Option<u64> {
        self.0.insert(tenant).map(handle)
    }

    pub(super) fn get(&self, handle: u64) -> Option<&T> {
        self.0.get(SlotKey::from_bits(handle, INDEX_BITS))
    }

    pub(super) fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        self.0.get_mut(SlotKey::from_bits(handle, INDEX_BITS))
    }

    pub(super) fn remove(&mut self, handle: u64) -> Option<T> {
        self.0.remove(SlotKey::from_bits(handle, INDEX_BITS))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, tenant)| tenant)
    }

    /// Removes an object and returns it with its handle; no object can be inserted any more. For
    /// emptying the table.
    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        self.0.pop().map(|(key, tenant)| (handle(key), tenant))
    }
}

fn handle(key: SlotKey) -> u64 {
    key.to_bits(INDEX_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a plain map; no handle repeats within 65,535 uses of its slot.
        // Covers: MT-233
        #[test]
        fn only_the_handles_of_what_is_there_name_something(
            steps in prop::collection::vec((any::<bool>(), any::<usize>()), 1..300),
        ) {
            let (mut slots, mut model, mut old) = (HandleTable::short(8), BTreeMap::new(), Vec::new());
            for (step, (insert, which)) in steps.into_iter().enumerate() {
                let chosen = model.keys().nth(which % model.len().max(1)).copied();
                match (insert, chosen) {
                    (true, _) => match slots.insert(step) {
                        Some(handle) => {
                            prop_assert!(u32::try_from(handle).is_ok() && handle != 0);
                            prop_assert!(!old.contains(&handle));
                            prop_assert_eq!(model.insert(handle, step), None);
                        }
                        None => prop_assert_eq!(model.len(), 8),
                    },
                    (false, Some(handle)) => {
                        prop_assert_eq!(slots.remove(handle), model.remove(&handle));
                        old.push(handle);
                    }
                    (false, None) => {}
                }
                prop_assert_eq!(slots.len(), model.len());
                prop_assert!(slots.iter().count() == model.len());
                prop_assert!(model.iter().all(|(handle, value)| slots.get(*handle) == Some(value)));
                prop_assert!(old.iter().chain(&[0, u64::MAX]).all(|handle| slots.get(*handle).is_none()));
            }
        }
    }
}
