//! Matching as plain as it can be: one vector of entries for each partition, tried one after the other
//! (lnet-semantics 9 to 11).

use lnet::{MatchOrder, Rotor, Stealing};
use lnet_api::{MdHandle, MdOptions, MeHandle, MeSpec, Position, Unlink};
use lnet_nid::{Nid, Pid, ProcessId};

use super::PARTITIONS;

/// How long a partition without buffers is looked at, in nanoseconds.
pub(crate) const REST_NS: u64 = 1_000_000_000;

/// What the portal and its node are set to.
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

/// What the owner of the MD is told.
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
    /// It would be taken if there were room.
    TooLong,
    Nothing,
}

/// One partition of the portal.
#[derive(Debug, Default)]
struct Table {
    entries: Vec<ModelEntry>,
    active: bool,
    posted_ns: u64,
}

/// One portal.
#[derive(Debug)]
pub(crate) struct Model {
    rules: Rules,
    tables: Vec<Table>,
    held: Vec<Message>,
    turn: usize,
    decided: bool,
    pub(crate) now_ns: u64,
}

impl Model {
    pub(crate) fn new(rules: Rules) -> Model {
        let tables = (0..PARTITIONS).map(|_| Table::default()).collect();
        Model { rules, tables, held: Vec::new(), turn: 0, decided: false, now_ns: 0 }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &ModelEntry> {
        self.tables.iter().flat_map(|table| &table.entries)
    }

    fn find(&self, me: MeHandle) -> Option<(usize, usize)> {
        let place = |table: &Table| table.entries.iter().position(|entry| entry.handle == me);
        (0..PARTITIONS).find_map(|at| Some((at, place(&self.tables[at])?)))
    }

    pub(crate) fn entry(&mut self, me: MeHandle) -> Option<&mut ModelEntry> {
        let (partition, at) = self.find(me)?;
        Some(&mut self.tables[partition].entries[at])
    }

    /// Posts an entry from a thread of partition `here`. Which partition the entries of a unique portal are in means
    /// nothing: here it is always the first.
    pub(crate) fn post(&mut self, handle: MeHandle, spec: MeSpec, here: usize) {
        self.decided = true;
        let partition = match spec.position {
            _ if self.rules.unique => 0,
            Position::Local => here,
            Position::Before | Position::After => spec.portal.index() % PARTITIONS,
        };
        let entries = &mut self.tables[partition].entries;
        let at = if spec.position == Position::Before { 0 } else { entries.len() };
        entries.insert(at, ModelEntry { handle, spec, md: None });
    }

    pub(crate) fn insert(&mut self, beside: MeHandle, handle: MeHandle, spec: MeSpec) {
        let (partition, at) = self.find(beside).unwrap();
        let at = if spec.position == Position::Before { at } else { at + 1 };
        self.tables[partition].entries.insert(at, ModelEntry { handle, spec, md: None });
    }

    pub(crate) fn unlink_entry(&mut self, me: MeHandle) -> ModelEntry {
        let (partition, at) = self.find(me).unwrap();
        self.tables[partition].entries.remove(at)
    }

    /// The MD of an entry goes, and the entry with it if it was posted so.
    pub(crate) fn unlink_md(&mut self, me: MeHandle) {
        let entry = self.entry(me).unwrap();
        entry.md = None;
        if entry.spec.unlink == Unlink::Auto {
            self.unlink_entry(me);
        }
    }

    /// Attaches an MD; gives what it takes of the messages that wait.
    pub(crate) fn attach(&mut self, me: MeHandle, md: ModelMd) -> Vec<Taken> {
        let (partition, at) = self.find(me).unwrap();
        let table = &mut self.tables[partition];
        (table.active, table.posted_ns) = (true, self.now_ns);
        table.entries[at].md = Some(md);
        let mut taken = Vec::new();
        for message in std::mem::take(&mut self.held) {
            let look = self.find(me).map(|(partition, at)| self.try_entry(partition, at, &message));
            match look {
                Some(Look::Taken(found)) => taken.push(found),
                Some(Look::TooLong) => {}
                Some(Look::Nothing) | None => self.held.push(message),
            }
        }
        taken
    }

    /// A message arrives.
    pub(crate) fn arrive(&mut self, message: &Message) -> Option<Taken> {
        let waits = self.rules.lazy && message.op == MdOptions::OP_PUT;
        if self.decided {
            let steals = self.rules.stealing == Stealing::All || waits;
            let first = self.first_partition(message);
            for partition in (first..PARTITIONS).chain(0..first) {
                if !self.tables[partition].active {
                    continue;
                }
                match self.look(partition, message) {
                    Look::Taken(taken) => return Some(taken),
                    Look::TooLong => return None,
                    Look::Nothing if steals => {}
                    Look::Nothing => break,
                }
            }
        }
        if waits {
            (0..PARTITIONS).for_each(|partition| self.rest(partition));
            self.held.push(*message);
        }
        None
    }

    fn first_partition(&mut self, message: &Message) -> usize {
        if self.rules.unique || PARTITIONS == 1 {
            return 0;
        }
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

    fn look(&mut self, partition: usize, message: &Message) -> Look {
        let masked = |entry: &ModelEntry| entry.spec.ignore_bits.0 != 0;
        let entries = &self.tables[partition].entries;
        let mut order: Vec<usize> = (0..entries.len()).collect();
        if self.rules.order == MatchOrder::IgnoreBitsFirst {
            // Stable: list order within each half.
            order.sort_by_key(|&at| !masked(&entries[at]));
        }
        for at in order {
            match self.try_entry(partition, at, message) {
                Look::Nothing => {}
                found => return found,
            }
        }
        self.rest(partition);
        Look::Nothing
    }

    /// Nothing was found there: if there has been no buffer for long, it is not looked at any more (S-309).
    fn rest(&mut self, partition: usize) {
        let table = &mut self.tables[partition];
        let empty = table.entries.iter().all(|entry| entry.md.is_none());
        if empty && !self.rules.unique && self.now_ns - table.posted_ns >= REST_NS {
            table.active = false;
        }
    }

    fn try_entry(&mut self, partition: usize, at: usize, message: &Message) -> Look {
        let entry = &mut self.tables[partition].entries[at];
        if !wants(entry, message) {
            return Look::Nothing;
        }
        let Some(md) = &mut entry.md else { return Look::Nothing };
        let Some((offset, mlength)) = place(md, message) else { return Look::TooLong };
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

/// Offset and length of what is taken; `None` if there is no room.
fn place(md: &ModelMd, message: &Message) -> Option<(u64, u32)> {
    let remote = md.options.contains(MdOptions::MANAGE_REMOTE);
    let offset = if remote { u64::from(message.offset) } else { md.offset };
    let allowed = u64::from(md.max_size.unwrap_or(u32::MAX)).min(md.length.checked_sub(offset)?) as u32;
    if message.length > allowed && !md.options.contains(MdOptions::TRUNCATE) {
        return None;
    }
    Some((offset, message.length.min(allowed)))
}
