//! Checks that MDs, match entries, event queues and expected answers agree with each other.

use std::collections::HashMap;

use lnet_api::TxToken;

use super::entry::{Entry, Kind};
use super::md::{BY_MD, Descriptor};
use super::response::{BY_DEADLINE, Response};
use super::{Bound, MdTable, Posted};
use crate::audit::{Audit, AuditError, Ends, chained, check, equal, text, walk};
use crate::buckets::Hashed;
use crate::groups::{GROUP, Grouped};
use crate::names::{MdName, Place};
use crate::placement::{EntryCounts, Placement};
use crate::sequence::SEQUENCE;
use crate::slab::{Key, NONE, some};

/// Number of messages that use each MD. The key is whether it is bound, its partition, its index.
#[derive(Default)]
pub(crate) struct Uses(HashMap<(bool, usize, u32), u32>);

impl Uses {
    /// Counts a message that uses an MD.
    pub(crate) fn add(&mut self, place: Place, index: u32) {
        *self.0.entry((place.bound, place.partition, index)).or_default() += 1;
    }

    fn of(&self, place: Place, index: u32) -> u32 {
        self.0.get(&(place.bound, place.partition, index)).copied().unwrap_or(0)
    }
}

impl MdTable {
    /// Whether there is such an MD.
    pub(crate) fn has(&self, md: Key) -> bool {
        self.objects.named_md(md).is_some()
    }

    /// Counts the MDs of messages that are being received, all of which must exist.
    pub(crate) fn add_uses(&self, uses: &mut Uses) -> Audit {
        for index in self.receiving.indices() {
            let md = self.receiving[index].md;
            if md != NONE {
                let found = text!("received message {index} of {:?} has MD {md}", self.place);
                check("a message's MD exists", self.objects.md_at(md).is_some(), found)?;
                uses.add(self.place, md);
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
        mut waits: impl FnMut(u32, &Descriptor) -> Result<usize, AuditError>,
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
                let at = text!("MD {index} of {:?}", self.place);
                check("a dead MD waits for nothing", !md.dead || idle, at)?;
            }
        }
        let place = text!("{:?}", self.place);
        equal("entries and MDs are counted", place, self.objects.counts(), (entries, mds))?;
        users.remove(&NONE);
        for (key, count) in self.queues.iter() {
            let place = text!("queue {} in {:?}", key.index, self.place);
            check("a queue that MDs use exists", self.common.queues.find(key).is_some(), place)?;
            let named = self.common.handles.open_eq(self.common.handles.eq(key));
            equal("the handle of a queue names it", place, named, Some(key))?;
            let is = users.remove(&key.index).unwrap_or(0);
            equal("the users of a queue are its MDs", place, count, is)?;
        }
        check("an MD's queue is known", users.is_empty(), format_args!("{place}: {users:?}"))
    }

    fn audit_md(&self, index: u32, uses: &Uses, sent: impl Fn(TxToken) -> Option<Option<MdName>>) -> Audit {
        let (md, place) = (self.objects.md(index), self.place);
        let at = text!("MD {index} of {place:?}");
        equal("an MD is as busy as messages use it", at, md.busy, uses.of(place, index))?;
        equal("a bound MD is in the table of bound ones", at, md.bound, place.bound)?;
        let key = self.objects.key(index);
        let handles = &self.common.handles;
        let named = handles.open_md(handles.md(place, key));
        equal("the handle of an MD names it", at, named, Some((place, key)))?;
        check("the handle of an MD names it", self.objects.named_md(key).is_some(), at)?;
        if md.me != NONE {
            let entry = self.objects.entry_at(md.me).map(|entry| entry.md);
            equal("an MD and its entry name each other", at, entry, Some(index))?;
        }
        let attached = md.me != NONE;
        equal("an attached MD has an entry until it is dead", at, attached, !md.bound && !md.dead)?;
        check("a dead MD is busy", !md.dead || md.busy > 0, at)?;
        let outgoing = md.outgoing.and_then(sent);
        let own = outgoing.is_none_or(|md| md == Some(MdName { place, key }));
        check("the message that an MD remembers is its own, or over", own, at)
    }
}

impl Bound {
    /// Returns the MD of an expected response.
    pub(crate) fn response_md(&self, response: Key) -> Option<u32> {
        self.responses.get(response).map(|response| response.md)
    }

    /// Checks that its MDs and the responses for which they wait agree; `exists` is whether an NI
    /// exists.
    pub(crate) fn audit(
        &self,
        uses: &Uses,
        sent: impl Fn(TxToken) -> Option<Option<MdName>>,
        exists: impl Fn(Key) -> bool,
    ) -> Audit {
        let place = self.mds.place;
        let mut listed = 0;
        let rule = "a response is in its MD's list";
        self.mds.audit(uses, sent, |index, md| {
            let waits = walk::<BY_MD, Response>(
                text!("MD {index} of {place:?}"),
                (md.responses.head(), md.responses.tail()),
                |index| self.responses.at(index),
                |response, is| equal(rule, text!("response {response} of {place:?}"), is.md, index),
            )?;
            listed += waits;
            Ok(waits)
        })?;
        equal(rule, text!("{place:?}"), listed, self.responses.len())?;
        self.audit_deadlines()?;
        self.audit_debtors(exists)
    }

    fn audit_deadlines(&self) -> Audit {
        let place = self.mds.place;
        let at = text!("the deadlines of {place:?}");
        let ends = (self.deadlines.head(), self.deadlines.tail());
        let mut earlier = 0;
        let listed = walk::<BY_DEADLINE, Response>(
            at,
            ends,
            |index| self.responses.at(index),
            |index, response| {
                let found = text!("response {index} of {place:?}: {:?}", response.deadline_ns);
                check("deadlines ascend", response.deadline_ns.is_some_and(|own| own >= earlier), found)?;
                earlier = response.deadline_ns.unwrap_or(0);
                Ok(())
            },
        )?;
        let with = |index: &u32| self.responses[*index].deadline_ns.is_some();
        let all = self.responses.indices().filter(with).count();
        equal("a response with a deadline is in the list of deadlines", at, listed, all)?;
        let head = self.deadlines.head().and_then(|head| self.responses[head].deadline_ns);
        let hint = self.mds.common.deadline_ns(place.partition);
        let found = text!("{at}: {hint} is later than {head:?}");
        check("the hint is no later than the earliest deadline", head.is_none_or(|head| hint <= head), found)
    }

    fn audit_debtors(&self, exists: impl Fn(Key) -> bool) -> Audit {
        let place = self.mds.place;
        let at = |index| self.responses.at(index);
        let rule = "a response is in its debtor's group";
        let mut grouped = 0;
        let most = self.responses.len();
        let place_of_all = text!("the debtors of {place:?}");
        for (first, response) in chained(place_of_all, &self.by_debtor.index, most, at)? {
            let here = text!("response {first} of {place:?}");
            let known = response.debtor.is_some_and(|debtor| exists(debtor.ni));
            check("a debtor's NI exists", known, here)?;
            let same = |other: &Response| other.same_key(response);
            let reached = self.by_debtor.first(&self.responses, response.hash(), same);
            equal(rule, here, reached, first)?;
            let ends = (Some(first), some(response.last()));
            grouped += walk::<GROUP, Response>(here, ends, at, |index, other| {
                check(rule, same(other), format_args!("response {index} of {place:?}"))
            })?;
        }
        let owed = self.responses.indices().filter(|&index| self.responses[index].debtor.is_some()).count();
        equal(rule, format_args!("{place:?}"), grouped, owed)
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
    /// Checks that its MDs, match entries and the portals of these agree.
    pub(crate) fn audit(&self, uses: &Uses, sent: impl Fn(TxToken) -> Option<Option<MdName>>) -> Audit {
        self.mds.audit(uses, sent, |_, _| Ok(0))?;
        let (objects, partition) = (&self.mds.objects, self.mds.place.partition);
        let handles = &self.mds.common.handles;
        let mut counts = vec![Count::default(); self.tables.len()];
        for index in objects.indices() {
            let Some(entry) = objects.entry_at(index) else { continue };
            let place = text!("ME {index} of partition {partition}");
            let count = &mut counts[entry.portal.index()];
            count.entries += 1;
            count.attached += usize::from(entry.md != NONE);
            count.placed.add(entry.placement, entry.is_masked());
            let kind = Kind::of(&entry.match_id, entry.ignore_bits);
            let should = self.placement_of(entry, kind);
            equal("an entry is where messages look for it", place, entry.placement, should)?;
            let kind_of_portal = self.portals[entry.portal.index()].kind();
            equal("an entry is of its portal's kind", place, Some(kind), kind_of_portal)?;
            let key = objects.key(index);
            let named = handles.open_me(handles.me(partition, key));
            equal("the handle of an entry names it", place, named, Some((partition, key)))?;
            check("the handle of an entry names it", objects.entry(key).is_some(), place)?;
            if entry.md != NONE {
                let me = objects.md_at(entry.md).map(|md| md.me);
                equal("an MD and its entry name each other", place, me, Some(index))?;
            }
        }
        for (portal, count) in counts.into_iter().enumerate() {
            self.audit_table(portal, count)?;
        }
        Ok(())
    }

    /// Returns how lookups must find an entry.
    fn placement_of(&self, entry: &Entry, kind: Kind) -> Placement {
        let (partition, partitions) = (self.mds.place.partition, self.mds.common.partitions());
        let bits = (!entry.is_masked()).then_some(entry.match_bits);
        match (kind, entry.placement) {
            (Kind::Wildcard, Placement::Local) if partitions > 1 => Placement::Local,
            (Kind::Wildcard, _) if partitions > 1 => {
                Placement::of(entry.portal.index(), bits, partition, partitions)
            }
            _ => Placement::Home,
        }
    }

    /// Returns the state of a portal's entries that this partition has published.
    pub(crate) fn published(&self, portal: usize) -> u64 {
        self.tables[portal].placed.published()
    }

    /// Returns the portals and turns of entries that have one.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (usize, i64)> {
        let entries = self.mds.objects.indices().filter_map(|index| self.mds.objects.entry_at(index));
        entries.filter(|entry| entry.turn != 0).map(|entry| (entry.portal.index(), entry.turn))
    }

    fn audit_table(&self, portal: usize, count: Count) -> Audit {
        let (objects, partition) = (&self.mds.objects, self.mds.place.partition);
        let state = &self.portals[portal];
        let table = &self.tables[portal];
        let place = text!("portal {portal} in partition {partition}");
        let bare = table.attached == 0
            && table.sequence.list.is_empty()
            && table.masked.is_empty()
            && table.exact.index.heads().all(|head| head == NONE);
        if bare && count.entries == 0 {
            return Ok(());
        }
        equal("entries with an MD are counted", place, table.attached, count.attached)?;
        table.placed.audit(place, count.placed)?;
        let active = count.attached == 0 || state.is_active(partition);
        check("a partition with buffers is active", active, place)?;
        let mut found = 0;
        let sequence = &table.sequence.list;
        let (mut last, mut turn) = (None, i64::MIN);
        let listed = walk::<SEQUENCE, Entry>(
            format_args!("the list of {place}"),
            (sequence.head(), sequence.tail()),
            |index| objects.entry_at(index),
            |index, entry| {
                let before = last.replace(entry.rank());
                let here = text!("ME {index} of {place}: rank {} after {before:?}", entry.rank());
                check("ranks ascend", before.is_none_or(|before| before < entry.rank()), here)?;
                let before = std::mem::replace(&mut turn, entry.turn);
                let here = text!("ME {index} of {place}: turn {turn} after {before}");
                check("turns do not descend", before <= entry.turn, here)?;
                check("a portal's list has its own entries", entry.portal.index() == portal, here)
            },
        )?;
        let ordered = state.kind() == Some(Kind::Wildcard);
        let in_order = if ordered { count.entries } else { 0 };
        equal("a wildcard portal's entries are in its list", place, listed, in_order)?;
        let masked = (table.masked.head(), table.masked.tail());
        found += self.audit_group((portal, ordered), masked, |entry| entry.is_masked())?;
        let at = |index| objects.entry_at(index);
        for (first, entry) in chained(place, &table.exact.index, count.entries, at)? {
            let here = text!("ME {first} of {place}");
            let kind = Kind::of(&entry.match_id, entry.ignore_bits);
            let reached =
                table.first_exact(objects, &self.mds.common.hasher, kind, entry.match_id, entry.match_bits);
            equal("an entry is found by its key", here, reached, first)?;
            let ends = (Some(first), some(entry.last()));
            let belongs = |other: &Entry| !other.is_masked() && other.same_key(entry);
            found += self.audit_group((portal, ordered), ends, belongs)?;
        }
        equal("a portal's entries are each found once", place, found, count.entries)
    }

    /// Checks the entries that a message tries one after the other; returns their number.
    fn audit_group(
        &self,
        (portal, ordered): (usize, bool),
        ends: Ends,
        belongs: impl Fn(&Entry) -> bool,
    ) -> Result<usize, AuditError> {
        let (objects, place) = (&self.mds.objects, self.mds.place);
        let mut last = None;
        walk::<GROUP, Entry>(
            format_args!("entries {ends:?} of portal {portal} in {place:?}"),
            ends,
            |index| objects.entry_at(index),
            |index, entry| {
                let found = text!("ME {index} of portal {portal} in {place:?}");
                let own = entry.portal.index() == portal && belongs(entry);
                check("entries of one key are in one group", own, found)?;
                let before = last.replace(entry.rank());
                let ascends = !ordered || before.is_none_or(|before| before < entry.rank());
                check("a group is in the order of its portal's list", ascends, found)
            },
        )
    }
}
