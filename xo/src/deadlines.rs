//! Deadlines of operations: a binary heap from which any entry can be removed (X1).

use std::time::Duration;

/// The index of a slot that has no entry in the heap.
const NOWHERE: u32 = u32::MAX;

/// The time `timeout` after `now_ns`, saturating at `u64::MAX`, which never comes.
pub(crate) fn after(now_ns: u64, timeout: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// Deadlines by slot, at most one each. Each call takes logarithmic time and, once the vectors have
/// grown, allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// `heap[n]` is not later than `heap[2n + 1]` and `heap[2n + 2]`.
    heap: Vec<Entry>,
    /// By slot: the index of its entry in the heap.
    places: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    deadline_ns: u64,
    slot: u32,
}

impl Deadlines {
    /// Sets or replaces a slot's deadline.
    pub(crate) fn set(&mut self, slot: u32, deadline_ns: u64) {
        self.remove(slot);
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, NOWHERE);
        }
        self.heap.push(Entry { deadline_ns, slot });
        self.sift_up(self.heap.len() - 1);
    }

    /// Removes a slot's deadline. Returns false if it has none.
    pub(crate) fn remove(&mut self, slot: u32) -> bool {
        let Some(&place) = self.places.get(slot as usize).filter(|place| **place != NOWHERE) else {
            return false;
        };
        let place = place as usize;
        self.heap.swap_remove(place);
        self.places[slot as usize] = NOWHERE;
        if place < self.heap.len() {
            let settled = self.sift_up(place);
            self.sift_down(settled);
        }
        true
    }

    /// The earliest deadline and its slot.
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        self.heap.first().map(|entry| (entry.deadline_ns, entry.slot))
    }

    fn sift_up(&mut self, mut place: usize) -> usize {
        while place > 0 && self.heap[place].deadline_ns < self.heap[(place - 1) / 2].deadline_ns {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        self.note(place);
        place
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let children = (2 * place + 1..2 * place + 3).take_while(|child| *child < self.heap.len());
            let Some(child) = children.min_by_key(|child| self.heap[*child].deadline_ns) else { break };
            if self.heap[place].deadline_ns <= self.heap[child].deadline_ns {
                break;
            }
            self.heap.swap(place, child);
            self.note(place);
            place = child;
        }
        self.note(place);
    }

    fn note(&mut self, place: usize) {
        self.places[self.heap[place].slot as usize] = place as u32;
    }
}

#[cfg(test)]
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
