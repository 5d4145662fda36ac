//! Portals: match entries in the order in which messages try them (lnet-semantics 10).

use lnet_api::{LNetError, MeSpec, Position, Unlink};
use lnet_nid::{MatchBits, Portal, ProcessId};

use crate::buckets::{Buckets, CHAIN, Hashed};
use crate::keys::Hasher;
use crate::list::{Linked, Links, List};
use crate::objects::Objects;
use crate::partition::DELAYED;
use crate::slab::NONE;

/// The list number of match entries in the order of matching.
const ORDER: usize = 1;

/// A match entry in the engine's table.
///
/// Entries without ignore bits are found by hash. Those that want the same key (the bits; on a unique portal the source
/// as well) form a list in the order of matching; only the first of them is in the hash index, and it knows the
/// last. So the index is as large as there are keys, not entries, and equal keys make no long chains.
///
/// The fields stand in the order of their use: a search that goes past an entry needs one cache line of it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Entry {
    hash: u32,
    /// The attached MD, or [`NONE`].
    pub(crate) md: u32,
    pub(crate) match_bits: MatchBits,
    /// In the hash index; the first of its key only.
    chain: Links,
    /// Among the entries of the same key, or among those with ignore bits.
    order: Links,
    pub(crate) match_id: ProcessId,
    pub(crate) ignore_bits: MatchBits,
    /// The last entry of the same key; kept in the first.
    last: u32,
    pub(crate) portal: Portal,
    pub(crate) auto_unlink: bool,
}

impl Linked<CHAIN> for Entry {
    fn links(&self) -> Links {
        self.chain
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.chain
    }
}

impl Linked<ORDER> for Entry {
    fn links(&self) -> Links {
        self.order
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.order
    }
}

impl Hashed for Entry {
    fn hash(&self) -> u32 {
        self.hash
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
            chain: Links::NONE,
            order: Links::NONE,
            last: NONE,
        }
    }

    /// The entry that a message tries after this one.
    pub(crate) fn next(&self) -> u32 {
        self.order.next
    }

    fn has_ignore_bits(&self) -> bool {
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
    fn of(spec: &MeSpec) -> Kind {
        let open = spec.match_id.nid.is_any() || spec.match_id.pid.is_any() || spec.ignore_bits.0 != 0;
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

/// The match entries of one portal.
#[derive(Debug)]
pub(crate) struct Table {
    kind: Option<Kind>,
    exact: Buckets,
    /// Entries with ignore bits, which are tried first.
    masked: List<ORDER>,
    /// PUTs that match nothing wait instead of being dropped (lnet-semantics 11).
    pub(crate) lazy: bool,
    /// Those that wait.
    pub(crate) delayed: List<DELAYED>,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table {
            kind: None,
            exact: Buckets::default(),
            masked: List::new(),
            lazy: false,
            delayed: List::new(),
        }
    }

    /// What decides where an exact match is looked for: `None` as long as there was no entry.
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// Posts an entry.
    ///
    /// # Errors
    /// EPERM if it does not fit the portal's type, or is to be put before others where order means nothing (S-103);
    /// ENOMEM if there are too many.
    pub(crate) fn post(
        &mut self,
        entries: &mut Objects,
        hasher: &Hasher,
        spec: &MeSpec,
    ) -> Result<u32, LNetError> {
        let kind = Kind::of(spec);
        self.check(kind, spec)?;
        let Some(index) = entries.insert_entry(Entry::new(spec)) else {
            return Err(LNetError::TooMany { objects: "match entries", limit: entries.limits().0 });
        };
        self.kind = Some(kind);
        if spec.ignore_bits.0 != 0 {
            match spec.position {
                Position::Before => self.masked.push_front(entries, index),
                Position::After | Position::Local => self.masked.push_back(entries, index),
            }
        } else {
            entries[index].hash = hasher.process(kind.key_id(spec.match_id), spec.match_bits.0);
            self.post_exact(entries, kind, index, spec.position);
        }
        Ok(index)
    }

    fn check(&self, kind: Kind, spec: &MeSpec) -> Result<(), LNetError> {
        let rule = match (self.kind, kind) {
            (Some(Kind::Unique), Kind::Wildcard) => {
                "a unique portal takes only entries for one process and all bits"
            }
            (Some(Kind::Wildcard), Kind::Unique) => {
                "a wildcard portal takes only entries that leave the process or some bits open"
            }
            (_, Kind::Unique) if spec.position == Position::Before => {
                "entries of a unique portal have no order, so none can be put before others"
            }
            _ => return Ok(()),
        };
        Err(LNetError::PortalType { portal: spec.portal.get(), rule })
    }

    fn post_exact(&mut self, entries: &mut Objects, kind: Kind, index: u32, position: Position) {
        let new = &entries[index];
        let first = self.lookup(entries, kind, new.hash, new.match_id, new.match_bits);
        if first == NONE {
            entries[index].last = index;
            self.exact.insert(entries, index);
            return;
        }
        let last = entries[first].last;
        match position {
            Position::Before => {
                self.exact.replace(entries, first, index);
                entries[index].order = Links { prev: NONE, next: first };
                entries[index].last = last;
                entries[first].order.prev = index;
            }
            Position::After | Position::Local => {
                entries[index].order = Links { prev: last, next: NONE };
                entries[last].order.next = index;
                entries[first].last = index;
            }
        }
    }

    /// Takes an entry out of the portal; it stays in the table of entries.
    pub(crate) fn withdraw(&mut self, entries: &mut Objects, index: u32) {
        if entries[index].has_ignore_bits() {
            return self.masked.remove(entries, index);
        }
        let Links { prev, next } = std::mem::replace(&mut entries[index].order, Links::NONE);
        if prev == NONE {
            return self.withdraw_first(entries, index, next);
        }
        entries[prev].order.next = next;
        if next != NONE {
            entries[next].order.prev = prev;
            return;
        }
        let gone = &entries[index];
        let kind = self.kind.unwrap_or(Kind::Wildcard);
        let first = self.lookup(entries, kind, gone.hash, gone.match_id, gone.match_bits);
        entries[first].last = prev;
    }

    fn withdraw_first(&mut self, entries: &mut Objects, index: u32, next: u32) {
        if next == NONE {
            return self.exact.remove(entries, index);
        }
        self.exact.replace(entries, index, next);
        entries[next].order.prev = NONE;
        entries[next].last = entries[index].last;
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
        source: ProcessId,
        bits: MatchBits,
    ) -> u32 {
        let Some(kind) = self.kind else { return NONE };
        let hash = hasher.process(kind.key_id(source), bits.0);
        self.lookup(entries, kind, hash, source, bits)
    }

    fn lookup(&self, entries: &Objects, kind: Kind, hash: u32, source: ProcessId, bits: MatchBits) -> u32 {
        let mut at = self.exact.first(hash);
        while at != NONE {
            let entry = &entries[at];
            let same_source = kind == Kind::Wildcard || entry.match_id == source;
            if entry.hash == hash && entry.match_bits == bits && same_source {
                break;
            }
            at = entry.chain.next;
        }
        at
    }
}
