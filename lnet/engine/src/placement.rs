//! The partition of a wildcard portal's entry, and the partitions that messages search (S-308,
//! S-309).
//!
//! The upper 12 bits of match bits are the id of a transfer machine. The *home* of match bits is a
//! partition that follows from the portal and that id. So the buffers of one machine lie in one
//! partition, and those of machines with consecutive ids in consecutive partitions. An entry with
//! ignore bits matches messages of many homes. It lies at the *portal's home*, a partition that
//! follows from the portal alone.
//!
//! Each partition publishes the kinds of its entries that messages do not find at the home of their
//! bits. As long as a portal has none, a message locks one partition.

#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;

use lnet_api::Position;
use lnet_nid::MatchBits;
use nlx_sync::Rule;

#[cfg(test)]
use crate::audit::Damage;
use crate::audit::{Audit, check, equal};
use crate::names::PARTITIONS_MAX;
use crate::portal_state::PortalState;

/// SYNC engine.placed: a poster publishes the kind of its entry, then checks whether a message
/// waits; a message announces itself, then reads the published kinds to decide where it searches.
/// Both have a full fence between the two steps. So the message searches the buffer's partition, or
/// the poster finds the message.
pub(crate) const PLACED: Rule = Rule::new("engine.placed");

/// The lowest bit of a transfer machine's id in match bits (`core/src/bits.rs`; S-409).
const MACHINE_SHIFT: u32 = 52;

/// The placement of an entry: the partition in which lookups find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryPlacement {
    /// At the portal's home, which is also the home of its bits: every lookup that could match it
    /// searches that partition. Entries of unique portals, and of nodes with one partition, all
    /// have this placement.
    Home,
    /// In the partition of the thread that posted it.
    Local,
    /// At the home of its bits, which is not the portal's home.
    Spread,
    /// At the portal's home, but not at the home of its bits: it has ignore bits, or was posted
    /// while the portal had entries with ignore bits.
    Gathered,
    /// At neither home: it was inserted beside an entry that lies elsewhere.
    Astray,
}

/// The kinds of entries that partitions count and publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Local,
    Spread,
    Gathered,
    Astray,
    /// Any entry with ignore bits that is not local: local entries have no order among those of
    /// other partitions.
    Masked,
}

/// The number of [`EntryKind`]s.
const KINDS: usize = 5;

/// Bits of one count in [`Placements`].
const COUNT_BITS: u32 = 12;

const _: () = assert!(KINDS as u32 * COUNT_BITS <= u64::BITS && PARTITIONS_MAX < 1 << COUNT_BITS);

/// The number of partitions that have published each [`EntryKind`], packed into one word: one load
/// returns a consistent state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Placements(pub(crate) u64);

/// The partitions that a message searches for entries of a wildcard portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Search this partition only, which has all entries that could match.
    One(usize),
    /// Search one partition after the other.
    EachPartition,
    /// Search all partitions under all their locks, as if their entries were one list.
    WholeList,
}

/// Returns the partition of a portal's entries with ignore bits.
pub(crate) fn home_of_portal(portal: usize, partitions: usize) -> usize {
    portal % partitions
}

/// Returns the partition of a portal's entries with these match bits and no ignore bits.
pub(crate) fn home_of_bits(portal: usize, bits: MatchBits, partitions: usize) -> usize {
    (portal + (bits.0 >> MACHINE_SHIFT) as usize) % partitions
}

impl EntryPlacement {
    /// Returns the placement of an entry in `partition` that was not posted as local. `bits` is
    /// `None` if it has ignore bits.
    pub(crate) fn of(
        portal: usize,
        bits: Option<MatchBits>,
        partition: usize,
        partitions: usize,
    ) -> EntryPlacement {
        let at_portal = partition == home_of_portal(portal, partitions);
        let at_bits = bits.is_some_and(|bits| partition == home_of_bits(portal, bits, partitions));
        match (at_portal, at_bits) {
            (true, true) => EntryPlacement::Home,
            (false, true) => EntryPlacement::Spread,
            (true, false) => EntryPlacement::Gathered,
            (false, false) => EntryPlacement::Astray,
        }
    }

    /// Returns the kinds under which an entry is counted; none for [`EntryPlacement::Home`].
    fn kinds(self, masked: bool) -> impl Iterator<Item = EntryKind> {
        let kind = match self {
            EntryPlacement::Home => None,
            EntryPlacement::Local => Some(EntryKind::Local),
            EntryPlacement::Spread => Some(EntryKind::Spread),
            EntryPlacement::Gathered => Some(EntryKind::Gathered),
            EntryPlacement::Astray => Some(EntryKind::Astray),
        };
        let masked = masked && matches!(self, EntryPlacement::Gathered | EntryPlacement::Astray);
        kind.into_iter().chain(masked.then_some(EntryKind::Masked))
    }
}

impl EntryKind {
    const ALL: [EntryKind; KINDS] =
        [EntryKind::Local, EntryKind::Spread, EntryKind::Gathered, EntryKind::Astray, EntryKind::Masked];

    /// Returns the value of one partition in the count of this kind.
    fn unit(self) -> u64 {
        1 << (self as u32 * COUNT_BITS)
    }
}

impl Placements {
    fn has(self, kind: EntryKind) -> bool {
        self.0 >> (kind as u32 * COUNT_BITS) & ((1 << COUNT_BITS) - 1) != 0
    }

    /// Returns the partition of a new entry at the head or the tail of the portal's list. `bits` is
    /// `None` if it has ignore bits.
    pub(crate) fn home(self, portal: usize, bits: Option<MatchBits>, partitions: usize) -> usize {
        match bits {
            Some(bits) if !self.has(EntryKind::Masked) => home_of_bits(portal, bits, partitions),
            // The entry goes to the partition of the entries with ignore bits, so that one
            // partition has all possible matches of a message.
            _ => home_of_portal(portal, partitions),
        }
    }

    /// Returns the partitions that a message with these bits searches.
    pub(crate) fn lookup(self, portal: usize, bits: MatchBits, partitions: usize) -> Lookup {
        let (home, own) = (home_of_portal(portal, partitions), home_of_bits(portal, bits, partitions));
        match () {
            () if self.has(EntryKind::Local) => Lookup::EachPartition,
            () if self.has(EntryKind::Astray) => Lookup::WholeList,
            // Spread entries in other partitions have other bits.
            () if own == home || !self.has(EntryKind::Gathered) => Lookup::One(own),
            () if !self.has(EntryKind::Spread) => Lookup::One(home),
            () => Lookup::WholeList,
        }
    }
}

/// The number of entries of each [`EntryKind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct EntryCounts([u32; KINDS]);

impl EntryCounts {
    /// Counts an entry with this placement.
    pub(crate) fn add(&mut self, placement: EntryPlacement, masked: bool) {
        placement.kinds(masked).for_each(|kind| self.0[kind as usize] += 1);
    }
}

/// The entries that one partition has of a wildcard portal, and the kinds it has published.
/// Protected by the partition's lock.
#[derive(Debug, Default)]
pub(crate) struct PlacedEntries {
    counts: EntryCounts,
    /// Published kinds, by [`EntryKind`]. A kind is published before a search can find its first
    /// entry. It is unpublished late, by a lookup that visited more than one partition
    /// ([`PlacedEntries::unpublish_unused`]): so buffers that are posted and used one at a time
    /// cause no write to a word that all partitions read.
    published: [bool; KINDS],
    /// The highest turn of all entries that this partition has had.
    highest_turn: Option<i64>,
}

impl PlacedEntries {
    /// Returns the turn of a new entry at the head or the tail. Of two entries in different
    /// partitions the one with the lower turn comes first in the portal's list. Entries with equal
    /// turns are in one partition, and ordered by rank.
    ///
    /// A local entry has no order among those of other partitions. It shares the turn of an earlier
    /// entry, so that threads that post local entries in different partitions do not write to one
    /// word.
    pub(crate) fn turn(&mut self, portal: &PortalState, position: Position) -> i64 {
        let turn = match (position, self.highest_turn) {
            (Position::Local, Some(turn)) => turn,
            (Position::Before, _) => portal.turn_before(),
            _ => portal.turn_after(),
        };
        self.highest_turn = self.highest_turn.max(Some(turn));
        turn
    }

    /// Counts a new entry, and publishes its kinds.
    pub(crate) fn enter(&mut self, portal: &PortalState, placement: EntryPlacement, masked: bool) {
        self.counts.add(placement, masked);
        for kind in placement.kinds(masked) {
            if !std::mem::replace(&mut self.published[kind as usize], true) {
                portal.publish(kind.unit());
            }
        }
    }

    /// Removes a removed entry from the counts.
    pub(crate) fn leave(&mut self, portal: &PortalState, placement: EntryPlacement, masked: bool) {
        for kind in placement.kinds(masked) {
            self.counts.0[kind as usize] -= 1;
            // Entries with ignore bits are unpublished at once: the partition of a new entry must
            // not depend on earlier lookups.
            if kind == EntryKind::Masked {
                self.unpublish(portal, kind);
            }
        }
    }

    /// Unpublishes the kinds without entries.
    pub(crate) fn unpublish_unused(&mut self, portal: &PortalState) {
        EntryKind::ALL.into_iter().for_each(|kind| self.unpublish(portal, kind));
    }

    /// Unpublishes a kind if it has no entries.
    fn unpublish(&mut self, portal: &PortalState, kind: EntryKind) {
        if self.published[kind as usize] && self.counts.0[kind as usize] == 0 {
            self.published[kind as usize] = false;
            portal.unpublish(kind.unit());
        }
    }

    /// Returns the published kinds of this partition, as a part of [`Placements`].
    pub(crate) fn published(&self) -> u64 {
        EntryKind::ALL.into_iter().filter(|&kind| self.published[kind as usize]).map(EntryKind::unit).sum()
    }

    /// Checks the counts against those of the existing entries, and that all their kinds are
    /// published.
    pub(crate) fn audit(&self, location: impl fmt::Display, entries: EntryCounts) -> Audit {
        equal("entries are counted by kind", &location, self.counts, entries)?;
        let published =
            entries.0.iter().zip(self.published).all(|(&count, published)| count == 0 || published);
        check(
            "the kinds of a partition's entries are published",
            published,
            format_args!("{location}: {self:?}"),
        )
    }
}

/// Functions that break the counts of a partition on purpose; the names are the rules of the audit
/// that detect it.
#[cfg(test)]
pub(crate) const DAMAGE: &[Damage<PlacedEntries>] = &[
    ("entries are counted by kind", |placed| placed.counts.0[EntryKind::Spread as usize] += 1),
    ("the kinds of a partition's entries are published", |placed| placed.published = [false; KINDS]),
    ("a portal has what its partitions have published", |placed| placed.published = [true; KINDS]),
];
