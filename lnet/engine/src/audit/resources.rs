//! MDs, the answers they wait for, the event queues they use.

use std::collections::HashMap;

use super::{Audit, Tables, Uses, chained, check, equal, walk};
use crate::buckets::Hashed;
use crate::groups::{GROUP, Grouped};
use crate::names::{MdName, unpack};
use crate::resources::Resources;
use crate::response::{BY_DEADLINE, BY_MD, Response};
use crate::slab::{NONE, some};

impl Tables<'_> {
    pub(super) fn audit_resources(&self, part: &Resources, uses: &Uses) -> Audit {
        let mut users: HashMap<u32, usize> = HashMap::new();
        let (mut entries, mut mds, mut responses) = (0, 0, 0);
        for index in part.objects.indices() {
            entries += usize::from(part.objects.entry_at(index).is_some());
            if let Some(md) = part.objects.md_at(index) {
                mds += 1;
                *users.entry(md.eq).or_default() += usize::from(md.eq != NONE);
                responses += self.audit_md(part, index, uses)?;
            }
        }
        let place = text!("{:?}", part.place);
        equal("entries and MDs are counted", place, part.objects.counts(), (entries, mds))?;
        equal("a response is in its MD's list", place, responses, part.responses.len())?;
        users.remove(&NONE);
        for (key, count) in part.queues.iter() {
            let place = text!("queue {} in {:?}", key.index, part.place);
            check("a queue that MDs use exists", self.engine.common.queues.find(key).is_some(), place)?;
            let handle = self.engine.common.handles.eq(key);
            let named = self.engine.common.handles.open_eq(handle);
            equal("the handle of a queue names it", place, named, Some(key))?;
            let is = users.remove(&key.index).unwrap_or(0);
            equal("the users of a queue are its MDs", place, count, is)?;
        }
        check("an MD's queue is known", users.is_empty(), format_args!("{place}: {users:?}"))?;
        self.audit_deadlines(part)?;
        audit_debtors(part, self)
    }

    /// Gives how many responses it waits for.
    fn audit_md(&self, part: &Resources, index: u32, uses: &Uses) -> Result<usize, super::AuditError> {
        let (md, place) = (part.objects.md(index), part.place);
        let at = text!("MD {index} of {place:?}");
        let used = uses.get(&(place.bound, place.partition, index)).copied().unwrap_or(0);
        equal("an MD is as busy as messages use it", at, md.busy, used)?;
        equal("a bound MD is in the table of bound ones", at, md.bound, place.bound)?;
        let key = part.objects.key(index);
        let handles = &self.engine.common.handles;
        let named = handles.open_md(handles.md(place, key));
        equal("the handle of an MD names it", at, named, Some((place, key)))?;
        check("the handle of an MD names it", part.objects.named_md(key).is_some(), at)?;
        if md.me != NONE {
            let entry = part.objects.entry_at(md.me).map(|entry| entry.md);
            equal("an MD and its entry name each other", at, entry, Some(index))?;
        }
        let attached = md.me != NONE;
        equal("an attached MD has an entry until it is dead", at, attached, !md.bound && !md.dead)?;
        check("a dead MD is busy", !md.dead || md.busy > 0, at)?;
        let outgoing = md.outgoing.and_then(|token| {
            let (partition, key) = unpack(token.0);
            self.net.get(partition)?.md_of(key)
        });
        let own = outgoing.is_none_or(|md| md == Some(MdName { place, key }));
        check("the message that an MD remembers is its own, or over", own, at)?;
        let ends = (md.responses.head(), md.responses.tail());
        let waits = walk::<BY_MD, Response>(
            at,
            ends,
            |index| part.responses.at(index),
            |response, is| {
                let at = text!("response {response} of {place:?}");
                equal("a response is in its MD's list", at, is.md, index)
            },
        )?;
        check("a dead MD waits for nothing", !md.dead || waits == 0, at)?;
        Ok(waits)
    }

    fn audit_deadlines(&self, part: &Resources) -> Audit {
        let place = part.place;
        let at = text!("the deadlines of {place:?}");
        let ends = (part.deadlines.head(), part.deadlines.tail());
        let mut earlier = 0;
        let listed = walk::<BY_DEADLINE, Response>(
            at,
            ends,
            |index| part.responses.at(index),
            |index, response| {
                let found = text!("response {index} of {place:?}: {:?}", response.deadline_ns);
                check("deadlines ascend", response.deadline_ns.is_some_and(|own| own >= earlier), found)?;
                earlier = response.deadline_ns.unwrap_or(0);
                Ok(())
            },
        )?;
        let with = |index: &u32| part.responses[*index].deadline_ns.is_some();
        let all = part.responses.indices().filter(with).count();
        equal("a response with a deadline is in the list of deadlines", at, listed, all)?;
        let head = part.deadlines.head().and_then(|head| part.responses[head].deadline_ns);
        let hint = self.engine.common.deadline_ns(place.partition);
        let found = text!("{at}: {hint} is later than {head:?}");
        check("the hint is no later than the earliest deadline", head.is_none_or(|head| hint <= head), found)
    }
}

fn audit_debtors(part: &Resources, tables: &Tables<'_>) -> Audit {
    let place = part.place;
    let at = |index| part.responses.at(index);
    let rule = "a response is in its debtor's group";
    let mut grouped = 0;
    let most = part.responses.len();
    let place_of_all = text!("the debtors of {place:?}");
    for (first, response) in chained(place_of_all, &part.by_debtor.index, most, at)? {
        let here = text!("response {first} of {place:?}");
        let known = response.debtor.is_some_and(|debtor| tables.shared.exists(debtor.ni));
        check("a debtor's NI exists", known, here)?;
        let same = |other: &Response| other.same_key(response);
        let reached = part.by_debtor.first(&part.responses, response.hash(), same);
        equal(rule, here, reached, first)?;
        let ends = (Some(first), some(response.last()));
        grouped += walk::<GROUP, Response>(here, ends, at, |index, other| {
            check(rule, same(other), format_args!("response {index} of {place:?}"))
        })?;
    }
    let owed = part.responses.indices().filter(|&index| part.responses[index].debtor.is_some()).count();
    equal(rule, format_args!("{place:?}"), grouped, owed)
}
