//! Objects of one client, by handles of its own (D3): one of another client, or of old, names nothing.

use nlx_fallible::NoMemory;

/// A table of objects. A handle is a slot's index in its lower 16 bits, and above it a number that tells the slot's tenants
/// apart, never 0.
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    most: u32,
    /// The greatest number of a tenant.
    last: u32,
}

struct Slot<T> {
    tenancy: u32,
    tenant: Option<T>,
}

const INDEX_BITS: u32 = 16;

impl<T> Slots<T> {
    /// A table of so many objects at most, whose handles fit into 32 bits.
    pub(super) fn short(most: u32) -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new(), most: most.min(1 << INDEX_BITS), last: u16::MAX.into() }
    }

    /// The same, with handles that need 48 bits, and come again later.
    pub(super) fn long(most: u32) -> Slots<T> {
        Slots { last: u32::MAX, ..Slots::short(most) }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Objects that there may be.
    pub(super) fn most(&self) -> usize {
        self.most as usize
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.most as usize
    }

    /// Makes room for one object more, and for its place among the free ones later: entering it and taking it out allocate
    /// nothing then.
    pub(super) fn reserve(&mut self) -> Result<(), NoMemory> {
        let missing = (self.slots.len() + 1).saturating_sub(self.free.len());
        self.free.try_reserve(missing).map_err(|_| NoMemory)?;
        self.slots.try_reserve(1).map_err(|_| NoMemory)
    }

    /// Enters an object; gives its handle, or the object again if there is no room.
    pub(super) fn insert(&mut self, tenant: T) -> Result<u64, T> {
        if self.is_full() {
            return Err(tenant);
        }
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(Slot { tenancy: 0, tenant: None });
        }
        let slot = &mut self.slots[index as usize];
        slot.tenancy = if slot.tenancy == self.last { 1 } else { slot.tenancy + 1 };
        slot.tenant = Some(tenant);
        Ok(u64::from(slot.tenancy) << INDEX_BITS | u64::from(index))
    }

    pub(super) fn get(&self, handle: u64) -> Option<&T> {
        let (index, tenancy) = split(handle);
        self.slots.get(index).filter(|slot| u64::from(slot.tenancy) == tenancy)?.tenant.as_ref()
    }

    pub(super) fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let (index, tenancy) = split(handle);
        self.slots.get_mut(index).filter(|slot| u64::from(slot.tenancy) == tenancy)?.tenant.as_mut()
    }

    pub(super) fn remove(&mut self, handle: u64) -> Option<T> {
        let (index, tenancy) = split(handle);
        let slot = self.slots.get_mut(index).filter(|slot| u64::from(slot.tenancy) == tenancy)?;
        let tenant = slot.tenant.take()?;
        self.free.push(index as u32);
        Some(tenant)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.tenant.as_ref())
    }

    /// Takes one out, with its handle; the table gives no more handles then. For a table that is to be emptied.
    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        self.most = 0;
        self.free.clear();
        loop {
            let Slot { tenancy, tenant } = self.slots.pop()?;
            if let Some(tenant) = tenant {
                return Some((u64::from(tenancy) << INDEX_BITS | self.slots.len() as u64, tenant));
            }
        }
    }
}

fn split(handle: u64) -> (usize, u64) {
    ((handle & ((1 << INDEX_BITS) - 1)) as usize, handle >> INDEX_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// MT-233: against a plain map; no handle is given twice in a row of less than 65,535 tenants of its slot.
        #[test]
        fn only_the_handles_of_what_is_there_name_something(
            steps in prop::collection::vec((any::<bool>(), any::<usize>()), 1..300),
        ) {
            let (mut slots, mut model, mut old) = (Slots::short(8), BTreeMap::new(), Vec::new());
            for (step, (insert, which)) in steps.into_iter().enumerate() {
                let chosen = model.keys().nth(which % model.len().max(1)).copied();
                match (insert, chosen) {
                    (true, _) => match slots.insert(step) {
                        Ok(handle) => {
                            prop_assert!(u32::try_from(handle).is_ok() && handle != 0);
                            prop_assert!(!old.contains(&handle));
                            prop_assert_eq!(model.insert(handle, step), None);
                        }
                        Err(_) => prop_assert_eq!(model.len(), 8),
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
