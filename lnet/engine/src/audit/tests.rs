//! Each invariant, broken by hand.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::{
    AckRequest, Arrival, Delivery, EqHandle, Event, EventHandler, LNet, Lnd, LndError, Md, MdHandle,
    MdOptions, MeSpec, NiLimits, Position, Put, RxContext, Sent, Threshold, Tx, Unlink, Upcalls, Verdict,
};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, NetType, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{IoVec, Region};

use crate::net;
use crate::resources::Resources;
use crate::slab::NONE;
use crate::{Engine, EngineConfig};

const US: &str = "10.0.0.1@tcp";
const PEER: &str = "10.0.0.2@tcp";
/// Wildcard portals: one with buffers, one where messages wait.
const PORTAL: u32 = 10;
const LAZY: u32 = 12;

struct Quiet;

impl EventHandler for Quiet {
    fn event(&self, _: &Event) {}
    fn wake(&self) {}
}

/// Takes every message and never ends one.
struct Keeper;

impl Lnd for Keeper {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, _: ProcessId, _: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        Ok(NiLimits { credits: 3, peer_credits: 2, timeout_ns: 1 })
    }

    fn shutdown(&self, _: Nid) {}

    fn send(&self, tx: Tx) -> Sent {
        drop(tx);
        Sent::Later
    }

    fn resume(&self, _: RxContext, _: Option<Delivery>) {}
}

fn nid(text: &str) -> Nid {
    text.parse().unwrap()
}

fn md(eq: EqHandle, options: MdOptions) -> Md {
    let memory = IoVec::whole(Region::heap(8).unwrap());
    Md { memory, threshold: Threshold::Limited(9), max_size: 0, options, user_ptr: 0, eq: Some(eq) }
}

fn post(engine: &Engine, eq: EqHandle, portal: u32, bits: u64, ignore: u64) -> MdHandle {
    let spec = MeSpec {
        portal: Portal::new(portal).unwrap(),
        match_id: ProcessId::ANY,
        match_bits: MatchBits(bits),
        ignore_bits: MatchBits(ignore),
        unlink: Unlink::Auto,
        position: Position::After,
    };
    let me = engine.me_attach(&spec).unwrap();
    engine.md_attach(me, md(eq, MdOptions::OP_PUT), Unlink::Auto).unwrap()
}

fn arrive(engine: &Engine, portal: u32) -> Verdict {
    let (dest, src) = (ProcessId::lnet(nid(US)), ProcessId::lnet(nid(PEER)));
    let (ack_wmd, match_bits, hdr_data) = (WireHandle::NONE, MatchBits(1), 0);
    let body = Body::Put { ack_wmd, match_bits, hdr_data, portal, offset: 0 };
    let header = Header { dest, src, payload_length: 8, body };
    engine.parse(&Arrival { ni: dest.nid, from: src, header: &header, host: None, rx: RxContext(1) })
}

/// A node in which something of everything goes on: to one peer two messages are with the LND and one waits, to another
/// one of two waits for the NI; all are to be acknowledged. Of four buffers two have one key and two ignore bits. One
/// PUT is being received, one waits.
fn node() -> Arc<Engine> {
    let partitions = Arc::new(CptTable::virtual_parts(1).unwrap());
    let engine = Engine::new(EngineConfig { partitions, ..EngineConfig::new(Pid::LNET, 1) });
    engine.add_ni(ProcessId::lnet(nid(US)), Arc::new(Keeper)).unwrap();
    let eq = engine.eq_alloc(Arc::new(Quiet)).unwrap();
    for (bits, ignore) in [(1, 0), (1, 0), (2, 1), (2, 1)] {
        post(&engine, eq, PORTAL, bits, ignore);
    }
    engine.set_lazy(Portal::new(LAZY).unwrap(), true);
    post(&engine, eq, LAZY, 99, 0);
    assert!(matches!(arrive(&engine, PORTAL), Verdict::Deliver(_)));
    assert!(matches!(arrive(&engine, LAZY), Verdict::Delay(_)));
    for target in [PEER, PEER, PEER, "10.0.0.3@tcp", "10.0.0.3@tcp"] {
        let md = engine.md_bind(md(eq, MdOptions::empty()), Unlink::Auto).unwrap();
        let put = Put {
            source: None,
            md,
            ack: AckRequest::Ack,
            target: ProcessId::lnet(nid(target)),
            portal: Portal::new(PORTAL).unwrap(),
            match_bits: MatchBits(1),
            offset: 0,
            hdr_data: 0,
        };
        engine.put(&put).unwrap();
    }
    engine
}

/// Some bound or posted MD, entry, or peer's index.
fn first_entry(part: &Resources, portal: u32, masked: bool) -> u32 {
    let table = &part.tables[portal as usize];
    let wanted = |&index: &u32| part.objects[index].is_masked() == masked;
    table.sequence.list.iter(&part.objects).find(wanted).unwrap()
}

/// A way to break something, and the rule that says so.
type Corruption = (&'static str, fn(&Engine));

/// The node as such.
const NODE: &[Corruption] = &[("the count of NIs is that of the NIs", |engine| {
    engine.ni_count.fetch_add(1, Ordering::Relaxed);
})];

const RESOURCES: &[Corruption] = &[
    ("a message's MD exists", |engine| {
        let mut part = engine.posted.lock(0);
        let index = part.receiving.indices().next().unwrap();
        part.receiving[index].md = 1000;
    }),
    ("a message's response is its MD's", |engine| {
        let mut part = engine.bound.lock(0);
        let index = part.responses.indices().next().unwrap();
        part.responses[index].md = NONE;
    }),
    ("an MD is as busy as messages use it", |engine| {
        let mut part = engine.bound.lock(0);
        let index = part.objects.indices().next().unwrap();
        part.objects.md_mut(index).busy += 1;
    }),
    ("the message that an MD remembers is its own, or over", |engine| {
        let mut part = engine.bound.lock(0);
        let mut indices = part.objects.indices();
        let (first, second) = (indices.next().unwrap(), indices.next().unwrap());
        drop(indices);
        let outgoing = part.objects.md(first).outgoing;
        part.objects.md_mut(second).outgoing = outgoing;
    }),
    ("an MD is as busy as messages use it", |engine| {
        let mut part = engine.posted.lock(0);
        let index = part.receiving.indices().next().unwrap();
        part.receiving.take(index);
    }),
    ("a bound MD is in the table of bound ones", |engine| {
        let mut part = engine.bound.lock(0);
        let index = part.objects.indices().next().unwrap();
        part.objects.md_mut(index).bound = false;
    }),
    ("a dead MD is busy", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, LAZY, false);
        part.objects[index].auto_unlink = false;
        let md = part.objects[index].md;
        part.retire(md);
    }),
    ("a dead MD waits for nothing", |engine| {
        let mut part = engine.bound.lock(0);
        let index = part.objects.indices().next().unwrap();
        part.objects.md_mut(index).dead = true;
    }),
    ("an attached MD has an entry until it is dead", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, false);
        let md = part.objects[index].md;
        part.objects.md_mut(md).dead = true;
    }),
    ("an MD and its entry name each other", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, false);
        part.objects[index].md = NONE;
    }),
    ("an MD and its entry name each other", |engine| {
        let mut part = engine.posted.lock(0);
        let (index, other) = (first_entry(&part, PORTAL, false), first_entry(&part, PORTAL, true));
        let md = part.objects[index].md;
        part.objects.md_mut(md).me = other;
    }),
    ("a response is in its MD's list", |engine| {
        let mut part = engine.bound.lock(0);
        let index = part.objects.indices().next().unwrap();
        part.objects.md_mut(index).responses = crate::list::List::new();
    }),
    ("a response is in its debtor's group", |engine| {
        let mut part = engine.bound.lock(0);
        part.by_debtor = crate::groups::Groups::default();
    }),
    ("deadlines ascend", |engine| {
        let mut part = engine.bound.lock(0);
        let head = part.deadlines.head().unwrap();
        part.responses[head].deadline_ns = Some(u64::MAX);
    }),
    ("a response with a deadline is in the list of deadlines", |engine| {
        let mut part = engine.bound.lock(0);
        let (part, ()) = part.split();
        part.deadlines.pop_front(&mut part.responses);
    }),
    ("the hint is no later than the earliest deadline", |engine| {
        engine.common.set_deadline(0, u64::MAX);
    }),
    ("the users of a queue are its MDs", |engine| {
        let mut part = engine.bound.lock(0);
        let index = part.objects.indices().next().unwrap();
        let eq = part.objects.md(index).eq;
        part.queues.leave(eq);
    }),
    ("an MD's queue is known", |engine| {
        let mut part = engine.bound.lock(0);
        let keys: Vec<_> = part.queues.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| part.queues.forget(key));
    }),
    ("a queue that MDs use exists", |engine| {
        let key = engine.bound.lock(0).queues.iter().next().unwrap().0;
        engine.common.queues.remove(key);
    }),
];

const PORTALS: &[Corruption] = &[
    ("entries with an MD are counted", |engine| {
        engine.posted.lock(0).tables[PORTAL as usize].attached += 1;
    }),
    ("a partition with buffers is active", |engine| {
        engine.portals[PORTAL as usize].rest(0, 0, 0, u64::MAX);
    }),
    ("ranks ascend", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, false);
        crate::sequence::Ranked::set_rank(&mut part.objects[index], u64::MAX);
    }),
    ("a wildcard portal's entries are in its list", |engine| {
        let mut part = engine.posted.lock(0);
        let (part, ()) = part.split();
        let list = &mut part.tables[PORTAL as usize].sequence.list;
        list.pop_front(&mut part.objects).unwrap();
    }),
    ("neighbours in a list name each other", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, true);
        let links = crate::list::Linked::<{ crate::groups::GROUP }>::links_mut(&mut part.objects[index]);
        links.prev = 0;
    }),
    ("a list names objects that exist", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, true);
        let links = crate::list::Linked::<{ crate::groups::GROUP }>::links_mut(&mut part.objects[index]);
        links.next = 1000;
    }),
    ("a list's tail is its last object", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, false);
        crate::groups::Grouped::set_last(&mut part.objects[index], index);
    }),
    ("a portal's entries are each found once", |engine| {
        engine.posted.lock(0).tables[PORTAL as usize].exact = crate::groups::Groups::default();
    }),
    ("an entry is found by its key", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, false);
        part.objects[index].match_bits = MatchBits(77);
    }),
    ("entries of one key are in one group", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, false);
        let last = crate::groups::Grouped::last(&part.objects[index]);
        part.objects[last].match_bits = MatchBits(77);
    }),
    ("an entry is of its portal's kind", |engine| {
        let mut part = engine.posted.lock(0);
        let index = first_entry(&part, PORTAL, false);
        part.objects[index].match_id = ProcessId::lnet(nid(PEER));
    }),
    ("those that wait have announced themselves", |engine| {
        engine.portals[LAZY as usize].announce();
    }),
    ("a message that waits is in its portal's queue", |engine| {
        let mut blocked = engine.portals[LAZY as usize].blocked();
        let blocked = &mut *blocked;
        blocked.order.pop_front(&mut blocked.delayed).unwrap();
    }),
    ("messages wait on lazy portals alone", |engine| {
        let portal = &engine.portals[LAZY as usize];
        portal.set_lazy(&portal.blocked(), false);
    }),
];

/// An exact group out of its portal's order: both its entries are moved in the portal's list.
#[test]
fn a_group_out_of_order_is_noticed() {
    let engine = node();
    {
        let mut part = engine.posted.lock(0);
        let (part, ()) = part.split();
        let list = &mut part.tables[PORTAL as usize].sequence.list;
        let order: Vec<u32> = list.iter(&part.objects).collect();
        let (first, second) = (order[0], order[1]);
        list.remove(&mut part.objects, first);
        list.remove(&mut part.objects, second);
        list.push_front(&mut part.objects, first);
        list.push_front(&mut part.objects, second);
        let ranks = [first, second].map(|index| part.objects[index].rank());
        crate::sequence::Ranked::set_rank(&mut part.objects[first], ranks[1]);
        crate::sequence::Ranked::set_rank(&mut part.objects[second], ranks[0]);
    }
    assert_eq!(engine.audit().unwrap_err().rule, "a group is in the order of its portal's list");
}

/// The audit of a node that `corrupt` has broken names the rule.
fn expect(rule: &str, corrupt: impl Fn(&Engine)) {
    let engine = node();
    engine.audit().unwrap();
    corrupt(&engine);
    let found = engine.audit().expect_err(rule);
    assert_eq!(found.rule, rule, "{found}");
}

/// S-106, S-107, S-108, S-307.
#[test]
fn each_broken_invariant_is_named() {
    for (rule, corrupt) in [NODE, RESOURCES, PORTALS].into_iter().flatten() {
        expect(rule, corrupt);
    }
    for (rule, corrupt) in net::damage::NET {
        expect(rule, |engine| corrupt(engine.net.lock(0).split().0));
    }
}

/// At the end of a busy life nothing is wrong.
#[test]
fn an_ni_that_goes_leaves_everything_in_order() {
    let engine = node();
    engine.remove_ni(nid(US)).unwrap();
    engine.audit().unwrap();
    engine.advance(u64::MAX);
    engine.audit().unwrap();
}
