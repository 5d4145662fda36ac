//! The free ranges of an arena.

use std::collections::{BTreeMap, BTreeSet};

/// A line of a processor's cache. Allocations below a page take a multiple of it.
const GRANULE_BYTES: usize = 64;

/// Allocations that would round up to a page, and larger ones, begin at a page and take whole ones,
/// the unit of devices.
const PAGE_BYTES: usize = 4096;

/// The free ranges of a memory, none of which touches another. Their number is at most that of
/// granules, and at most one more than that of regions.
#[derive(Debug)]
pub(super) struct FreeRanges {
    /// The free ranges by first byte, with their lengths.
    by_start: BTreeMap<usize, usize>,
    /// The free ranges by length, with their first bytes.
    by_length: BTreeSet<(usize, usize)>,
    /// The free ranges that contain whole pages, by the number of bytes in these pages, with their
    /// first bytes.
    by_pages: BTreeSet<(usize, usize)>,
    bytes: usize,
    /// End of the memory that has ever been taken; the bytes beyond it are zeros.
    untouched: usize,
}

/// A range that has been taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TakenRange {
    /// First byte of the range.
    pub(super) start: usize,
    /// Number of the requested bytes that may have been used before.
    pub(super) used: usize,
}

impl FreeRanges {
    pub(super) fn new(bytes: usize) -> FreeRanges {
        let mut free = FreeRanges {
            by_start: BTreeMap::new(),
            by_length: BTreeSet::new(),
            by_pages: BTreeSet::new(),
            bytes: 0,
            untouched: 0,
        };
        free.enter(0, bytes);
        free
    }

    /// Returns the number of free bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a range from the free range with the least excess. `None` if no range has room.
    pub(super) fn take(&mut self, bytes: usize) -> Option<TakenRange> {
        let need = rounded(bytes);
        let ranges = if need < PAGE_BYTES { &self.by_length } else { &self.by_pages };
        let &(_, free_start) = ranges.range((need, 0)..).next()?;
        let free_length = self.by_start[&free_start];
        self.leave(free_start, free_length);
        let start = free_start.next_multiple_of(alignment(need));
        let (end, free_end) = (start + need, free_start + free_length);
        self.enter(free_start, start - free_start);
        self.enter(end, free_end - end);
        let used = self.untouched.saturating_sub(start).min(bytes);
        self.untouched = self.untouched.max(end);
        Some(TakenRange { start, used })
    }

    /// Frees a range that was taken with the same number of bytes.
    pub(super) fn give_back(&mut self, start: usize, bytes: usize) {
        let (mut start, mut length) = (start, rounded(bytes));
        if let Some((&before, &bytes)) = self.by_start.range(..start).next_back()
            && before + bytes == start
        {
            self.leave(before, bytes);
            (start, length) = (before, bytes + length);
        }
        if let Some(&bytes) = self.by_start.get(&(start + length)) {
            self.leave(start + length, bytes);
            length += bytes;
        }
        self.enter(start, length);
    }

    fn enter(&mut self, start: usize, length: usize) {
        if length > 0 {
            self.by_start.insert(start, length);
            self.by_length.insert((length, start));
            self.by_pages.extend(whole_pages(start, length).map(|pages| (pages, start)));
            self.bytes += length;
        }
    }

    fn leave(&mut self, start: usize, length: usize) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
        if let Some(pages) = whole_pages(start, length) {
            self.by_pages.remove(&(pages, start));
        }
        self.bytes -= length;
    }
}

/// Returns the bytes of the whole pages in a range, if there are any.
fn whole_pages(start: usize, length: usize) -> Option<usize> {
    let end = (start + length) / PAGE_BYTES * PAGE_BYTES;
    end.checked_sub(start.next_multiple_of(PAGE_BYTES)).filter(|bytes| *bytes > 0)
}

/// Returns the number of bytes that an allocation takes.
fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(alignment(bytes))
}

fn alignment(bytes: usize) -> usize {
    // A length that rounds up to a page counts as one.
    if bytes <= PAGE_BYTES - GRANULE_BYTES { GRANULE_BYTES } else { PAGE_BYTES }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Take(usize),
        GiveBack(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = prop_oneof![4 => 1usize..300, 2 => 3900usize..4200, 1 => 1usize..30_000];
        let step = prop_oneof![3 => bytes.prop_map(Step::Take), 2 => any::<usize>().prop_map(Step::GiveBack)];
        prop::collection::vec(step, 1..200)
    }

    /// The model: for each granule, whether it is taken, and whether it ever was.
    struct Model {
        taken: Vec<bool>,
        used: Vec<bool>,
    }

    impl Model {
        fn new(bytes: usize) -> Model {
            let granules = bytes / GRANULE_BYTES;
            Model { taken: vec![false; granules], used: vec![false; granules] }
        }

        /// Returns the number of granules of a free range, from this granule on, that an allocation
        /// of this length could use, correctly aligned.
        fn room(&self, granule: usize, bytes: usize) -> usize {
            let length = self.taken[granule..].iter().take_while(|taken| !**taken).count();
            let align = alignment(bytes) / GRANULE_BYTES;
            let first = granule.next_multiple_of(align);
            ((granule + length) / align * align).saturating_sub(first)
        }

        /// Returns the first granules of the free ranges.
        fn ranges(&self) -> impl Iterator<Item = usize> {
            let is_first = |&at: &usize| !self.taken[at] && (at == 0 || self.taken[at - 1]);
            (0..self.taken.len()).filter(is_first)
        }

        /// Returns the smallest room that is enough for this many bytes.
        fn best(&self, bytes: usize) -> Option<usize> {
            let need = rounded(bytes) / GRANULE_BYTES;
            self.ranges().map(|at| self.room(at, bytes)).filter(|room| *room >= need).min()
        }
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_granule_by_granule_model(pages in 1usize..12, steps in steps()) {
            let total = pages * PAGE_BYTES;
            let (mut free, mut model) = (FreeRanges::new(total), Model::new(total));
            let mut held: Vec<(usize, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(bytes) => {
                        let best = model.best(bytes);
                        let taken = free.take(bytes);
                        prop_assert_eq!(taken.is_some(), best.is_some(), "{} bytes", bytes);
                        let Some(TakenRange { start, used }) = taken else { continue };
                        prop_assert_eq!(start % alignment(bytes), 0);
                        let range = start / GRANULE_BYTES..(start + rounded(bytes)) / GRANULE_BYTES;
                        let around = model.ranges().take_while(|&at| at <= range.start).last();
                        prop_assert_eq!(around.map(|at| model.room(at, bytes)), best);
                        prop_assert!(model.taken[range.clone()].iter().all(|taken| !taken));
                        let first_unused = start + used.next_multiple_of(GRANULE_BYTES);
                        let rest = first_unused / GRANULE_BYTES..(start + bytes).div_ceil(GRANULE_BYTES);
                        prop_assert!(model.used[rest].iter().all(|used| !used), "every used byte is reported");
                        model.taken[range.clone()].fill(true);
                        model.used[range].fill(true);
                        held.push((start, bytes));
                    }
                    Step::GiveBack(which) if !held.is_empty() => {
                        let (start, bytes) = held.swap_remove(which % held.len());
                        free.give_back(start, bytes);
                        model.taken[start / GRANULE_BYTES..(start + rounded(bytes)) / GRANULE_BYTES].fill(false);
                    }
                    Step::GiveBack(_) => {}
                }
                let there = model.taken.iter().filter(|taken| !**taken).count() * GRANULE_BYTES;
                prop_assert_eq!(free.bytes(), there);
                prop_assert_eq!(free.by_start.len(), free.by_length.len());
            }
            for (start, bytes) in held {
                free.give_back(start, bytes);
            }
            prop_assert_eq!(free.by_start.into_iter().collect::<Vec<_>>(), [(0, total)]);
        }
    }
}
