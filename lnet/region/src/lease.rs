//! The leases of a region: the bytes that are being read or written, by kind.

use std::collections::{TryReserveError, VecDeque};
use std::ops::Range;

use crate::RegionError;

/// Maximum number of ranges of one region that are leased at a time. A receive buffer of 1 MiB
/// filled with the smallest sensible messages stays below it; with more ranges, moving the entries
/// would cost more than the message.
pub(crate) const MAX_LEASES: usize = 4096;

/// Capacity that is allocated with the region, so that the usual few leases never allocate.
const USUAL_LEASES: usize = 4;

/// The kind of access of a lease. A program reads and writes by slices, which exclude others. A
/// transport has the system send or receive the bytes, or copies them, but forms no slice: so its
/// lease permits other transports to send or receive the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseAccess {
    Read,
    Write,
    Send,
    Receive,
}

impl LeaseAccess {
    /// Returns whether the lease is a program's, and so permits slices.
    pub(crate) fn is_programs(self) -> bool {
        matches!(self, LeaseAccess::Read | LeaseAccess::Write)
    }

    /// Returns the access that remains when a lease no longer writes.
    pub(crate) fn downgraded(self) -> LeaseAccess {
        match self {
            LeaseAccess::Read | LeaseAccess::Write => LeaseAccess::Read,
            LeaseAccess::Send | LeaseAccess::Receive => LeaseAccess::Send,
        }
    }
}

/// The leases of one region. Invariant: a program's lease to write overlaps no other lease, and a
/// program's lease to read overlaps none to receive.
#[derive(Debug)]
pub(crate) struct Leases {
    programs: LeaseGroup,
    transports: LeaseGroup,
}

/// The leases of programs, or of transports.
#[derive(Debug)]
struct LeaseGroup {
    /// Leases to read or send.
    out: Ranges,
    /// Leases to write or receive.
    into: Ranges,
}

impl Leases {
    pub(crate) fn new() -> Leases {
        Leases { programs: LeaseGroup::new(), transports: LeaseGroup::new() }
    }

    /// Adds a lease, unless it would break the invariant. Empty ranges need no entry.
    pub(crate) fn take(&mut self, range: Range<usize>, access: LeaseAccess) -> Result<(), RegionError> {
        if range.is_empty() {
            return Ok(());
        }
        if access != LeaseAccess::Write
            && let Some(entry) = self.of(access).get_mut(&range)
        {
            // The existing lease is checked already: what would conflict with the second one
            // conflicts with the first one too.
            entry.holders += 1;
            return Ok(());
        }
        self.check(range.clone(), access)?;
        if self.len() >= MAX_LEASES {
            return Err(RegionError::TooManyLeases { max: MAX_LEASES });
        }
        let max = self.len();
        self.side(access).make_room(access).map_err(|_| RegionError::TooManyLeases { max })?;
        self.of(access).insert(range);
        Ok(())
    }

    /// Checks that a lease would not break the invariant at this moment; does not take it.
    pub(crate) fn check(&self, range: Range<usize>, access: LeaseAccess) -> Result<(), RegionError> {
        if !range.is_empty() && self.forbids(&range, access) {
            return Err(RegionError::InUse { start: range.start, end: range.end });
        }
        Ok(())
    }

    fn forbids(&self, range: &Range<usize>, access: LeaseAccess) -> bool {
        let Leases { programs, transports } = self;
        programs.into.is_taken(range)
            || match access {
                LeaseAccess::Read => transports.into.is_taken(range),
                LeaseAccess::Write => {
                    [&programs.out, &transports.out, &transports.into].iter().any(|held| held.is_taken(range))
                }
                LeaseAccess::Send => false,
                LeaseAccess::Receive => programs.out.is_taken(range),
            }
    }

    /// Removes one lease with these values; equal leases are interchangeable.
    pub(crate) fn give_back(&mut self, range: Range<usize>, access: LeaseAccess) {
        if range.is_empty() {
            return;
        }
        let given = self.of(access).remove(&range);
        debug_assert!(given, "a lease is given back that was never taken: {range:?}, {access:?}");
    }

    /// Turns a lease to write into one to read, or one to receive into one to send. No program can
    /// write in between, and there is always room: it was reserved when the lease was taken.
    pub(crate) fn downgrade(&mut self, range: Range<usize>, access: LeaseAccess) {
        if range.is_empty() {
            return;
        }
        let held = self.of(access).remove(&range);
        debug_assert!(held, "a lease was never taken: {range:?}, {access:?}");
        let out = self.of(access.downgraded());
        match out.get_mut(&range) {
            Some(entry) => entry.holders += 1,
            None => out.insert(range),
        }
    }

    /// Splits a lease into two that meet at `at`. Both together cover the same bytes, so they
    /// conflict with no other lease. The limit does not apply, as a lease has no more parts than
    /// bytes.
    pub(crate) fn split(&mut self, range: Range<usize>, at: usize, access: LeaseAccess) {
        debug_assert!(range.contains(&at) && at > range.start, "{at} is not within {range:?}");
        let held = self.of(access).remove(&range);
        debug_assert!(held, "a lease was never taken: {range:?}, {access:?}");
        for part in [range.start..at, at..range.end] {
            match self.of(access).get_mut(&part) {
                Some(entry) => entry.holders += 1,
                None => self.of(access).insert(part),
            }
        }
        // Each of the two leases may still be downgraded, which needs room on the other side.
        let side = self.side(access);
        let coming = side.into.entries.len();
        side.out.entries.reserve(coming);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of entries.
    fn len(&self) -> usize {
        self.programs.len() + self.transports.len()
    }

    fn side(&mut self, access: LeaseAccess) -> &mut LeaseGroup {
        if access.is_programs() { &mut self.programs } else { &mut self.transports }
    }

    fn of(&mut self, access: LeaseAccess) -> &mut Ranges {
        let held = self.side(access);
        match access {
            LeaseAccess::Read | LeaseAccess::Send => &mut held.out,
            LeaseAccess::Write | LeaseAccess::Receive => &mut held.into,
        }
    }
}

impl LeaseGroup {
    fn new() -> LeaseGroup {
        LeaseGroup { out: Ranges::new(), into: Ranges::new() }
    }

    fn len(&self) -> usize {
        self.out.entries.len() + self.into.entries.len()
    }

    /// Reserves room for one more lease. For a lease to write or receive, reserves room among the
    /// leases to read or send too, for a later downgrade.
    fn make_room(&mut self, access: LeaseAccess) -> Result<(), TryReserveError> {
        self.out.entries.try_reserve(self.into.entries.len() + 1)?;
        if access == access.downgraded() { Ok(()) } else { self.into.entries.try_reserve(1) }
    }
}

/// A leased range, and the number of its leases: leases of the same range and kind share an entry,
/// so that ten thousand answers sent from one buffer cost no more than one.
#[derive(Debug, Clone, Copy)]
struct LeasedRange {
    start: usize,
    end: usize,
    holders: usize,
}

impl LeasedRange {
    /// Returns whether the entry has exactly this range and one holder.
    fn is_alone(&self, range: &Range<usize>) -> bool {
        self.start == range.start && self.end == range.end && self.holders == 1
    }
}

/// Ranges ordered by their first bytes, for binary search. A deque, because leases are mostly
/// returned in the order of the messages' arrival: then no entry moves.
#[derive(Debug)]
struct Ranges {
    entries: VecDeque<LeasedRange>,
    /// Upper bound of the lengths of all ranges. A range that covers a byte starts less than this
    /// number of bytes before it.
    longest: usize,
}

impl Ranges {
    fn new() -> Ranges {
        let mut entries = VecDeque::new();
        // An error is ignored: without memory now, the first lease tries again.
        let _ = entries.try_reserve(USUAL_LEASES);
        Ranges { entries, longest: 0 }
    }

    /// Returns the index of exactly this range, or the index at which it belongs.
    fn find(&self, range: &Range<usize>) -> Result<usize, usize> {
        self.entries.binary_search_by(|held| (held.start, held.end).cmp(&(range.start, range.end)))
    }

    fn get_mut(&mut self, range: &Range<usize>) -> Option<&mut LeasedRange> {
        // The usual case: a new range behind all others.
        if self.entries.back().is_none_or(|last| last.end <= range.start) {
            return None;
        }
        self.find(range).ok().map(|at| &mut self.entries[at])
    }

    /// Returns whether a byte of the range, which is not empty, is within one of the entries.
    fn is_taken(&self, range: &Range<usize>) -> bool {
        // The usual case: the range lies behind or before all others.
        let (Some(first), Some(last)) = (self.entries.front(), self.entries.back()) else { return false };
        if range.end <= first.start || last.start + self.longest <= range.start {
            return false;
        }
        let first = self.entries.partition_point(|held| held.start + self.longest <= range.start);
        let mut near = self.entries.range(first..).take_while(|held| held.start < range.end);
        near.any(|held| range.start < held.end)
    }

    /// Adds a range that is not there yet. Room for it must be reserved.
    fn insert(&mut self, range: Range<usize>) {
        self.longest = self.longest.max(range.len());
        let entry = LeasedRange { start: range.start, end: range.end, holders: 1 };
        match self.entries.back() {
            Some(last) if range.start < last.end => {
                let (Ok(at) | Err(at)) = self.find(&range);
                self.entries.insert(at, entry);
            }
            _ => self.entries.push_back(entry),
        }
    }

    /// Removes one holder of a range; `false` if there is none.
    fn remove(&mut self, range: &Range<usize>) -> bool {
        // The usual case: the range is the newest or the oldest one.
        if self.entries.back().is_some_and(|last| last.is_alone(range)) {
            self.entries.pop_back();
        } else if self.entries.front().is_some_and(|first| first.is_alone(range)) {
            self.entries.pop_front();
        } else {
            let Ok(at) = self.find(range) else { return false };
            self.entries[at].holders -= 1;
            if self.entries[at].holders == 0 {
                self.entries.remove(at);
            }
        }
        if self.entries.is_empty() {
            self.longest = 0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [LeaseAccess; 4] =
        [LeaseAccess::Read, LeaseAccess::Write, LeaseAccess::Send, LeaseAccess::Receive];

    /// The model: for each byte, the number of leases of each kind.
    type Model = Vec<[u32; 4]>;

    /// Returns whether leases of these two kinds may overlap.
    fn agree(one: LeaseAccess, other: LeaseAccess) -> bool {
        use LeaseAccess::{Read, Receive, Send, Write};
        match (one, other) {
            (Write, _) | (_, Write) => false,
            (Read, Receive) | (Receive, Read) => false,
            (Read | Send, Read | Send) => true,
            (Receive, Send) | (Send, Receive) | (Receive, Receive) => true,
        }
    }

    fn model_allows(model: &Model, range: &Range<usize>, access: LeaseAccess) -> bool {
        let there = |byte: &[u32; 4], kind: LeaseAccess| byte[kind as usize] > 0;
        model[range.clone()]
            .iter()
            .all(|byte| ALL.iter().all(|&kind| !there(byte, kind) || agree(kind, access)))
    }

    fn enter(model: &mut Model, range: &Range<usize>, access: LeaseAccess) {
        model[range.clone()].iter_mut().for_each(|byte| byte[access as usize] += 1);
    }

    fn leave(model: &mut Model, range: &Range<usize>, access: LeaseAccess) {
        model[range.clone()].iter_mut().for_each(|byte| byte[access as usize] -= 1);
    }

    #[test]
    fn leases_of_one_range_are_not_limited() {
        for access in [LeaseAccess::Read, LeaseAccess::Send, LeaseAccess::Receive] {
            let mut leases = Leases::new();
            for _ in 0..=MAX_LEASES {
                leases.take(0..8, access).unwrap();
            }
            assert!(leases.take(7..9, LeaseAccess::Write).is_err());
            for _ in 0..=MAX_LEASES {
                leases.give_back(0..8, access);
            }
            assert!(leases.is_empty());
        }
    }

    #[test]
    fn a_full_table_still_lets_what_was_written_be_read() {
        for access in [LeaseAccess::Write, LeaseAccess::Receive] {
            let mut leases = Leases::new();
            for at in 0..MAX_LEASES {
                leases.take(at..at + 1, access).unwrap();
            }
            let error = leases.take(MAX_LEASES..MAX_LEASES + 1, access).unwrap_err();
            assert_eq!(error, RegionError::TooManyLeases { max: MAX_LEASES });
            let room = |leases: &Leases| {
                (if access.is_programs() { &leases.programs } else { &leases.transports })
                    .out
                    .entries
                    .capacity()
            };
            let before = room(&leases);
            (0..MAX_LEASES).for_each(|at| leases.downgrade(at..at + 1, access));
            assert_eq!(room(&leases), before, "it has made no room");
            assert!(leases.take(7..8, access.downgraded()).is_ok());
        }
    }

    #[test]
    fn the_parts_of_a_lease_can_be_read_one_by_one_in_a_full_table() {
        let mut leases = Leases::new();
        leases.take(0..2 * MAX_LEASES, LeaseAccess::Receive).unwrap();
        for at in 1..2 * MAX_LEASES {
            leases.split(at - 1..2 * MAX_LEASES, at, LeaseAccess::Receive);
            let room = leases.transports.out.entries.capacity();
            assert!(room >= leases.len(), "room for {room} of {} that end", leases.len());
        }
        assert_eq!(leases.len(), 2 * MAX_LEASES);
        assert!(leases.take(0..1, LeaseAccess::Read).is_err());
        leases.give_back(0..1, LeaseAccess::Receive);
        assert_eq!(leases.take(0..1, LeaseAccess::Read), Err(RegionError::TooManyLeases { max: MAX_LEASES }));
        (1..2 * MAX_LEASES).for_each(|at| leases.give_back(at..at + 1, LeaseAccess::Receive));
        assert!(leases.is_empty());
    }

    #[test]
    fn one_of_several_that_receive_may_stop_first() {
        let mut leases = Leases::new();
        for range in [0..8, 0..8, 4..12] {
            leases.take(range, LeaseAccess::Receive).unwrap();
        }
        leases.downgrade(0..8, LeaseAccess::Receive);
        assert!(leases.take(0..1, LeaseAccess::Read).is_err());
        leases.downgrade(0..8, LeaseAccess::Receive);
        assert!(leases.take(0..1, LeaseAccess::Read).is_ok());
        assert!(leases.take(4..5, LeaseAccess::Read).is_err());
    }

    proptest! {
        #[test]
        fn leases_agree_with_a_byte_by_byte_model(
            steps in prop::collection::vec((0usize..64, 0usize..64, prop::sample::select(&ALL), 0..4), 1..200)
        ) {
            let mut leases = Leases::new();
            let mut model = vec![[0; 4]; 64];
            let mut held: Vec<(Range<usize>, LeaseAccess)> = Vec::new();
            for (a, b, access, step) in steps {
                match step {
                    1 if !held.is_empty() => {
                        let (range, access) = held.swap_remove(a % held.len());
                        leave(&mut model, &range, access);
                        leases.give_back(range, access);
                    }
                    2 if !held.is_empty() => {
                        let at = a % held.len();
                        let (range, access) = &mut held[at];
                        if *access != access.downgraded() {
                            leave(&mut model, range, *access);
                            leases.downgrade(range.clone(), *access);
                            *access = access.downgraded();
                            enter(&mut model, range, *access);
                        }
                    }
                    // The two halves of a lease are two leases, and cover the same bytes.
                    3 if !held.is_empty() => {
                        let (range, access) = held.swap_remove(a % held.len());
                        let middle = range.start + b % range.len().max(1);
                        if middle > range.start {
                            leases.split(range.clone(), middle, access);
                        }
                        held.push((range.start..middle, access));
                        held.push((middle..range.end, access));
                    }
                    _ => {
                        let range = a.min(b)..a.max(b);
                        let allowed = model_allows(&model, &range, access);
                        prop_assert_eq!(leases.check(range.clone(), access).is_ok(), allowed);
                        prop_assert_eq!(leases.take(range.clone(), access).is_ok(), allowed);
                        if allowed {
                            enter(&mut model, &range, access);
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
