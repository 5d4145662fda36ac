//! Functions that break the rooms on purpose, each with the rule of their audit that detects it.

use lnet_nid::{MatchBits, ProcessId};

use super::{Bound, Posted, Resources};
use crate::audit::Damage;
use crate::groups::{GROUP, Grouped, Groups};
use crate::list::{Linked, List};
use crate::placement::{EntryPlacement, PlacedEntries};
use crate::sequence::Ranked;
use crate::slab::NONE;

/// Wildcard portals: one with buffers, one where messages wait.
pub(crate) const PORTAL: u32 = 10;
pub(crate) const LAZY: u32 = 12;

/// Returns the first entry of a portal with or without ignore bits.
fn first_entry(part: &Posted, portal: u32, masked: bool) -> u32 {
    let table = &part.tables[portal as usize];
    let wanted = |&index: &u32| part.mds.objects[index].is_masked() == masked;
    table.sequence.list.iter(&part.mds.objects).find(wanted).unwrap()
}

pub(crate) const POSTED: &[Damage<Posted>] = &[
    ("a message's MD exists", |part| {
        let index = part.mds.receiving.indices().next().unwrap();
        part.mds.receiving[index].md = 1000;
    }),
    ("an MD is as busy as messages use it", |part| {
        let index = part.mds.receiving.indices().next().unwrap();
        part.mds.receiving.take(index);
    }),
    ("a dead MD is busy", |part| {
        let index = first_entry(part, LAZY, false);
        part.mds.objects[index].auto_unlink = false;
        let md = part.mds.objects[index].md;
        part.retire(md);
    }),
    ("an attached MD has an entry until it is dead", |part| {
        let index = first_entry(part, PORTAL, false);
        let md = part.mds.objects[index].md;
        part.mds.objects.md_mut(md).dead = true;
    }),
    ("an MD and its entry name each other", |part| {
        let index = first_entry(part, PORTAL, false);
        part.mds.objects[index].md = NONE;
    }),
    ("an MD and its entry name each other", |part| {
        let (index, other) = (first_entry(part, PORTAL, false), first_entry(part, PORTAL, true));
        let md = part.mds.objects[index].md;
        part.mds.objects.md_mut(md).me = other;
    }),
    ("entries with an MD are counted", |part| {
        part.tables[PORTAL as usize].attached += 1;
    }),
    ("ranks ascend", |part| {
        let index = first_entry(part, PORTAL, false);
        Ranked::set_rank(&mut part.mds.objects[index], u64::MAX);
    }),
    ("a wildcard portal's entries are in its list", |part| {
        let list = &mut part.tables[PORTAL as usize].sequence.list;
        list.pop_front(&mut part.mds.objects).unwrap();
    }),
    ("neighbours in a list name each other", |part| {
        let index = first_entry(part, PORTAL, true);
        let links = Linked::<GROUP>::links_mut(&mut part.mds.objects[index]);
        links.prev = 0;
    }),
    ("a list names objects that exist", |part| {
        let index = first_entry(part, PORTAL, true);
        let links = Linked::<GROUP>::links_mut(&mut part.mds.objects[index]);
        links.next = 1000;
    }),
    ("a list's tail is its last object", |part| {
        let index = first_entry(part, PORTAL, false);
        Grouped::set_last(&mut part.mds.objects[index], index);
    }),
    ("a portal's entries are each found once", |part| {
        part.tables[PORTAL as usize].exact = Groups::default();
    }),
    ("an entry is found by its key", |part| {
        let index = first_entry(part, PORTAL, false);
        part.mds.objects[index].match_bits = MatchBits(77);
    }),
    ("entries of one key are in one group", |part| {
        let index = first_entry(part, PORTAL, false);
        let last = Grouped::last(&part.mds.objects[index]);
        part.mds.objects[last].match_bits = MatchBits(77);
    }),
    ("an entry is of its portal's kind", |part| {
        let index = first_entry(part, PORTAL, false);
        part.mds.objects[index].match_id = ProcessId::lnet("10.0.0.2@tcp".parse().unwrap());
    }),
    ("a group is in the order of its portal's list", |part| {
        // Both entries of a group with equal keys move in the portal's list.
        let list = &mut part.tables[PORTAL as usize].sequence.list;
        let order: Vec<u32> = list.iter(&part.mds.objects).collect();
        let (first, second) = (order[0], order[1]);
        list.remove(&mut part.mds.objects, first);
        list.remove(&mut part.mds.objects, second);
        list.push_front(&mut part.mds.objects, first);
        list.push_front(&mut part.mds.objects, second);
        let ranks = [first, second].map(|index| part.mds.objects[index].rank());
        Ranked::set_rank(&mut part.mds.objects[first], ranks[1]);
        Ranked::set_rank(&mut part.mds.objects[second], ranks[0]);
    }),
];

/// Breaks a partition whose entries on [`PORTAL`] are all spread; the counts are in
/// [`crate::placement::DAMAGE`].
pub(crate) const PLACED: &[Damage<Posted>] = &[
    ("an entry is where messages look for it", |part| {
        let index = first_entry(part, PORTAL, false);
        part.mds.objects[index].match_bits = MatchBits(7);
    }),
    ("an entry is where messages look for it", |part| {
        let index = first_entry(part, PORTAL, false);
        part.mds.objects[index].placement = EntryPlacement::Home;
    }),
    ("turns do not descend", |part| {
        let index = first_entry(part, PORTAL, false);
        part.mds.objects[index].turn = 1000;
    }),
    ("entries of one turn are in one partition", |part| {
        let index = first_entry(part, PORTAL, false);
        part.mds.objects[index].turn = 1;
    }),
];

/// Returns the counts of a partition's entries on [`PORTAL`].
pub(crate) fn placed(part: &mut Posted) -> &mut PlacedEntries {
    &mut part.tables[PORTAL as usize].placed
}

pub(crate) const BOUND: &[Damage<Bound>] = &[
    ("a message's response is its MD's", |part| {
        let index = part.responses.indices().next().unwrap();
        part.responses[index].md = NONE;
    }),
    ("an MD is as busy as messages use it", |part| {
        let index = part.mds.objects.indices().next().unwrap();
        part.mds.objects.md_mut(index).busy += 1;
    }),
    ("the message that an MD remembers is its own, or over", |part| {
        let mut indices = part.mds.objects.indices();
        let (first, second) = (indices.next().unwrap(), indices.next().unwrap());
        drop(indices);
        let outgoing = part.mds.objects.md(first).outgoing;
        part.mds.objects.md_mut(second).outgoing = outgoing;
    }),
    ("a bound MD is in the table of bound ones", |part| {
        let index = part.mds.objects.indices().next().unwrap();
        part.mds.objects.md_mut(index).bound = false;
    }),
    ("a dead MD waits for nothing", |part| {
        let index = part.mds.objects.indices().next().unwrap();
        part.mds.objects.md_mut(index).dead = true;
    }),
    ("a response is in its MD's list", |part| {
        let index = part.mds.objects.indices().next().unwrap();
        part.mds.objects.md_mut(index).responses = List::new();
    }),
    ("a response is in its debtor's group", |part| {
        part.by_debtor = Groups::default();
    }),
    ("deadlines ascend", |part| {
        let head = part.deadlines.head().unwrap();
        part.responses[head].deadline_ns = Some(u64::MAX);
    }),
    ("a response with a deadline is in the list of deadlines", |part| {
        part.deadlines.pop_front(&mut part.responses);
    }),
    ("the users of a queue are its MDs", |part| {
        let index = part.mds.objects.indices().next().unwrap();
        let eq = part.mds.objects.md(index).eq;
        part.mds.queues.leave(eq);
    }),
    ("an MD's queue is known", |part| {
        let keys: Vec<_> = part.mds.queues.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| part.mds.queues.forget(key));
    }),
];
