//! Match entries.

use lnet_api::{MeSpec, Unlink};
use lnet_nid::{MatchBits, Portal, ProcessId};

use crate::buckets::{CHAIN, Hashed};
use crate::groups::{GROUP, Grouped};
use crate::list::{ListLinks, linked};
use crate::placement::EntryPlacement;
use crate::sequence::{Ranked, SEQUENCE};
use crate::slab::NONE;

/// A match entry.
///
/// Entries without ignore bits are found by hash; those with the same key (the bits; on a unique
/// portal also the source) form a group. Entries with ignore bits form a separate list. The rank
/// orders the entries of a wildcard portal in the portal's list.
///
/// The fields are in the order of their use: a search that skips an entry reads one cache line of
/// it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct MatchEntry {
    pub(super) hash: u32,
    /// The attached MD, or [`NONE`].
    pub(super) md: u32,
    pub(super) match_bits: MatchBits,
    /// Links in the hash index; used by the first entry of a group only.
    chain: ListLinks,
    /// Links among the entries of the same key, or among those with ignore bits.
    group: ListLinks,
    rank: u64,
    pub(super) match_id: ProcessId,
    pub(super) ignore_bits: MatchBits,
    /// Links among all entries of a wildcard portal.
    sequence: ListLinks,
    /// Index of the last entry of the same key; stored in the first entry.
    last: u32,
    pub(super) portal: Portal,
    /// Order among entries of other partitions ([`crate::placement::PlacedEntries::turn`]); 0 on a
    /// unique portal, and on a node of one partition.
    pub(super) turn: i64,
    pub(super) placement: EntryPlacement,
    pub(super) auto_unlink: bool,
}

linked!(MatchEntry: CHAIN => chain, GROUP => group, SEQUENCE => sequence);

impl Hashed for MatchEntry {
    fn hash(&self) -> u32 {
        self.hash
    }
}

impl Grouped for MatchEntry {
    fn same_key(&self, other: &MatchEntry) -> bool {
        let kind = PortalKind::of(&self.match_id, self.ignore_bits);
        self.match_bits == other.match_bits
            && (kind == PortalKind::Wildcard || self.match_id == other.match_id)
    }

    fn last(&self) -> u32 {
        self.last
    }

    fn set_last(&mut self, last: u32) {
        self.last = last;
    }
}

impl Ranked for MatchEntry {
    fn rank(&self) -> u64 {
        self.rank
    }

    fn set_rank(&mut self, rank: u64) {
        self.rank = rank;
    }
}

impl MatchEntry {
    pub(super) fn new(spec: &MeSpec) -> MatchEntry {
        MatchEntry {
            portal: spec.portal,
            match_id: spec.match_id,
            match_bits: spec.match_bits,
            ignore_bits: spec.ignore_bits,
            auto_unlink: spec.unlink == Unlink::Auto,
            md: NONE,
            hash: 0,
            rank: 0,
            chain: ListLinks::NONE,
            group: ListLinks::NONE,
            sequence: ListLinks::NONE,
            last: NONE,
            turn: 0,
            placement: EntryPlacement::Home,
        }
    }

    /// Returns the entry that a message tries after this one, of the same key or of those with
    /// ignore bits.
    pub(super) fn next(&self) -> u32 {
        self.group.next
    }

    /// Returns the entry's rank in the portal's list, which is less than the rank of every later
    /// entry. 0 on a unique portal.
    pub(super) fn rank(&self) -> u64 {
        self.rank
    }

    pub(super) fn is_masked(&self) -> bool {
        self.ignore_bits.0 != 0
    }
}

/// The kind of a portal's entries; the first one decides (S-101).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortalKind {
    /// Each entry names one process and all bits.
    Unique,
    /// Each entry has a wildcard: any NID, any PID, or ignore bits.
    Wildcard,
}

impl PortalKind {
    pub(crate) fn of(match_id: &ProcessId, ignore_bits: MatchBits) -> PortalKind {
        let open = match_id.nid.is_any() || match_id.pid.is_any() || ignore_bits.0 != 0;
        if open { PortalKind::Wildcard } else { PortalKind::Unique }
    }

    /// Returns the source as far as it is part of the key.
    pub(super) fn key_id(self, id: ProcessId) -> ProcessId {
        match self {
            PortalKind::Unique => id,
            PortalKind::Wildcard => ProcessId::ANY,
        }
    }
}
