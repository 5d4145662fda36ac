//! A plain model of matching: one vector of entries for the portal, tried one after the other; if
//! some are local, partition by partition (lnet-semantics 9 to 11).

use lnet::{MatchOrder, Rotor, Stealing};
use lnet_api::{MdHandle, MdOptions, MeHandle, MeSpec, Position, Unlink};
use lnet_nid::{Nid, Pid, ProcessId};

use super::PARTITIONS;

/// Time for which a partition without buffers is still searched, in nanoseconds.
pub(crate) const REST_NS: u64 = 1_000_000_000;

/// The settings of the portal and its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) unique: bool,
    pub(crate) lazy: bool,
    pub(crate) order: MatchOrder,
    pub(crate) rotor: Rotor,
    pub(crate) stealing: Stealing,
}

#[derive(Debug, Clone)]
pub(crate) struct ModelMd {
    pub(crate) handle: MdHandle,
    pub(crate) length: u64,
    pub(crate) threshold: Option<u32>,
    pub(crate) max_size: Option<u32>,
    pub(crate) options: MdOptions,
    pub(crate) offset: u64,
    pub(crate) auto: bool,
}

impl ModelMd {
    fn exhausted(&self) -> bool {
        self.threshold == Some(0)
            || self.max_size.is_some_and(|size| self.offset + u64::from(size) > self.length)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ModelEntry {
    pub(crate) handle: MeHandle,
    pub(crate) spec: MeSpec,
    pub(crate) md: Option<ModelMd>,
    pub(crate) partition: usize,
    /// True if the entry is unlinked; its place remains, for entries that are inserted beside it
    /// later.
    gone: bool,
}

impl ModelEntry {
    pub(crate) fn is_masked(&self) -> bool {
        self.spec.ignore_bits.0 != 0
    }

    pub(crate) fn is_local(&self) -> bool {
        self.spec.position == Position::Local
    }
}

/// A PUT or GET.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub(crate) op: MdOptions,
    pub(crate) source: ProcessId,
    /// The last hop.
    pub(crate) from: Nid,
    pub(crate) bits: u64,
    pub(crate) length: u32,
    pub(crate) offset: u32,
}

/// The event for the owner of the MD.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Taken {
    pub(crate) md: MdHandle,
    pub(crate) offset: u64,
    pub(crate) rlength: u32,
    pub(crate) mlength: u32,
    pub(crate) unlinked: bool,
}

enum Look {
    Taken(Taken),
    /// An entry would match if it had room.
    TooLong,
    Nothing,
}

/// One partition of the portal.
#[derive(Debug, Default)]
struct Table {
    active: bool,
    posted_ns: u64,
    /// True if messages search the partition for local entries.
    local: bool,
}

/// One portal.
#[derive(Debug)]
pub(crate) struct Model {
    rules: Rules,
    /// The portal's list.
    list: Vec<ModelEntry>,
    tables: Vec<Table>,
    held: Vec<Message>,
    turn: usize,
    pub(crate) now_ns: u64,
}

impl Model {
    pub(crate) fn new(rules: Rules) -> Model {
        let tables = (0..PARTITIONS).map(|_| Table::default()).collect();
        Model { rules, list: Vec::new(), tables, held: Vec::new(), turn: 0, now_ns: 0 }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &ModelEntry> {
        self.list.iter().filter(|entry| !entry.gone)
    }

    fn find(&self, me: MeHandle) -> Option<usize> {
        self.list.iter().position(|entry| entry.handle == me && !entry.gone)
    }

    pub(crate) fn entry(&mut self, me: MeHandle) -> Option<&mut ModelEntry> {
        let at = self.find(me)?;
        Some(&mut self.list[at])
    }

    /// Posts an entry from a thread of partition `here`. The partition of a unique portal's entries
    /// has no effect: here it is always the first.
    pub(crate) fn post(&mut self, handle: MeHandle, spec: MeSpec, here: usize) {
        let portal = spec.portal.index();
        let gathers = self.entries().any(|entry| entry.is_masked() && !entry.is_local());
        let partition = match spec.position {
            _ if self.rules.unique => 0,
            Position::Local => here,
            _ if gathers || spec.ignore_bits.0 != 0 => portal % PARTITIONS,
            _ => (portal + (spec.match_bits.0 >> 52) as usize) % PARTITIONS,
        };
        let of_partition = |entry: &ModelEntry| entry.partition == partition;
        let at = match spec.position {
            Position::Before => 0,
            Position::After => self.list.len(),
            // The place is behind all entries that were ever in the partition.
            Position::Local => self.list.iter().rposition(of_partition).map_or(self.list.len(), |at| at + 1),
        };
        self.tables[partition].local |= spec.position == Position::Local && PARTITIONS > 1;
        self.list.insert(at, ModelEntry { handle, spec, md: None, partition, gone: false });
    }

    pub(crate) fn insert(&mut self, beside: MeHandle, handle: MeHandle, spec: MeSpec) {
        let at = self.find(beside).unwrap();
        let partition = self.list[at].partition;
        let at = if spec.position == Position::Before { at } else { at + 1 };
        self.list.insert(at, ModelEntry { handle, spec, md: None, partition, gone: false });
    }

    pub(crate) fn unlink_entry(&mut self, me: MeHandle) -> ModelEntry {
        let entry = self.entry(me).unwrap();
        let gone = entry.clone();
        (entry.gone, entry.md) = (true, None);
        if !self.tables[gone.partition].active {
            self.notice_local(gone.partition);
        }
        gone
    }

    /// Updates the flag that a partition has local entries.
    fn notice_local(&mut self, partition: usize) {
        let local = self.entries().any(|entry| entry.partition == partition && entry.is_local());
        self.tables[partition].local &= local;
    }

    /// Removes the MD of an entry, and also the entry if it was posted with this option.
    pub(crate) fn unlink_md(&mut self, me: MeHandle) {
        let entry = self.entry(me).unwrap();
        entry.md = None;
        if entry.spec.unlink == Unlink::Auto {
            self.unlink_entry(me);
        }
    }

    /// Attaches an MD; returns the waiting messages that it takes.
    pub(crate) fn attach(&mut self, me: MeHandle, md: ModelMd) -> Vec<Taken> {
        let at = self.find(me).unwrap();
        let table = &mut self.tables[self.list[at].partition];
        (table.active, table.posted_ns) = (true, self.now_ns);
        self.list[at].md = Some(md);
        let mut taken = Vec::new();
        for message in std::mem::take(&mut self.held) {
            let look = self.find(me).map(|at| self.try_entry(at, &message));
            match look {
                Some(Look::Taken(found)) => taken.push(found),
                Some(Look::TooLong) => {}
                Some(Look::Nothing) | None => self.held.push(message),
            }
        }
        taken
    }

    /// Processes an arriving message.
    pub(crate) fn arrive(&mut self, message: &Message) -> Option<Taken> {
        let waits = self.rules.lazy && message.op == MdOptions::OP_PUT;
        match self.look_around(message, waits) {
            Look::Taken(taken) => return Some(taken),
            Look::TooLong => return None,
            Look::Nothing => {}
        }
        if waits {
            if self.has_local() {
                (0..PARTITIONS).for_each(|partition| self.looked_in_vain(partition));
            }
            self.held.push(*message);
        }
        None
    }

    fn has_local(&self) -> bool {
        self.tables.iter().any(|table| table.local)
    }

    fn look_around(&mut self, message: &Message, waits: bool) -> Look {
        if !self.has_local() {
            return self.look(None, message);
        }
        let steals = self.rules.stealing == Stealing::All || waits;
        let first = self.first_partition(message);
        for partition in (first..PARTITIONS).chain(0..first) {
            if !self.tables[partition].active {
                continue;
            }
            let look = self.look(Some(partition), message);
            if !matches!(look, Look::Nothing) {
                return look;
            }
            self.looked_in_vain(partition);
            if !steals {
                break;
            }
        }
        Look::Nothing
    }

    fn first_partition(&mut self, message: &Message) -> usize {
        let routed = message.source.nid.net() != message.from.net();
        match self.rules.rotor {
            Rotor::HashRt if routed => message.source.nid.cpt_of(PARTITIONS),
            Rotor::On | Rotor::RrRt if routed || self.rules.rotor == Rotor::On => {
                self.turn += 1;
                (self.turn - 1) % PARTITIONS
            }
            _ => message.from.cpt_of(PARTITIONS),
        }
    }

    /// Tries the entries in the order of the list: all of them, or those of one partition.
    fn look(&mut self, partition: Option<usize>, message: &Message) -> Look {
        let list = &self.list;
        let is_tried =
            |&at: &usize| !list[at].gone && partition.is_none_or(|partition| list[at].partition == partition);
        let mut order: Vec<usize> = (0..list.len()).filter(is_tried).collect();
        if self.rules.order == MatchOrder::IgnoreBitsFirst {
            // The sort is stable: each half keeps the order of the list.
            order.sort_by_key(|&at| !list[at].is_masked());
        }
        for at in order {
            match self.try_entry(at, message) {
                Look::Nothing => {}
                found => return found,
            }
        }
        Look::Nothing
    }

    /// Ends searches of a partition that has had no buffer for long (S-309), and searches for local
    /// entries where none exist any more.
    fn looked_in_vain(&mut self, partition: usize) {
        let in_partition = |entry: &&ModelEntry| entry.partition == partition;
        let empty = self.entries().filter(in_partition).all(|entry| entry.md.is_none());
        let table = &mut self.tables[partition];
        if empty && self.now_ns - table.posted_ns >= REST_NS {
            table.active = false;
        }
        self.notice_local(partition);
    }

    fn try_entry(&mut self, at: usize, message: &Message) -> Look {
        let entry = &mut self.list[at];
        if !wants(entry, message) {
            return Look::Nothing;
        }
        let Some(md) = &mut entry.md else { return Look::Nothing };
        let Some((offset, mlength)) = locate(md, message) else { return Look::TooLong };
        md.threshold = md.threshold.map(|left| left - 1);
        md.offset = offset + u64::from(mlength);
        let rlength = if message.op == MdOptions::OP_PUT { message.length } else { 0 };
        let unlinked = md.auto && md.exhausted();
        let taken = Taken { md: md.handle, offset, rlength, mlength, unlinked };
        if taken.unlinked {
            let me = entry.handle;
            self.unlink_md(me);
        }
        Look::Taken(taken)
    }
}

fn wants(entry: &ModelEntry, message: &Message) -> bool {
    let spec = &entry.spec;
    entry.md.as_ref().is_some_and(|md| !md.exhausted() && md.options.contains(message.op))
        && (spec.match_bits.0 ^ message.bits) & !spec.ignore_bits.0 == 0
        && (spec.match_id.pid == Pid::ANY || spec.match_id.pid == message.source.pid)
        && (spec.match_id.nid == Nid::ANY || spec.match_id.nid == message.source.nid)
}

/// Returns the offset and length of the match; `None` if there is no room.
fn locate(md: &ModelMd, message: &Message) -> Option<(u64, u32)> {
    let remote = md.options.contains(MdOptions::MANAGE_REMOTE);
    let offset = if remote { u64::from(message.offset) } else { md.offset };
    let allowed = u64::from(md.max_size.unwrap_or(u32::MAX)).min(md.length.checked_sub(offset)?) as u32;
    if message.length > allowed && !md.options.contains(MdOptions::TRUNCATE) {
        return None;
    }
    Some((offset, message.length.min(allowed)))
}
