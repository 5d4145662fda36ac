//! Checks that MDs, match entries, event queues and expected answers agree with each other.

use std::collections::HashMap;

use lnet_api::TxToken;

use super::entry::{MatchEntry, PortalKind};
use super::md::{BY_MD, MdState};
use super::response::{BY_DEADLINE, Response};
use super::{Bound, MdTable, Posted};
use crate::audit::{Audit, AuditError, ListEnds, chained, check, equal, text, walk};
use crate::buckets::Hashed;
use crate::groups::{GROUP, Grouped};
use crate::names::{MdLocation, MdName};
use crate::placement::{EntryCounts, EntryPlacement};
use crate::sequence::SEQUENCE;
use crate::slab::{Key, NONE, some};

/// Number of messages that use each MD. The key: whether the MD is bound, its partition, its index.
#[derive(Default)]
pub(crate) struct Uses(HashMap<(bool, usize, u32), u32>);

impl Uses {
    /// Counts a message that uses an MD.
    pub(crate) fn add(&mut self, location: MdLocation, index: u32) {
        *self.0.entry((location.bound, location.partition, index)).or_default() += 1;
    }

    fn of(&self, location: MdLocation, index: u32) -> u32 {
        self.0.get(&(location.bound, location.partition, index)).copied().unwrap_or(0)
    }
}

impl MdTable {
    /// Returns whether there is such an MD.
    pub(crate) fn has(&self, md: Key) -> bool {
        self.objects.named_md(md).is_some()
    }

    /// Counts the MDs of messages that are being received, all of which must exist.
    pub(crate) fn add_uses(&self, uses: &mut Uses) -> Audit {
        for index in self.receiving.indices() {
            let md = self.receiving[index].md;
            if md != NONE {
                let found = text!("received message {index} of {:?} has MD {md}", self.location);
                check("a message's MD exists", self.objects.md_at(md).is_some(), found)?;
                uses.add(self.location, md);
            }
        }
        Ok(())
    }

    /// Checks the invariants of all MDs. `sent` returns the MD of a message in flight, and `waits`
    /// the number of responses for which an MD waits.
    fn audit(
        &self,
        uses: &Uses,
        sent: impl Fn(TxToken) -> Option<Option<MdName>>,
        mut waits: impl FnMut(u32, &MdState) -> Result<usize, AuditError>,
    ) -> Audit {
        let mut users: HashMap<u32, usize> = HashMap::new();
        let (mut entries, mut mds) = (0, 0);
        for index in self.objects.indices() {
            entries += usize::from(self.objects.entry_at(index).is_some());
            if let Some(md) = self.objects.md_at(index) {
                mds += 1;
                *users.entry(md.eq).or_default() += usize::from(md.eq != NONE);
                self.audit_md(index, uses, &sent)?;
                let idle = waits(index, md)? == 0;
                let at = text!("MD {index} of {:?}", self.location);
                check("a dead MD waits for nothing", !md.dead || idle, at)?;
            }
        }
        let location = text!("{:?}", self.location);
        equal("entries and MDs are counted", location, self.objects.counts(), (entries, mds))?;
        users.remove(&NONE);
        for (key, count) in self.queues.iter() {
            let location = text!("queue {} in {:?}", key.index, self.location);
            check("a queue that MDs use exists", self.common.queues.find(key).is_some(), location)?;
            let named = self.common.handles.decode_eq(self.common.handles.eq(key));
            equal("the handle of a queue names it", location, named, Some(key))?;
            let is = users.remove(&key.index).unwrap_or(0);
            equal("the users of a queue are its MDs", location, count, is)?;
        }
        check("an MD's queue is known", users.is_empty(), format_args!("{location}: {users:?}"))
    }

    fn audit_md(&self, index: u32, uses: &Uses, sent: impl Fn(TxToken) -> Option<Option<MdName>>) -> Audit {
        let (md, location) = (self.objects.md(index), self.location);
        let at = text!("MD {index} of {location:?}");
        equal("an MD is as busy as messages use it", at, md.busy, uses.of(location, index))?;
        equal("a bound MD is in the table of bound ones", at, md.bound, location.bound)?;
        let key = self.objects.key(index);
        let handles = &self.common.handles;
        let named = handles.decode_md(handles.md(location, key));
        equal("the handle of an MD names it", at, named, Some((location, key)))?;
        check("the handle of an MD names it", self.objects.named_md(key).is_some(), at)?;
        if md.me != NONE {
            let entry = self.objects.entry_at(md.me).map(|entry| entry.md);
            equal("an MD and its entry name each other", at, entry, Some(index))?;
        }
        let attached = md.me != NONE;
        equal("an attached MD has an entry until it is dead", at, attached, !md.bound && !md.dead)?;
        check("a dead MD is busy", !md.dead || md.busy > 0, at)?;
        let outgoing = md.outgoing.and_then(sent);
        let own = outgoing.is_none_or(|md| md == Some(MdName { location, key }));
        check("the message that an MD remembers is its own, or over", own, at)
    }
}

impl Bound {
    /// Returns the MD of an expected response.
    pub(crate) fn response_md(&self, response: Key) -> Option<u32> {
        self.responses.get(response).map(|response| response.md)
    }

    /// Checks that the bound MDs and the responses for which they wait agree; `exists` is whether
    /// an NI exists.
    pub(crate) fn audit(
        &self,
        uses: &Uses,
        sent: impl Fn(TxToken) -> Option<Option<MdName>>,
        exists: impl Fn(Key) -> bool,
    ) -> Audit {
        let location = self.mds.location;
        let mut listed = 0;
        let rule = "a response is in its MD's list";
        self.mds.audit(uses, sent, |index, md| {
            let waits = walk::<BY_MD, Response>(
                text!("MD {index} of {location:?}"),
                (md.responses.head(), md.responses.tail()),
                |index| self.responses.at(index),
                |response, is| equal(rule, text!("response {response} of {location:?}"), is.md, index),
            )?;
            listed += waits;
            Ok(waits)
        })?;
        equal(rule, text!("{location:?}"), listed, self.responses.len())?;
        self.audit_deadlines()?;
        self.audit_debtors(exists)
    }

    fn audit_deadlines(&self) -> Audit {
        let location = self.mds.location;
        let at = text!("the deadlines of {location:?}");
        let ends = (self.deadlines.head(), self.deadlines.tail());
        let mut earlier = 0;
        let listed = walk::<BY_DEADLINE, Response>(
            at,
            ends,
            |index| self.responses.at(index),
            |index, response| {
                let found = text!("response {index} of {location:?}: {:?}", response.deadline_ns);
                check("deadlines ascend", response.deadline_ns.is_some_and(|own| own >= earlier), found)?;
                earlier = response.deadline_ns.unwrap_or(0);
                Ok(())
            },
        )?;
        let with = |index: &u32| self.responses[*index].deadline_ns.is_some();
        let all = self.responses.indices().filter(with).count();
        equal("a response with a deadline is in the list of deadlines", at, listed, all)?;
        let head = self.deadlines.head().and_then(|head| self.responses[head].deadline_ns);
        let hint = self.mds.common.deadline_ns(location.partition);
        let found = text!("{at}: {hint} is later than {head:?}");
        check("the hint is no later than the earliest deadline", head.is_none_or(|head| hint <= head), found)
    }

    fn audit_debtors(&self, exists: impl Fn(Key) -> bool) -> Audit {
        let location = self.mds.location;
        let at = |index| self.responses.at(index);
        let rule = "a response is in its debtor's group";
        let mut grouped = 0;
        let most = self.responses.len();
        let place_of_all = text!("the debtors of {location:?}");
        for (first, response) in chained(place_of_all, &self.by_debtor.index, most, at)? {
            let here = text!("response {first} of {location:?}");
            let known = response.debtor.is_some_and(|debtor| exists(debtor.ni));
            check("a debtor's NI exists", known, here)?;
            let same = |other: &Response| other.same_key(response);
            let reached = self.by_debtor.first(&self.responses, response.hash(), same);
            equal(rule, here, reached, first)?;
            let ends = (Some(first), some(response.last()));
            grouped += walk::<GROUP, Response>(here, ends, at, |index, other| {
                check(rule, same(other), format_args!("response {index} of {location:?}"))
            })?;
        }
        let owed = self.responses.indices().filter(|&index| self.responses[index].debtor.is_some()).count();
        equal(rule, format_args!("{location:?}"), grouped, owed)
    }
}

/// Counts of a portal's entries in one partition.
#[derive(Default, Clone, Copy)]
struct Count {
    entries: usize,
    attached: usize,
    placed: EntryCounts,
}

impl Posted {
    /// Checks that the attached MDs, their match entries and the portals of these agree.
    pub(crate) fn audit(&self, uses: &Uses, sent: impl Fn(TxToken) -> Option<Option<MdName>>) -> Audit {
        self.mds.audit(uses, sent, |_, _| Ok(0))?;
        let (objects, partition) = (&self.mds.objects, self.mds.location.partition);
        let handles = &self.mds.common.handles;
        let mut counts = vec![Count::default(); self.tables.len()];
        for index in objects.indices() {
            let Some(entry) = objects.entry_at(index) else { continue };
            let location = text!("ME {index} of partition {partition}");
            let count = &mut counts[entry.portal.index()];
            count.entries += 1;
            count.attached += usize::from(entry.md != NONE);
            count.placed.add(entry.placement, entry.is_masked());
            let kind = PortalKind::of(&entry.match_id, entry.ignore_bits);
            let should = self.placement_of(entry, kind);
            equal("an entry is where messages look for it", location, entry.placement, should)?;
            let kind_of_portal = self.portals[entry.portal.index()].kind();
            equal("an entry is of its portal's kind", location, Some(kind), kind_of_portal)?;
            let key = objects.key(index);
            let named = handles.decode_me(handles.me(partition, key));
            equal("the handle of an entry names it", location, named, Some((partition, key)))?;
            check("the handle of an entry names it", objects.entry(key).is_some(), location)?;
            if entry.md != NONE {
                let me = objects.md_at(entry.md).map(|md| md.me);
                equal("an MD and its entry name each other", location, me, Some(index))?;
            }
        }
        for (portal, count) in counts.into_iter().enumerate() {
            self.audit_table(portal, count)?;
        }
        Ok(())
    }

    /// Returns the placement of an entry, computed from the entry itself.
    fn placement_of(&self, entry: &MatchEntry, kind: PortalKind) -> EntryPlacement {
        let (partition, partitions) = (self.mds.location.partition, self.mds.common.partitions());
        let bits = (!entry.is_masked()).then_some(entry.match_bits);
        match (kind, entry.placement) {
            (PortalKind::Wildcard, EntryPlacement::Local) if partitions > 1 => EntryPlacement::Local,
            (PortalKind::Wildcard, _) if partitions > 1 => {
                EntryPlacement::of(entry.portal.index(), bits, partition, partitions)
            }
            _ => EntryPlacement::Home,
        }
    }

    /// Returns the state of a portal's entries that this partition has published.
    pub(crate) fn published(&self, portal: usize) -> u64 {
        self.tables[portal].placed.published()
    }

    /// Returns the portal and the turn of each entry that has a turn.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (usize, i64)> {
        let entries = self.mds.objects.indices().filter_map(|index| self.mds.objects.entry_at(index));
        entries.filter(|entry| entry.turn != 0).map(|entry| (entry.portal.index(), entry.turn))
    }

    fn audit_table(&self, portal: usize, count: Count) -> Audit {
        let (objects, partition) = (&self.mds.objects, self.mds.location.partition);
        let state = &self.portals[portal];
        let table = &self.tables[portal];
        let location = text!("portal {portal} in partition {partition}");
        let bare = table.attached == 0
            && table.sequence.list.is_empty()
            && table.masked.is_empty()
            && table.exact.index.heads().all(|head| head == NONE);
        if bare && count.entries == 0 {
            return Ok(());
        }
        equal("entries with an MD are counted", location, table.attached, count.attached)?;
        table.placed.audit(location, count.placed)?;
        let active = count.attached == 0 || state.is_active(partition);
        check("a partition with buffers is active", active, location)?;
        let mut found = 0;
        let sequence = &table.sequence.list;
        let (mut last, mut turn) = (None, i64::MIN);
        let listed = walk::<SEQUENCE, MatchEntry>(
            format_args!("the list of {location}"),
            (sequence.head(), sequence.tail()),
            |index| objects.entry_at(index),
            |index, entry| {
                let before = last.replace(entry.rank());
                let here = text!("ME {index} of {location}: rank {} after {before:?}", entry.rank());
                check("ranks ascend", before.is_none_or(|before| before < entry.rank()), here)?;
                let before = std::mem::replace(&mut turn, entry.turn);
                let here = text!("ME {index} of {location}: turn {turn} after {before}");
                check("turns do not descend", before <= entry.turn, here)?;
                check("a portal's list has its own entries", entry.portal.index() == portal, here)
            },
        )?;
        let ordered = state.kind() == Some(PortalKind::Wildcard);
        let in_order = if ordered { count.entries } else { 0 };
        equal("a wildcard portal's entries are in its list", location, listed, in_order)?;
        let masked = (table.masked.head(), table.masked.tail());
        found += self.audit_group((portal, ordered), masked, |entry| entry.is_masked())?;
        let at = |index| objects.entry_at(index);
        for (first, entry) in chained(location, &table.exact.index, count.entries, at)? {
            let here = text!("ME {first} of {location}");
            let kind = PortalKind::of(&entry.match_id, entry.ignore_bits);
            let reached =
                table.first_exact(objects, &self.mds.common.hasher, kind, entry.match_id, entry.match_bits);
            equal("an entry is found by its key", here, reached, first)?;
            let ends = (Some(first), some(entry.last()));
            let belongs = |other: &MatchEntry| !other.is_masked() && other.same_key(entry);
            found += self.audit_group((portal, ordered), ends, belongs)?;
        }
        equal("a portal's entries are each found once", location, found, count.entries)
    }

    /// Checks the entries that a message tries one after the other; returns their number.
    fn audit_group(
        &self,
        (portal, ordered): (usize, bool),
        ends: ListEnds,
        belongs: impl Fn(&MatchEntry) -> bool,
    ) -> Result<usize, AuditError> {
        let (objects, location) = (&self.mds.objects, self.mds.location);
        let mut last = None;
        walk::<GROUP, MatchEntry>(
            format_args!("entries {ends:?} of portal {portal} in {location:?}"),
            ends,
            |index| objects.entry_at(index),
            |index, entry| {
                let found = text!("ME {index} of portal {portal} in {location:?}");
                let own = entry.portal.index() == portal && belongs(entry);
                check("entries of one key are in one group", own, found)?;
                let before = last.replace(entry.rank());
                let ascends = !ordered || before.is_none_or(|before| before < entry.rank());
                check("a group is in the order of its portal's list", ascends, found)
            },
        )
    }
}
