//! Which MD takes a message (lnet-semantics 9).

use lnet_api::MdOptions;
use lnet_nid::{MatchBits, Portal, ProcessId};

use crate::partition::Partition;
use crate::portal::{Entry, Kind};
use crate::slab::NONE;

/// What a PUT or GET looks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// `OP_PUT` or `OP_GET`.
    pub(crate) op: MdOptions,
    pub(crate) bits: MatchBits,
    /// The primary NID of the source, and its PID.
    pub(crate) source: ProcessId,
    /// Bytes it carries or asks for.
    pub(crate) length: u32,
    /// Offset in its header.
    pub(crate) offset: u32,
}

/// An MD that takes a message, and which bytes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) md: u32,
    pub(crate) offset: u64,
    pub(crate) mlength: u32,
}

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Match(Match),
    /// An MD would take it but has not the room: later ones are not tried.
    TooLong,
    Nothing,
}

impl Partition {
    /// Searches the entries with ignore bits, then those without, each in list order.
    pub(crate) fn find(&self, portal: u32, wanted: &Wanted) -> Found {
        let Ok(portal) = Portal::new(portal) else { return Found::Nothing };
        let table = &self.portals[portal.index()];
        if let Some(found) = self.find_from(table.first_masked(), wanted) {
            return found;
        }
        let exact = |source| {
            let first = table.first_exact(&self.objects, &self.hasher, source, wanted.bits);
            self.find_from(first, wanted)
        };
        if let Some(found) = exact(wanted.source) {
            return found;
        }
        if table.kind() != Some(Kind::Unique) {
            return Found::Nothing;
        }
        // Entries of a unique portal that name another NID of the same node.
        let others = self.identities.nids(wanted.source.nid).iter().skip(1);
        let found = others.filter_map(|&nid| exact(ProcessId::new(nid, wanted.source.pid)));
        found.into_iter().next().unwrap_or(Found::Nothing)
    }

    fn find_from(&self, first: u32, wanted: &Wanted) -> Option<Found> {
        let mut at = first;
        while at != NONE {
            let entry = &self.objects[at];
            if let Some(found) = self.try_entry(entry, wanted) {
                return Some(found);
            }
            at = entry.next();
        }
        None
    }

    /// The rules in their order; `None` skips the entry.
    fn try_entry(&self, entry: &Entry, wanted: &Wanted) -> Option<Found> {
        let md = self.objects.md_at(entry.md)?;
        let bits_differ = (entry.match_bits.0 ^ wanted.bits.0) & !entry.ignore_bits.0 != 0;
        if md.is_exhausted() || !md.options.contains(wanted.op) || bits_differ {
            return None;
        }
        if !self.is_from(entry.match_id, wanted.source) {
            return None;
        }
        Some(match md.place(wanted.length, wanted.offset) {
            Some((offset, mlength)) => Found::Match(Match { md: entry.md, offset, mlength }),
            None => Found::TooLong,
        })
    }

    fn is_from(&self, wanted: ProcessId, source: ProcessId) -> bool {
        let pid_fits = wanted.pid.is_any() || wanted.pid == source.pid;
        let nid_fits = || wanted.nid.is_any() || self.identities.same(wanted.nid, source.nid);
        pid_fits && nid_fits()
    }
}
