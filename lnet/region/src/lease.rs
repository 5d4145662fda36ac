//! Who reads and who writes which bytes of a region right now.

use std::collections::VecDeque;
use std::ops::Range;

use crate::RegionError;

/// The most ranges of one region that can be leased at a time. A receive buffer of 1 MiB filled with the smallest
/// sensible messages stays below it; beyond it moving entries about would cost more than the message.
pub(crate) const MAX_LEASES: usize = 4096;

/// Room made with the region, so that the usual few leases never allocate.
const USUAL_LEASES: usize = 4;

/// What the holder of a lease does with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The leases of one region. Invariant: no write lease overlaps any other lease.
#[derive(Debug)]
pub(crate) struct Leases {
    reads: Ranges,
    writes: Ranges,
}

impl Leases {
    pub(crate) fn new() -> Leases {
        Leases { reads: Ranges::new(), writes: Ranges::new() }
    }

    /// Enters a lease, unless it would break the invariant. Empty ranges need no entry.
    pub(crate) fn take(&mut self, range: Range<usize>, access: Access) -> Result<(), RegionError> {
        if range.is_empty() {
            return Ok(());
        }
        if access == Access::Read
            && let Some(held) = self.reads.get_mut(&range)
        {
            // Whoever could clash with another reader here would clash with the one that is there.
            held.holders += 1;
            return Ok(());
        }
        if self.writes.is_taken(&range) || (access == Access::Write && self.reads.is_taken(&range)) {
            return Err(RegionError::InUse { start: range.start, end: range.end });
        }
        if self.reads.held.len() + self.writes.held.len() == MAX_LEASES {
            return Err(RegionError::TooManyLeases { max: MAX_LEASES });
        }
        self.make_room(access)?;
        self.of(access).insert(range);
        Ok(())
    }

    /// Makes room for one lease more; for a writer among the readers too, whom it may join.
    fn make_room(&mut self, access: Access) -> Result<(), RegionError> {
        let readers = self.reads.held.try_reserve(self.writes.held.len() + 1);
        let writers = if access == Access::Write { self.writes.held.try_reserve(1) } else { Ok(()) };
        let max = self.reads.held.len() + self.writes.held.len();
        readers.and(writers).map_err(|_| RegionError::TooManyLeases { max })
    }

    /// Removes one lease with these values; equal leases are interchangeable.
    pub(crate) fn give_back(&mut self, range: Range<usize>, access: Access) {
        if range.is_empty() {
            return;
        }
        let given = self.of(access).remove(&range);
        debug_assert!(given, "a lease is given back that was never taken: {range:?}, {access:?}");
    }

    /// Makes a write lease a read lease. Nobody else can come in between, and there is always room: made
    /// when the write lease was taken.
    pub(crate) fn downgrade(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let written = self.writes.remove(&range);
        debug_assert!(written, "a write lease was never taken: {range:?}");
        self.reads.insert(range);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reads.held.is_empty() && self.writes.held.is_empty()
    }

    fn of(&mut self, access: Access) -> &mut Ranges {
        match access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        }
    }
}

/// A range that is leased, and how often: readers of the same range share an entry, so that ten thousand answers sent
/// from one buffer cost no more than one.
#[derive(Debug, Clone, Copy)]
struct Held {
    start: usize,
    end: usize,
    holders: usize,
}

impl Held {
    /// Whether this is exactly that range, and nobody shares it.
    fn is_alone(&self, range: &Range<usize>) -> bool {
        self.start == range.start && self.end == range.end && self.holders == 1
    }
}

/// Ranges in the order of their first bytes, so that a search halves. A deque, because messages are mostly given back in
/// the order in which they came: then no entry moves.
#[derive(Debug)]
struct Ranges {
    held: VecDeque<Held>,
    /// No range held is longer. A range that covers a byte begins less than this before it.
    longest: usize,
}

impl Ranges {
    fn new() -> Ranges {
        let mut held = VecDeque::new();
        // Without memory for them now, the first lease asks again.
        let _ = held.try_reserve(USUAL_LEASES);
        Ranges { held, longest: 0 }
    }

    /// Where exactly this range is, or where it belongs.
    fn find(&self, range: &Range<usize>) -> Result<usize, usize> {
        self.held.binary_search_by(|held| (held.start, held.end).cmp(&(range.start, range.end)))
    }

    fn get_mut(&mut self, range: &Range<usize>) -> Option<&mut Held> {
        // Mostly it is a new one, behind all others.
        if self.held.back().is_none_or(|last| last.end <= range.start) {
            return None;
        }
        self.find(range).ok().map(|at| &mut self.held[at])
    }

    /// Whether a byte of the range, which is not empty, is within one of the ranges held.
    fn is_taken(&self, range: &Range<usize>) -> bool {
        // Mostly it lies behind or before all others.
        let (Some(first), Some(last)) = (self.held.front(), self.held.back()) else { return false };
        if range.end <= first.start || last.start + self.longest <= range.start {
            return false;
        }
        let first = self.held.partition_point(|held| held.start + self.longest <= range.start);
        let mut near = self.held.range(first..).take_while(|held| held.start < range.end);
        near.any(|held| range.start < held.end)
    }

    /// Enters a range that is not there yet. There is room for it.
    fn insert(&mut self, range: Range<usize>) {
        self.longest = self.longest.max(range.len());
        let held = Held { start: range.start, end: range.end, holders: 1 };
        match self.held.back() {
            Some(last) if range.start < last.end => {
                let (Ok(at) | Err(at)) = self.find(&range);
                self.held.insert(at, held);
            }
            _ => self.held.push_back(held),
        }
    }

    /// Takes one holder off; false if there is none.
    fn remove(&mut self, range: &Range<usize>) -> bool {
        // Mostly it is the newest or the oldest.
        if self.held.back().is_some_and(|last| last.is_alone(range)) {
            self.held.pop_back();
        } else if self.held.front().is_some_and(|first| first.is_alone(range)) {
            self.held.pop_front();
        } else {
            let Ok(at) = self.find(range) else { return false };
            self.held[at].holders -= 1;
            if self.held[at].holders == 0 {
                self.held.remove(at);
            }
        }
        if self.held.is_empty() {
            self.longest = 0;
        }
        true
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

    fn enter(model: &mut [(u32, u32)], access: Access) {
        for byte in model {
            match access {
                Access::Read => byte.0 += 1,
                Access::Write => byte.1 += 1,
            }
        }
    }

    fn leave(model: &mut [(u32, u32)], access: Access) {
        for byte in model {
            match access {
                Access::Read => byte.0 -= 1,
                Access::Write => byte.1 -= 1,
            }
        }
    }

    #[test]
    fn readers_of_one_range_are_not_limited() {
        let mut leases = Leases::new();
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
        // A full table still lets a writer become a reader.
        leases.downgrade(7..8);
        assert!(leases.take(7..8, Access::Read).is_ok());
    }

    proptest! {
        #[test]
        fn leases_agree_with_a_byte_by_byte_model(
            steps in prop::collection::vec((0usize..64, 0usize..64, any::<bool>(), 0..3), 1..200)
        ) {
            let mut leases = Leases::new();
            let mut model = vec![(0u32, 0u32); 64];
            let mut held: Vec<(Range<usize>, Access)> = Vec::new();
            for (a, b, write, step) in steps {
                match step {
                    1 if !held.is_empty() => {
                        let (range, access) = held.swap_remove(a % held.len());
                        leave(&mut model[range.clone()], access);
                        leases.give_back(range, access);
                    }
                    2 if held.iter().any(|(_, access)| *access == Access::Write) => {
                        let writer = held.iter_mut().find(|(_, access)| *access == Access::Write);
                        let (range, access) = writer.unwrap();
                        leave(&mut model[range.clone()], Access::Write);
                        enter(&mut model[range.clone()], Access::Read);
                        *access = Access::Read;
                        leases.downgrade(range.clone());
                    }
                    _ => {
                        let range = a.min(b)..a.max(b);
                        let access = if write { Access::Write } else { Access::Read };
                        let allowed = model_allows(&model, &range, access);
                        prop_assert_eq!(leases.take(range.clone(), access).is_ok(), allowed);
                        if allowed {
                            enter(&mut model[range.clone()], access);
                            held.push((range, access));
                        }
                    }
                }
            }
            for (range, access) in held {
                leases.give_back(range, access);
            }
            prop_assert!(leases.is_empty());
        }
    }
}
