//! Which MD takes a message (lnet-semantics 9).

use std::ops::Range;

use lnet_api::MdOptions;
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use smallvec::SmallVec;

use crate::common::Common;
use crate::config::MatchOrder;
use crate::md::Descriptor;
use crate::portal::{Entry, Kind};
use crate::resources::Resources;
use crate::slab::NONE;

/// What a PUT or GET looks for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// `OP_PUT` or `OP_GET`.
    pub(crate) op: MdOptions,
    pub(crate) bits: MatchBits,
    /// The NIDs of the source's node, the primary one first.
    pub(crate) nids: SmallVec<[Nid; 2]>,
    /// The source's PID.
    pub(crate) pid: Pid,
    /// Bytes it carries or asks for.
    pub(crate) length: u32,
    /// Offset in its header.
    pub(crate) offset: u32,
    /// It can wait, on a lazy portal, so it leaves buffers to those that wait already.
    pub(crate) can_wait: bool,
}

/// An MD that takes a message, and which bytes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) md: u32,
    pub(crate) offset: u64,
    pub(crate) mlength: u32,
}

impl Match {
    /// The bytes of the MD.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.offset as usize;
        start..start + self.mlength as usize
    }
}

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Match(Match),
    /// An MD would take it but has not the room: later ones are not tried.
    TooLong,
    Nothing,
}

impl Resources {
    /// Searches a wildcard portal: the first entry in list order that would take the message decides. Those without
    /// ignore bits are found by hash, so only those with ignore bits that stand before are looked at one by one.
    pub(crate) fn find_wildcard(&self, common: &Common, portal: usize, wanted: &Wanted) -> Found {
        let table = &self.tables[portal];
        let first =
            table.first_exact(&self.objects, &common.hasher, Kind::Wildcard, ProcessId::ANY, wanted.bits);
        let exact = self.first_of(first, u64::MAX, wanted);
        let before = match (&exact, common.config.match_order) {
            (Some((rank, _)), MatchOrder::List) => *rank,
            _ => u64::MAX,
        };
        let masked = self.first_of(table.first_masked(), before, wanted);
        masked.or(exact).map_or(Found::Nothing, |(_, found)| found)
    }

    /// Searches a unique portal for an entry of one of the node's NIDs.
    pub(crate) fn find_unique(&self, common: &Common, portal: usize, nid: Nid, wanted: &Wanted) -> Found {
        let source = ProcessId::new(nid, wanted.pid);
        let table = &self.tables[portal];
        let first = table.first_exact(&self.objects, &common.hasher, Kind::Unique, source, wanted.bits);
        self.first_of(first, u64::MAX, wanted).map_or(Found::Nothing, |(_, found)| found)
    }

    /// The first entry from here on that would take the message, before a rank.
    fn first_of(&self, first: u32, before: u64, wanted: &Wanted) -> Option<(u64, Found)> {
        let mut at = first;
        while at != NONE {
            let entry = &self.objects[at];
            if entry.rank() >= before {
                break;
            }
            if let Some(found) = self.try_entry(entry, wanted) {
                return Some((entry.rank(), found));
            }
            at = entry.next();
        }
        None
    }

    /// The rules in their order; `None` skips the entry.
    fn try_entry(&self, entry: &Entry, wanted: &Wanted) -> Option<Found> {
        let md = self.objects.md_at(entry.md)?;
        if md.reserved && wanted.can_wait {
            return None;
        }
        Resources::try_md(entry, md, wanted)
    }

    /// The same for a PUT that waits already.
    pub(crate) fn try_reserved(&self, entry: &Entry, wanted: &Wanted) -> Found {
        let md = self.objects.md_at(entry.md);
        md.and_then(|md| Resources::try_md(entry, md, wanted)).unwrap_or(Found::Nothing)
    }

    fn try_md(entry: &Entry, md: &Descriptor, wanted: &Wanted) -> Option<Found> {
        let bits_differ = (entry.match_bits.0 ^ wanted.bits.0) & !entry.ignore_bits.0 != 0;
        if md.is_exhausted() || !md.options.contains(wanted.op) || bits_differ {
            return None;
        }
        if !wanted.is_for(entry.match_id) {
            return None;
        }
        Some(match md.place(wanted.length, wanted.offset) {
            Some((offset, mlength)) => Found::Match(Match { md: entry.md, offset, mlength }),
            None => Found::TooLong,
        })
    }
}

impl Wanted {
    /// Whether an entry that wants messages of `id` takes it; an entry for one NID of a node takes those of the node's
    /// other NIDs as well.
    fn is_for(&self, id: ProcessId) -> bool {
        (id.pid.is_any() || id.pid == self.pid) && (id.nid.is_any() || self.nids.contains(&id.nid))
    }
}
