//! Match entries, and the messages that wait for one.

use super::{Audit, AuditError, Tables, chained, check, equal, walk};
use crate::groups::{GROUP, Grouped};
use crate::message::Way;
use crate::portal::{Entry, Kind};
use crate::portal_state::{DELAYED, Delayed};
use crate::resources::Resources;
use crate::sequence::SEQUENCE;
use crate::slab::{NONE, some};

/// What a portal has in one partition.
#[derive(Default, Clone, Copy)]
struct Count {
    entries: usize,
    attached: usize,
}

impl Tables<'_> {
    pub(super) fn audit_entries(&self, partition: usize) -> Audit {
        let part = self.posted[partition];
        let handles = &self.engine.common.handles;
        let mut counts = vec![Count::default(); part.tables.len()];
        for index in part.objects.indices() {
            let Some(entry) = part.objects.entry_at(index) else { continue };
            let place = text!("ME {index} of partition {partition}");
            let count = &mut counts[entry.portal.index()];
            count.entries += 1;
            count.attached += usize::from(entry.md != NONE);
            let kind = Kind::of(&entry.match_id, entry.ignore_bits);
            let portals = self.engine.portals[entry.portal.index()].kind();
            equal("an entry is of its portal's kind", place, Some(kind), portals)?;
            let key = part.objects.key(index);
            let named = handles.open_me(handles.me(partition, key));
            equal("the handle of an entry names it", place, named, Some((partition, key)))?;
            check("the handle of an entry names it", part.objects.entry(key).is_some(), place)?;
            if entry.md != NONE {
                let me = part.objects.md_at(entry.md).map(|md| md.me);
                equal("an MD and its entry name each other", place, me, Some(index))?;
            }
        }
        for (portal, count) in counts.into_iter().enumerate() {
            self.audit_table(partition, portal, count)?;
        }
        Ok(())
    }

    fn audit_table(&self, partition: usize, portal: usize, count: Count) -> Audit {
        let (part, state) = (self.posted[partition], &self.engine.portals[portal]);
        let table = &part.tables[portal];
        let place = text!("portal {portal} in partition {partition}");
        let bare = table.attached == 0
            && table.sequence.list.is_empty()
            && table.masked.is_empty()
            && table.exact.index.heads().all(|head| head == NONE);
        if bare && count.entries == 0 {
            return Ok(());
        }
        equal("entries with an MD are counted", place, table.attached, count.attached)?;
        let active = count.attached == 0 || state.is_active(partition);
        check("a partition with buffers is active", active, place)?;
        let mut found = 0;
        let sequence = &table.sequence.list;
        let mut last = None;
        let listed = walk::<SEQUENCE, Entry>(
            format_args!("the list of {place}"),
            (sequence.head(), sequence.tail()),
            |index| part.objects.entry_at(index),
            |index, entry| {
                let before = last.replace(entry.rank());
                let here = text!("ME {index} of {place}: rank {} after {before:?}", entry.rank());
                check("ranks ascend", before.is_none_or(|before| before < entry.rank()), here)?;
                check("a portal's list has its own entries", entry.portal.index() == portal, here)
            },
        )?;
        let ordered = if state.kind() == Some(Kind::Wildcard) { count.entries } else { 0 };
        equal("a wildcard portal's entries are in its list", place, listed, ordered)?;
        let masked = (table.masked.head(), table.masked.tail());
        found += self.audit_group(part, portal, masked, |entry| entry.is_masked())?;
        let at = |index| part.objects.entry_at(index);
        for (first, entry) in chained(place, &table.exact.index, count.entries, at)? {
            let here = text!("ME {first} of {place}");
            let kind = Kind::of(&entry.match_id, entry.ignore_bits);
            let hasher = &self.engine.common.hasher;
            let reached = table.first_exact(&part.objects, hasher, kind, entry.match_id, entry.match_bits);
            equal("an entry is found by its key", here, reached, first)?;
            let ends = (Some(first), some(entry.last()));
            let belongs = |other: &Entry| !other.is_masked() && other.same_key(entry);
            found += self.audit_group(part, portal, ends, belongs)?;
        }
        equal("a portal's entries are each found once", place, found, count.entries)
    }

    /// Entries that a message tries one after the other; gives how many they are.
    fn audit_group(
        &self,
        part: &Resources,
        portal: usize,
        ends: super::Ends,
        belongs: impl Fn(&Entry) -> bool,
    ) -> Result<usize, AuditError> {
        let ordered = self.engine.portals[portal].kind() == Some(Kind::Wildcard);
        let mut last = None;
        walk::<GROUP, Entry>(
            format_args!("entries {ends:?} of portal {portal} in {:?}", part.place),
            ends,
            |index| part.objects.entry_at(index),
            |index, entry| {
                let found = text!("ME {index} of portal {portal} in {:?}", part.place);
                let own = entry.portal.index() == portal && belongs(entry);
                check("entries of one key are in one group", own, found)?;
                let before = last.replace(entry.rank());
                let ascends = !ordered || before.is_none_or(|before| before < entry.rank());
                check("a group is in the order of its portal's list", ascends, found)
            },
        )
    }

    pub(super) fn audit_blocked(&self, portal: usize) -> Audit {
        let (state, blocked) = (&self.engine.portals[portal], self.blocked[portal]);
        let place = text!("portal {portal}");
        let held = blocked.delayed.len();
        let listed = walk::<DELAYED, Delayed>(
            format_args!("the queue of {place}"),
            (blocked.order.head(), blocked.order.tail()),
            |index| blocked.delayed.at(index),
            |index, delayed| {
                let alive = match delayed.inbound.back {
                    Way::Here => true,
                    Way::Over { ni, .. } => self.shared.exists(ni),
                };
                check("a message waits as long as its NI exists", alive, format_args!("{index} on {place}"))
            },
        )?;
        equal("a message that waits is in its portal's queue", place, listed, held)?;
        equal("those that wait have announced themselves", place, state.waiting(), held)?;
        let lazy = held == 0 || state.is_lazy();
        check("messages wait on lazy portals alone", lazy, format_args!("{place}: {held}"))
    }
}
