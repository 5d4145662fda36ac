//! The match entries of one portal in one partition, in the order in which messages try them (lnet-semantics 10).

use lnet_api::{LNetError, MeSpec, Position, Unlink};
use lnet_nid::{MatchBits, Portal, ProcessId};

use crate::buckets::{CHAIN, Hashed};
use crate::groups::{GROUP, Grouped, Groups};
use crate::keys::Hasher;
use crate::list::{Linked, Links, List};
use crate::objects::Objects;
use crate::sequence::{Ranked, SEQUENCE, Sequence};
use crate::slab::NONE;

/// The list number of the entries with ignore bits.
const MASKED: usize = GROUP;

/// A match entry.
///
/// Entries without ignore bits are found by hash; those that want the same key (the bits; on a unique portal the source
/// as well) form a group. Entries with ignore bits form a list of their own. Which of two entries of a wildcard portal
/// stands first in the portal's list, their ranks tell.
///
/// The fields stand in the order of their use: a search that goes past an entry needs one cache line of it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Entry {
    hash: u32,
    /// The attached MD, or [`NONE`].
    pub(crate) md: u32,
    pub(crate) match_bits: MatchBits,
    /// In the hash index; the first of its group only.
    chain: Links,
    /// Among the entries of the same key, or among those with ignore bits.
    group: Links,
    rank: u64,
    pub(crate) match_id: ProcessId,
    pub(crate) ignore_bits: MatchBits,
    /// Among all entries of a wildcard portal.
    sequence: Links,
    /// The last entry of the same key; kept in the first.
    last: u32,
    pub(crate) portal: Portal,
    pub(crate) auto_unlink: bool,
}

macro_rules! linked {
    ($list:ident, $field:ident) => {
        impl Linked<$list> for Entry {
            fn links(&self) -> Links {
                self.$field
            }

            fn links_mut(&mut self) -> &mut Links {
                &mut self.$field
            }
        }
    };
}

linked!(CHAIN, chain);
linked!(GROUP, group);
linked!(SEQUENCE, sequence);

impl Hashed for Entry {
    fn hash(&self) -> u32 {
        self.hash
    }
}

impl Grouped for Entry {
    fn same_key(&self, other: &Entry) -> bool {
        let kind = Kind::of(&self.match_id, self.ignore_bits);
        self.match_bits == other.match_bits && (kind == Kind::Wildcard || self.match_id == other.match_id)
    }

    fn last(&self) -> u32 {
        self.last
    }

    fn set_last(&mut self, last: u32) {
        self.last = last;
    }
}

impl Ranked for Entry {
    fn rank(&self) -> u64 {
        self.rank
    }

    fn set_rank(&mut self, rank: u64) {
        self.rank = rank;
    }
}

impl Entry {
    fn new(spec: &MeSpec) -> Entry {
        Entry {
            portal: spec.portal,
            match_id: spec.match_id,
            match_bits: spec.match_bits,
            ignore_bits: spec.ignore_bits,
            auto_unlink: spec.unlink == Unlink::Auto,
            md: NONE,
            hash: 0,
            rank: 0,
            chain: Links::NONE,
            group: Links::NONE,
            sequence: Links::NONE,
            last: NONE,
        }
    }

    /// The entry that a message tries after this one, of the same key or of those with ignore bits.
    pub(crate) fn next(&self) -> u32 {
        self.group.next
    }

    /// Where it stands in the portal's list: before all with a greater rank. 0 on a unique portal.
    pub(crate) fn rank(&self) -> u64 {
        self.rank
    }

    pub(crate) fn is_masked(&self) -> bool {
        self.ignore_bits.0 != 0
    }
}

/// What kind of entries a portal takes; the first one decides (S-101).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each entry names one process and all bits.
    Unique,
    /// Each entry leaves something open.
    Wildcard,
}

impl Kind {
    pub(crate) fn of(match_id: &ProcessId, ignore_bits: MatchBits) -> Kind {
        let open = match_id.nid.is_any() || match_id.pid.is_any() || ignore_bits.0 != 0;
        if open { Kind::Wildcard } else { Kind::Unique }
    }

    /// The source as far as it is part of the key.
    fn key_id(self, id: ProcessId) -> ProcessId {
        match self {
            Kind::Unique => id,
            Kind::Wildcard => ProcessId::ANY,
        }
    }
}

/// The match entries of one portal in one partition.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) exact: Groups,
    /// Entries with ignore bits.
    pub(crate) masked: List<MASKED>,
    /// All entries of a wildcard portal.
    pub(crate) sequence: Sequence,
    /// Entries that have an MD.
    pub(crate) attached: usize,
    /// When the last MD was attached, in nanoseconds of the node's clock.
    pub(crate) attached_at_ns: u64,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table {
            exact: Groups::default(),
            masked: List::new(),
            sequence: Sequence::new(),
            attached: 0,
            attached_at_ns: 0,
        }
    }

    /// Posts an entry of the portal's kind at the head or the tail.
    ///
    /// # Errors
    /// ENOMEM if there are too many, or no memory.
    pub(crate) fn post(
        &mut self,
        entries: &mut Objects,
        hasher: &Hasher,
        kind: Kind,
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
        if kind == Kind::Wildcard {
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
    /// As for [`Table::post`].
    pub(crate) fn insert(
        &mut self,
        entries: &mut Objects,
        hasher: &Hasher,
        beside: u32,
        spec: &MeSpec,
    ) -> Result<u32, LNetError> {
        let index = enter(entries, hasher, Kind::Wildcard, spec)?;
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

    /// Enters an entry that has its rank among those it shares a list with.
    fn insert_in_group(&mut self, entries: &mut Objects, index: u32, beside: u32, before: bool) -> bool {
        let (new, other) = (&entries[index], &entries[beside]);
        let masked = new.is_masked();
        let neighbours = masked == other.is_masked() && (masked || new.same_key(other));
        // A neighbour in the portal's list that is in another list here tells nothing: the place is searched for.
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

    /// The first entry of its list that stands behind this one, or [`NONE`].
    fn first_behind(&self, entries: &Objects, index: u32) -> u32 {
        let new = &entries[index];
        let mut at = if new.is_masked() {
            self.first_masked()
        } else {
            self.exact.first(entries, new.hash, |other: &Entry| other.same_key(new))
        };
        while at != NONE && entries[at].rank < new.rank {
            at = entries[at].next();
        }
        at
    }

    /// Takes an entry out of the portal; it stays in the table of entries.
    pub(crate) fn withdraw(&mut self, entries: &mut Objects, index: u32) {
        let entry = &entries[index];
        let (kind, masked) = (Kind::of(&entry.match_id, entry.ignore_bits), entry.is_masked());
        if masked {
            self.masked.remove(entries, index);
        } else {
            self.exact.remove(entries, index);
        }
        if kind == Kind::Wildcard {
            self.sequence.remove(entries, index);
        }
    }

    /// The first entry with ignore bits, or [`NONE`].
    pub(crate) fn first_masked(&self) -> u32 {
        self.masked.head().unwrap_or(NONE)
    }

    /// The first entry without ignore bits that wants these bits and, on a unique portal, this source; or [`NONE`].
    pub(crate) fn first_exact(
        &self,
        entries: &Objects,
        hasher: &Hasher,
        kind: Kind,
        source: ProcessId,
        bits: MatchBits,
    ) -> u32 {
        let hash = hasher.process(kind.key_id(source), bits.0);
        let wanted =
            |entry: &Entry| entry.match_bits == bits && (kind == Kind::Wildcard || entry.match_id == source);
        self.exact.first(entries, hash, wanted)
    }
}

fn enter(entries: &mut Objects, hasher: &Hasher, kind: Kind, spec: &MeSpec) -> Result<u32, LNetError> {
    let limit = entries.limits().0;
    let index = entries.insert_entry(Entry::new(spec));
    let index = index.ok_or(LNetError::TooMany { objects: "match entries", limit })?;
    entries[index].hash = hasher.process(kind.key_id(spec.match_id), spec.match_bits.0);
    Ok(index)
}

/// Takes an entry back for which the index has no memory.
fn no_room(entries: &mut Objects, index: u32) -> LNetError {
    entries.remove_entry(index);
    LNetError::TooMany { objects: "match entries", limit: entries.limits().0 }
}
