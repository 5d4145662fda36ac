//! The match entries of one portal in one partition, in the order in which messages try them
//! (lnet-semantics 10).

use lnet_api::{LNetError, MeSpec, Position};
use lnet_nid::{MatchBits, ProcessId};
use nlx_sync::Room;

use super::entry::{MatchEntry, PortalKind};
use super::objects::Objects;
use crate::groups::{GROUP, Grouped, Groups};
use crate::keys::Hasher;
use crate::list::List;
use crate::placement::PlacedEntries;
use crate::sequence::Sequence;
use crate::slab::NONE;

/// The list number of the entries with ignore bits.
const MASKED: usize = GROUP;

/// The match entries of one portal in one partition.
#[derive(Debug)]
pub(super) struct MatchTable {
    pub(super) exact: Groups,
    /// Entries with ignore bits.
    pub(super) masked: List<MASKED>,
    /// All entries of a wildcard portal.
    pub(super) sequence: Sequence,
    /// Counts of these entries, on a wildcard portal of a node with several partitions.
    pub(super) placed: PlacedEntries,
    /// Entries that have an MD.
    pub(super) attached: usize,
    /// Time at which the last MD was attached, in nanoseconds of the node's clock.
    pub(super) attached_at_ns: u64,
}

impl MatchTable {
    /// Creates a table without entries.
    pub(super) fn new(room: &Room) -> MatchTable {
        MatchTable {
            exact: Groups::within(room),
            masked: List::new(),
            sequence: Sequence::new(),
            placed: PlacedEntries::default(),
            attached: 0,
            attached_at_ns: 0,
        }
    }

    /// Posts an entry of the portal's kind at the head or the tail.
    ///
    /// # Errors
    /// ENOMEM if there are too many, or no memory.
    pub(super) fn post(
        &mut self,
        entries: &mut Objects,
        hasher: &Hasher,
        kind: PortalKind,
        spec: &MeSpec,
    ) -> Result<u32, LNetError> {
        let index = enter(entries, hasher, kind, spec)?;
        let front = spec.position == Position::Before;
        if entries[index].is_masked() {
            if front { self.masked.push_front(entries, index) } else { self.masked.push_back(entries, index) }
        } else {
            let entered = if front {
                self.exact.push_front(entries, index)
            } else {
                self.exact.push_back(entries, index)
            };
            if !entered {
                return Err(no_room(entries, index));
            }
        }
        if kind == PortalKind::Wildcard {
            if front {
                self.sequence.push_front(entries, index);
            } else {
                self.sequence.push_back(entries, index);
            }
        }
        Ok(index)
    }

    /// Posts an entry of a wildcard portal right before or after another (S-104).
    ///
    /// # Errors
    /// The errors of [`MatchTable::post`].
    pub(super) fn insert(
        &mut self,
        entries: &mut Objects,
        hasher: &Hasher,
        beside: u32,
        spec: &MeSpec,
    ) -> Result<u32, LNetError> {
        let index = enter(entries, hasher, PortalKind::Wildcard, spec)?;
        let before = spec.position == Position::Before;
        if before {
            self.sequence.push_before(entries, beside, index);
        } else {
            self.sequence.push_after(entries, beside, index);
        }
        if self.insert_in_group(entries, index, beside, before) {
            return Ok(index);
        }
        self.sequence.remove(entries, index);
        Err(no_room(entries, index))
    }

    /// Inserts an entry whose rank is set into its group: the entries with its key, or those with
    /// ignore bits.
    fn insert_in_group(&mut self, entries: &mut Objects, index: u32, beside: u32, before: bool) -> bool {
        let (new, other) = (&entries[index], &entries[beside]);
        let masked = new.is_masked();
        let neighbours = masked == other.is_masked() && (masked || new.same_key(other));
        // A neighbour in the portal's list that is in another group does not give the position;
        // search for it.
        let next = match (neighbours, before) {
            (true, true) => beside,
            (true, false) => other.next(),
            (false, _) => self.first_behind(entries, index),
        };
        match (masked, next) {
            (true, NONE) => self.masked.push_back(entries, index),
            (true, next) => self.masked.insert_before(entries, next, index),
            (false, NONE) => return self.exact.push_back(entries, index),
            (false, next) => self.exact.push_before(entries, next, index),
        }
        true
    }

    /// Returns the first entry of the same group with a greater rank, or [`NONE`].
    fn first_behind(&self, entries: &Objects, index: u32) -> u32 {
        let new = &entries[index];
        let mut at = if new.is_masked() {
            self.first_masked()
        } else {
            self.exact.first(entries, new.hash, |other: &MatchEntry| other.same_key(new))
        };
        while at != NONE && entries[at].rank() < new.rank() {
            at = entries[at].next();
        }
        at
    }

    /// Removes an entry from the portal; it stays in the table of entries.
    pub(super) fn withdraw(&mut self, entries: &mut Objects, index: u32) {
        let entry = &entries[index];
        let (kind, masked) = (PortalKind::of(&entry.match_id, entry.ignore_bits), entry.is_masked());
        if masked {
            self.masked.remove(entries, index);
        } else {
            self.exact.remove(entries, index);
        }
        if kind == PortalKind::Wildcard {
            self.sequence.remove(entries, index);
        }
    }

    /// Returns the first entry with ignore bits, or [`NONE`].
    pub(super) fn first_masked(&self) -> u32 {
        self.masked.head().unwrap_or(NONE)
    }

    /// Returns the first entry without ignore bits for these bits and, on a unique portal, this
    /// source; or [`NONE`].
    pub(super) fn first_exact(
        &self,
        entries: &Objects,
        hasher: &Hasher,
        kind: PortalKind,
        source: ProcessId,
        bits: MatchBits,
    ) -> u32 {
        let hash = hasher.process(kind.key_id(source), bits.0);
        let wanted = |entry: &MatchEntry| {
            entry.match_bits == bits && (kind == PortalKind::Wildcard || entry.match_id == source)
        };
        self.exact.first(entries, hash, wanted)
    }
}

fn enter(entries: &mut Objects, hasher: &Hasher, kind: PortalKind, spec: &MeSpec) -> Result<u32, LNetError> {
    let limit = entries.limits().0;
    let index = entries.insert_entry(MatchEntry::new(spec));
    let index = index.ok_or(LNetError::TooMany { objects: "match entries", limit })?;
    entries[index].hash = hasher.process(kind.key_id(spec.match_id), spec.match_bits.0);
    Ok(index)
}

/// Removes an entry for which the index has no memory; returns the error to report.
fn no_room(entries: &mut Objects, index: u32) -> LNetError {
    entries.remove_entry(index);
    LNetError::TooMany { objects: "match entries", limit: entries.limits().0 }
}
