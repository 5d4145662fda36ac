//! The search for the MD that takes a message (lnet-semantics 9).

use std::ops::Range;

use lnet_api::{Event, EventKind, MdOptions};
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use lnet_proto::{Body, Header};
use smallvec::SmallVec;

use super::entry::{MatchEntry, PortalKind};
use super::md::MdState;
use super::objects::Objects;
use super::table::MatchTable;
use crate::common::Common;
use crate::config::MatchOrder;
use crate::message::{AdmittedMessage, Inbound};
use crate::slab::NONE;

/// The properties of a PUT or GET that matching compares.
#[derive(Debug, Clone)]
pub(crate) struct MatchRequest {
    /// `OP_PUT` or `OP_GET`.
    pub(super) op: MdOptions,
    bits: MatchBits,
    /// The NIDs of the source node, the primary one first.
    nids: SmallVec<[Nid; 2]>,
    /// The PID of the source process.
    pid: Pid,
    /// Number of bytes that the message carries or requests.
    length: u32,
    /// Offset in the message's header.
    offset: u32,
    /// True if the message can wait on a lazy portal. Then it must not take buffers reserved for
    /// waiting messages.
    can_wait: bool,
}

/// An MD that takes a message, and the range of the MD's bytes that it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) md: u32,
    pub(super) offset: u64,
    pub(super) mlength: u32,
}

impl Match {
    /// Returns the range of the MD's bytes.
    pub(super) fn range(&self) -> Range<usize> {
        let start = self.offset as usize;
        start..start + self.mlength as usize
    }
}

/// Result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Match(Match),
    /// A matching MD is too small; later entries are not tried.
    TooLong,
    Nothing,
}

/// Position of an entry in the list of a portal whose entries lie in several partitions: the least
/// is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListPosition {
    /// The entry has no ignore bits, and entries with ignore bits come first.
    behind_masked: bool,
    turn: i64,
}

impl MatchTable {
    /// Searches a wildcard portal: the first matching entry in list order decides. Entries without
    /// ignore bits are found by hash, so only the entries with ignore bits that come earlier are
    /// compared one by one.
    pub(super) fn find_wildcard(&self, objects: &Objects, common: &Common, wanted: &MatchRequest) -> Found {
        self.first_match(objects, common, wanted).map_or(Found::Nothing, |(_, found)| found)
    }

    /// Returns the first matching entry, and the result of the match.
    fn first_match<'a>(
        &self,
        objects: &'a Objects,
        common: &Common,
        wanted: &MatchRequest,
    ) -> Option<(&'a MatchEntry, Found)> {
        let first =
            self.first_exact(objects, &common.hasher, PortalKind::Wildcard, ProcessId::ANY, wanted.bits);
        let exact = first_of(objects, first, u64::MAX, wanted);
        let before = match (&exact, common.config.match_order) {
            (Some((entry, _)), MatchOrder::List) => entry.rank(),
            _ => u64::MAX,
        };
        let masked = first_of(objects, self.first_masked(), before, wanted);
        masked.or(exact)
    }

    /// Returns the position of the first matching entry of this partition; `None` if there is none.
    pub(super) fn list_position(
        &self,
        objects: &Objects,
        common: &Common,
        wanted: &MatchRequest,
    ) -> Option<ListPosition> {
        let (entry, _) = self.first_match(objects, common, wanted)?;
        let in_list = common.config.match_order == MatchOrder::List;
        Some(ListPosition { behind_masked: !in_list && !entry.is_masked(), turn: entry.turn })
    }

    /// Searches a unique portal for an entry for one of the node's NIDs.
    pub(super) fn find_unique(
        &self,
        objects: &Objects,
        common: &Common,
        nid: Nid,
        wanted: &MatchRequest,
    ) -> Found {
        let source = ProcessId::new(nid, wanted.pid);
        let first = self.first_exact(objects, &common.hasher, PortalKind::Unique, source, wanted.bits);
        first_of(objects, first, u64::MAX, wanted).map_or(Found::Nothing, |(_, found)| found)
    }
}

/// Returns the first matching entry from `first` on with a rank below `before`.
fn first_of<'a>(
    objects: &'a Objects,
    first: u32,
    before: u64,
    wanted: &MatchRequest,
) -> Option<(&'a MatchEntry, Found)> {
    let mut at = first;
    while at != NONE {
        let entry = &objects[at];
        if entry.rank() >= before {
            break;
        }
        if let Some(found) = try_entry(objects, entry, wanted) {
            return Some((entry, found));
        }
        at = entry.next();
    }
    None
}

/// Applies the matching rules in their order; `None` skips the entry.
fn try_entry(objects: &Objects, entry: &MatchEntry, wanted: &MatchRequest) -> Option<Found> {
    let md = objects.md_at(entry.md)?;
    if md.reserved && wanted.can_wait {
        return None;
    }
    try_md(entry, md, wanted)
}

/// Applies the rules of `try_entry` for a PUT that already waits: reserved buffers match.
pub(super) fn try_reserved(objects: &Objects, entry: &MatchEntry, wanted: &MatchRequest) -> Found {
    let md = objects.md_at(entry.md);
    md.and_then(|md| try_md(entry, md, wanted)).unwrap_or(Found::Nothing)
}

fn try_md(entry: &MatchEntry, md: &MdState, wanted: &MatchRequest) -> Option<Found> {
    let bits_differ = (entry.match_bits.0 ^ wanted.bits.0) & !entry.ignore_bits.0 != 0;
    if md.is_exhausted() || !md.options.contains(wanted.op) || bits_differ {
        return None;
    }
    if !wanted.is_for(entry.match_id) {
        return None;
    }
    Some(match md.locate(wanted.length, wanted.offset) {
        Some((offset, mlength)) => Found::Match(Match { md: entry.md, offset, mlength }),
        None => Found::TooLong,
    })
}

impl MatchRequest {
    /// Creates the request of a PUT or GET with these match bits; `length` bytes at `offset`.
    pub(crate) fn new(
        op: MdOptions,
        inbound: &Inbound,
        header: &Header,
        bits: MatchBits,
        (length, offset): (u32, u32),
    ) -> MatchRequest {
        MatchRequest {
            op,
            bits,
            nids: inbound.nids.clone(),
            pid: header.src.pid,
            length,
            offset,
            can_wait: false,
        }
    }

    /// Sets whether the message can wait for a buffer.
    pub(crate) fn waiting(self, can_wait: bool) -> MatchRequest {
        MatchRequest { can_wait, ..self }
    }

    pub(crate) fn bits(&self) -> MatchBits {
        self.bits
    }

    pub(crate) fn is_put(&self) -> bool {
        self.op == MdOptions::OP_PUT
    }

    /// Returns the NIDs of the source node, the primary one first.
    pub(crate) fn nids(&self) -> &[Nid] {
        &self.nids
    }

    /// Returns whether an entry for messages of `id` matches; an entry for one NID of a node also
    /// matches messages of the node's other NIDs.
    fn is_for(&self, id: ProcessId) -> bool {
        (id.pid.is_any() || id.pid == self.pid) && (id.nid.is_any() || self.nids.contains(&id.nid))
    }
}

/// The search of a PUT or GET for a buffer, as the engine, the portals' queues and the rooms of MDs
/// pass it to each other.
pub(crate) struct Search<'a> {
    pub(crate) message: AdmittedMessage<'a>,
    pub(crate) wanted: &'a MatchRequest,
}

impl Search<'_> {
    /// Returns the event for the owner of a PUT's buffer.
    pub(super) fn put_event(&self, common: &Common, mlength: u32, offset: u64) -> Event {
        let Body::Put { match_bits, hdr_data, portal, .. } = self.message.header.body else {
            return common.event(EventKind::Put);
        };
        Event {
            portal,
            match_bits,
            hdr_data,
            rlength: self.message.header.payload_length,
            mlength,
            offset,
            ..self.message.inbound.event(common, EventKind::Put, self.message.header)
        }
    }
}
