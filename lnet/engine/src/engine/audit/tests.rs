//! Each invariant, broken on purpose.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use lnet_api::{
    AckRequest, Arrival, EqHandle, LNet, Lnd, LndError, Md, MdHandle, MdOptions, MeSpec, NiLimits,
    PayloadTarget, Put, RxContext, Sent, Threshold, Tx, Unlink, Upcalls, Verdict,
};
use lnet_cpt::CptTable;
use lnet_nid::{MatchBits, NetType, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{IoVec, Region};
use nlx_testkit::events::EventLog;

use crate::resources::damage::{LAZY, PORTAL};
use crate::resources::{self, Resources};
use crate::{Engine, EngineConfig, net, placement, portal_state};

const US: &str = "10.0.0.1@tcp";
const PEER: &str = "10.0.0.2@tcp";

/// An LND that takes every message and never ends one.
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

    fn resume(&self, _: RxContext, _: Option<PayloadTarget>) {}
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
        ignore_bits: MatchBits(ignore),
        ..MeSpec::new(Portal::new(portal).unwrap(), MatchBits(bits))
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

fn bare_node(partitions: usize) -> (Arc<Engine>, EqHandle) {
    let partitions = Arc::new(CptTable::virtual_parts(partitions).unwrap());
    let engine = Engine::new(EngineConfig { partitions, ..EngineConfig::new(Pid::LNET, 1) });
    engine.add_ni(ProcessId::lnet(nid(US)), Arc::new(Keeper)).unwrap();
    let eq = engine.eq_alloc(EventLog::new()).unwrap();
    (engine, eq)
}

/// Creates a node of two partitions with two entries of a portal in each: its home, which has the
/// turns 1 and 2, and the home of a transfer machine.
fn spread_node() -> Arc<Engine> {
    let (engine, eq) = bare_node(2);
    for bits in [1, 1, 1 << 52, 1 << 52] {
        post(&engine, eq, PORTAL, bits, 0);
    }
    engine
}

/// Creates a node with every kind of object: to one peer two messages are with the LND and one
/// waits, to another one of two waits for the NI; all request an ACK. Of four buffers, two have one
/// key and two have ignore bits. One PUT is being received, and one waits for a buffer.
fn node() -> Arc<Engine> {
    let (engine, eq) = bare_node(1);
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

/// The rule of an invariant, and a function that breaks it.
type Corruption = (&'static str, fn(&Engine));

/// Invariants between rooms, which damage to one room alone cannot break.
const NODE: &[Corruption] = &[
    ("the count of NIs is that of the NIs", |engine| {
        engine.ni_count.fetch_add(1, Ordering::Relaxed);
    }),
    ("the hint is no later than the earliest deadline", |engine| {
        engine.common.set_deadline(0, u64::MAX);
    }),
    ("a queue that MDs use exists", |engine| {
        let key = engine.bound.lock(0).mds().queue_in_use().unwrap();
        engine.common.queues.remove(key);
    }),
    ("a partition with buffers is active", |engine| {
        engine.portals[PORTAL as usize].deactivate_if_unused(0, 0, 0, u64::MAX);
    }),
    ("those that wait have announced themselves", |engine| engine.portals[LAZY as usize].announce()),
    ("messages wait on lazy portals alone", |engine| {
        let portal = &engine.portals[LAZY as usize];
        portal.set_lazy(&portal.blocked(), false);
    }),
];

/// Expects that the audit of a node broken by `corrupt` names the rule.
fn expect(rule: &str, corrupt: impl Fn(&Engine)) {
    expect_of(node(), rule, corrupt);
}

fn expect_of(engine: Arc<Engine>, rule: &str, corrupt: impl Fn(&Engine)) {
    engine.audit().unwrap();
    corrupt(&engine);
    let found = engine.audit().expect_err(rule);
    assert_eq!(found.rule, rule, "{found}");
}

// Covers: S-106, S-107, S-108, S-307
#[test]
fn each_broken_invariant_is_named() {
    for (rule, corrupt) in NODE {
        expect(rule, corrupt);
    }
    for (rule, corrupt) in net::damage::NET {
        expect(rule, |engine| corrupt(&mut engine.net.lock(0)));
    }
    for (rule, corrupt) in resources::damage::POSTED {
        expect(rule, |engine| corrupt(&mut engine.posted.lock(0)));
    }
    for (rule, corrupt) in resources::damage::BOUND {
        expect(rule, |engine| corrupt(&mut engine.bound.lock(0)));
    }
    let (rule, corrupt) = portal_state::DAMAGE;
    expect(rule, |engine| corrupt(&mut engine.portals[LAZY as usize].blocked()));
}

/// Invariants of the placement of entries in partitions.
// Covers: S-308
#[test]
fn each_broken_invariant_of_spread_entries_is_named() {
    for (rule, corrupt) in resources::damage::PLACED {
        expect_of(spread_node(), rule, |engine| corrupt(&mut engine.posted.lock(1)));
    }
    for (rule, corrupt) in placement::DAMAGE {
        let placed = resources::damage::placed;
        expect_of(spread_node(), rule, |engine| corrupt(placed(&mut engine.posted.lock(1))));
    }
    let portal = |engine: &Engine| engine.portals[PORTAL as usize].publish(1);
    expect_of(spread_node(), "a portal has what its partitions have published", portal);
}

/// A node with work of every kind passes the audit after its NI has gone.
#[test]
fn an_ni_that_goes_leaves_everything_in_order() {
    let engine = node();
    engine.remove_ni(nid(US)).unwrap();
    engine.audit().unwrap();
    engine.advance(u64::MAX);
    engine.audit().unwrap();
}
