//! Deadlines of operations: a binary heap from which any entry can be removed (X1).

use alloc::vec::Vec;
use core::time::Duration;

/// The index of a slot that has no entry in the heap.
const ABSENT: u32 = u32::MAX;

/// Returns the time `timeout` after `now_ns`, saturating at `u64::MAX`, which never comes.
pub fn deadline_after(now_ns: u64, timeout: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// Deadlines by slot, at most one each. Each call takes logarithmic time and, once the vectors have
/// grown, allocates nothing.
#[derive(Debug, Default)]
pub struct Deadlines {
    /// `heap[n]` is not later than `heap[2n + 1]` and `heap[2n + 2]`.
    heap: Vec<DeadlineEntry>,
    /// By slot: the index of its entry in the heap.
    indices: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct DeadlineEntry {
    deadline_ns: u64,
    slot: u32,
}

impl Deadlines {
    /// Sets or replaces a slot's deadline.
    pub fn set(&mut self, slot: u32, deadline_ns: u64) {
        self.remove(slot);
        if self.indices.len() <= slot as usize {
            self.indices.resize(slot as usize + 1, ABSENT);
        }
        self.heap.push(DeadlineEntry { deadline_ns, slot });
        self.sift_up(self.heap.len() - 1);
    }

    /// Removes a slot's deadline. Returns false if it has none.
    pub fn remove(&mut self, slot: u32) -> bool {
        let Some(&index) = self.indices.get(slot as usize).filter(|index| **index != ABSENT) else {
            return false;
        };
        let index = index as usize;
        self.heap.swap_remove(index);
        self.indices[slot as usize] = ABSENT;
        if index < self.heap.len() {
            let settled = self.sift_up(index);
            self.sift_down(settled);
        }
        true
    }

    /// Returns the earliest deadline and its slot.
    pub fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().map(|entry| (entry.deadline_ns, entry.slot))
    }

    fn sift_up(&mut self, mut index: usize) -> usize {
        while index > 0 && self.heap[index].deadline_ns < self.heap[(index - 1) / 2].deadline_ns {
            self.heap.swap(index, (index - 1) / 2);
            self.record_index(index);
            index = (index - 1) / 2;
        }
        self.record_index(index);
        index
    }

    fn sift_down(&mut self, mut index: usize) {
        loop {
            let children = (2 * index + 1..2 * index + 3).take_while(|child| *child < self.heap.len());
            let Some(child) = children.min_by_key(|child| self.heap[*child].deadline_ns) else { break };
            if self.heap[index].deadline_ns <= self.heap[child].deadline_ns {
                break;
            }
            self.heap.swap(index, child);
            self.record_index(index);
            index = child;
        }
        self.record_index(index);
    }

    fn record_index(&mut self, index: usize) {
        self.indices[self.heap[index].slot as usize] = index as u32;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_heap_agrees_with_a_map(steps in prop::collection::vec((0u32..40, 0u64..50, any::<bool>()), 1..400)) {
            let mut deadlines = Deadlines::default();
            let mut model = BTreeMap::new();
            for (slot, deadline_ns, remove) in steps {
                if remove {
                    prop_assert_eq!(deadlines.remove(slot), model.remove(&slot).is_some());
                } else {
                    deadlines.set(slot, deadline_ns);
                    model.insert(slot, deadline_ns);
                }
                let earliest = model.values().min().copied();
                let first = deadlines.first();
                prop_assert_eq!(first.map(|(deadline_ns, _)| deadline_ns), earliest);
                if let Some((deadline_ns, slot)) = first {
                    prop_assert_eq!(model.get(&slot), Some(&deadline_ns));
                }
                prop_assert_eq!(deadlines.heap.len(), model.len());
            }
        }
    }
}
