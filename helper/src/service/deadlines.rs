//! Deadlines of numbered objects, ordered by time.

use nlx_fallible::NoMemory;

/// One deadline for each number, in a binary heap with an index of the position of each.
///
/// Only [`DeadlineHeap::reserve`] allocates.
#[derive(Debug, Default)]
pub(super) struct DeadlineHeap {
    /// Deadlines with their numbers; none is earlier than its parent, which is at half its index.
    heap: Vec<(u64, usize)>,
    /// The position of each number in the heap.
    positions: Vec<Option<usize>>,
}

impl DeadlineHeap {
    /// Reserves room for the deadlines of all numbers below `count`.
    pub(super) fn reserve(&mut self, count: usize) -> Result<(), NoMemory> {
        let more = count.saturating_sub(self.positions.len());
        self.positions.try_reserve(more).map_err(|_| NoMemory)?;
        self.heap.try_reserve(count.saturating_sub(self.heap.len())).map_err(|_| NoMemory)?;
        self.positions.resize(self.positions.len() + more, None);
        Ok(())
    }

    /// Sets, changes or, with `None`, removes the deadline of `number`. There must be
    /// [room](DeadlineHeap::reserve) for it.
    pub(super) fn set(&mut self, number: usize, due_ns: Option<u64>) {
        match (self.positions[number], due_ns) {
            (Some(position), Some(due_ns)) => {
                self.heap[position].0 = due_ns;
                self.settle(position);
            }
            (None, Some(due_ns)) => {
                self.heap.push((due_ns, number));
                self.settle(self.heap.len() - 1);
            }
            (Some(position), None) => {
                self.positions[number] = None;
                self.heap.swap_remove(position);
                if position < self.heap.len() {
                    self.settle(position);
                }
            }
            (None, None) => {}
        }
    }

    /// Returns the deadline of `number`.
    pub(super) fn due(&self, number: usize) -> Option<u64> {
        Some(self.heap[(*self.positions.get(number)?)?].0)
    }

    /// Returns the next deadline and its number.
    pub(super) fn first(&self) -> Option<(u64, usize)> {
        self.heap.first().copied()
    }

    /// Removes a deadline that has passed, if there is one, and returns its number.
    pub(super) fn take_due(&mut self, now_ns: u64) -> Option<usize> {
        let (_, number) = self.first().filter(|(due_ns, _)| *due_ns <= now_ns)?;
        self.set(number, None);
        Some(number)
    }

    /// Restores the heap order for the entry at `position`.
    fn settle(&mut self, mut position: usize) {
        while position > 0 && self.heap[position] < self.heap[(position - 1) / 2] {
            position = self.swap(position, (position - 1) / 2);
        }
        loop {
            let children =
                [2 * position + 1, 2 * position + 2].into_iter().filter(|&child| child < self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.heap[child]) else { break };
            if self.heap[position] < self.heap[child] {
                break;
            }
            position = self.swap(position, child);
        }
        self.positions[self.heap[position].1] = Some(position);
    }

    /// Swaps two entries, and returns the second position.
    fn swap(&mut self, from: usize, to: usize) -> usize {
        self.heap.swap(from, to);
        self.positions[self.heap[from].1] = Some(from);
        to
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Deadlines that are set, changed and removed in any order come in order of time, each
        /// once, as in a sorted list.
        #[test]
        fn deadlines_come_in_order(steps in prop::collection::vec((0_usize..40, prop::option::of(0_u64..1000), 0_u64..1000), 1..400)) {
            let (mut timers, mut model) = (DeadlineHeap::default(), BTreeMap::new());
            for (number, due_ns, now_ns) in steps {
                timers.reserve(number + 1).unwrap();
                timers.set(number, due_ns);
                model.remove(&number);
                model.extend(due_ns.map(|due_ns| (number, due_ns)));
                let first = model.iter().map(|(&number, &due_ns)| (due_ns, number)).min();
                prop_assert_eq!(timers.first(), first);
                if now_ns % 3 == 0 {
                    let due = first.filter(|(due_ns, _)| *due_ns <= now_ns).map(|(_, number)| number);
                    prop_assert_eq!(timers.take_due(now_ns), due);
                    due.map(|number| model.remove(&number));
                }
            }
            let mut left: Vec<_> = model.into_iter().map(|(number, due_ns)| (due_ns, number)).collect();
            left.sort_unstable();
            let taken: Vec<_> = std::iter::from_fn(|| timers.take_due(u64::MAX)).collect();
            prop_assert_eq!(taken, left.into_iter().map(|(_, number)| number).collect::<Vec<_>>());
        }
    }
}
