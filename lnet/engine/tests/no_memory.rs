//! Without memory the engine refuses a call, or drops a message; it never aborts, and loses nothing
//! that it has accepted.

// All of this crate is test code, helpers included.
#![allow(clippy::unwrap_used)]

#[path = "it/common/mod.rs"]
mod common;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use common::*;
use lnet::{Engine, EngineConfig};
use lnet_api::{
    AckRequest, Arrival, Errno, EventHandler, EventKind, LNet, LNetError, Lnd, LndError, MdHandle, MdOptions,
    NiLimits, PayloadTarget, Position, Put, RxContext, Sent, Threshold, Tx, Unlink, Upcalls, Verdict,
};
use lnet_nid::{MatchBits, NetType, Nid, Pid, Portal, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::IoVec;
use nlx_testkit::events::{EventLog, on_event};
use nlx_testkit::heap::WatchedHeap;

/// The number of partitions: each has its own tables, so two reveal errors that one hides.
const PARTITIONS: usize = 2;

/// The allocations of this thread that fail.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failing {
    None,
    /// The allocation after this number of others.
    One(usize),
    /// All allocations after this number.
    All(usize),
    /// All allocations of this size.
    Sized(usize),
}

thread_local! {
    static FAILING: Cell<Failing> = const { Cell::new(Failing::None) };
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

fn refuses(bytes: usize) -> bool {
    let (next, refuses) = match FAILING.get() {
        Failing::None => (Failing::None, false),
        Failing::One(0) => (Failing::None, true),
        Failing::One(left) => (Failing::One(left - 1), false),
        Failing::All(0) => (Failing::All(0), true),
        Failing::All(left) => (Failing::All(left - 1), false),
        Failing::Sized(size) => (Failing::Sized(size), bytes == size),
    };
    FAILING.set(next);
    FAILED.set(FAILED.get() || refuses);
    refuses
}

#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap { gives: |layout| !refuses(layout.size()), takes: |_| {} };

/// Runs code outside the engine without failing allocations.
fn without_failures<R>(work: impl FnOnce() -> R) -> R {
    let before = FAILING.replace(Failing::None);
    let result = work();
    FAILING.set(before);
    result
}

/// Runs a call into the engine with failing allocations.
fn starving<R>(failing: Failing, call: impl FnOnce() -> R) -> R {
    FAILING.set(failing);
    let result = call();
    FAILING.set(Failing::None);
    result
}

/// The network, which is not under test: its allocations succeed.
struct Calm(Arc<Network>);

impl Lnd for Calm {
    fn net_type(&self) -> NetType {
        self.0.net_type()
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        without_failures(|| self.0.startup(ni, upcalls))
    }

    fn shutdown(&self, ni: Nid) {
        without_failures(|| self.0.shutdown(ni));
    }

    fn send(&self, tx: Tx) -> Sent {
        without_failures(|| self.0.send(tx))
    }

    fn resume(&self, rx: RxContext, delivery: Option<PayloadTarget>) {
        without_failures(|| self.0.resume(rx, delivery));
    }
}

/// Returns a handler for a log, whose allocations succeed.
fn unfailing_handler(log: &Arc<EventLog>) -> Arc<dyn EventHandler> {
    let log = log.clone();
    on_event(move |event| without_failures(|| log.event(event)))
}

/// The only message of a test that is received in two steps.
const HELD: RxContext = RxContext(u64::MAX);

/// A node whose allocations fail, and a peer whose allocations succeed.
struct World {
    network: Arc<Network>,
    poor: Node,
    peer: Node,
    /// The MDs that the engine has accepted, each of which must end once.
    mds: Vec<MdHandle>,
    buffer: IoVec,
}

impl World {
    fn new() -> World {
        let network = Network::new();
        let peer = Node::new(&network, 3);
        let engine = Engine::new(partitioned(EngineConfig::new(Pid::LNET, cookie(2))));
        engine.add_ni(ProcessId::lnet(nid(2)), Arc::new(Calm(network.clone()))).unwrap();
        let log = EventLog::strict();
        let eq = engine.eq_alloc(unfailing_handler(&log)).unwrap();
        let poor = Node { engine, nid: nid(2), eq, log };
        World { network, poor, peer, mds: Vec::new(), buffer: memory(64) }
    }

    fn md(&self, options: MdOptions, threshold: u32) -> lnet_api::Md {
        self.poor.md(&self.buffer, options, threshold)
    }

    fn bind(&mut self, threshold: u32) -> MdHandle {
        let md = self.poor.engine.md_bind(self.md(MdOptions::empty(), threshold), Unlink::Auto).unwrap();
        self.mds.push(md);
        md
    }

    fn post(&mut self, options: MdOptions) {
        let md = self.poor.engine.md_attach(self.poor.post(1), self.md(options, 1), Unlink::Auto).unwrap();
        self.mds.push(md);
    }

    /// Delivers a message, as far as the engine lets it.
    fn arrive(&self, failing: Failing, payload_length: u32, body: Body) {
        let header = Header { dest: self.poor.id(), src: self.peer.id(), payload_length, body };
        let arrival =
            Arrival { ni: self.poor.nid, from: self.peer.id(), header: &header, host: None, rx: HELD };
        let verdict = starving(failing, || self.poor.engine.parse(&arrival));
        match verdict {
            Verdict::Deliver(delivery) => {
                let token = delivery.token;
                drop(delivery);
                starving(failing, || self.poor.engine.finalize_rx(token, Ok(())));
            }
            Verdict::Delay(_) | Verdict::Stay(_) => {
                self.network.hold(HELD, nid(2), vec![9; payload_length as usize])
            }
            _ => {}
        }
    }

    /// Checks that every accepted operation ends once, and that the node works.
    fn check(self, case: &str) {
        let World { network, poor, peer, mds, .. } = self;
        network.run();
        poor.engine.set_lazy(portal(), false);
        let mut now_ns = 1 << 60;
        while poor.engine.counters().rst_alloc > 0 {
            poor.engine.advance(now_ns);
            now_ns += 1;
        }
        for &md in &mds {
            // The MD may have ended already.
            let _ = poor.engine.md_unlink(md);
        }
        network.run();
        let mut ends: HashMap<MdHandle, usize> = HashMap::new();
        poor.events().iter().filter(|event| event.unlinked).for_each(|event| {
            *ends.entry(event.md).or_default() += 1;
        });
        assert!(mds.iter().all(|md| ends.get(md) == Some(&1)), "{case}: {mds:?} end as {ends:?}");
        assert!(poor.is_quiet(), "{case}: {}", poor.engine.counters());
        if poor.engine.local_ids().len() < 2 {
            poor.engine.add_ni(poor.id(), network.clone()).unwrap();
        }
        let inbox = memory(16);
        poor.engine
            .md_attach(
                poor.post(77),
                lnet_api::Md { eq: None, ..poor.md(&inbox, MdOptions::OP_PUT, 1) },
                Unlink::Auto,
            )
            .unwrap();
        peer.put(peer.bind(&pattern(16, 5), 2), poor.id(), 77, AckRequest::Ack).unwrap();
        network.run();
        assert_eq!(content(&inbox), pattern_bytes(16, 5), "{case}");
        poor.engine.eq_free(poor.eq).unwrap();
    }
}

fn refused<T>(result: Result<T, LNetError>) -> Option<T> {
    result.inspect_err(|error| assert_eq!(error.errno(), Errno::ENOMEM, "{error}")).ok()
}

/// Repeats an action in a new world, with one more successful allocation before the failing one
/// each time, until none fails.
fn each_failure(case: &str, prepare: impl Fn(&mut World), act: impl Fn(&mut World, Failing)) {
    for kind in [Failing::One as fn(usize) -> Failing, Failing::All] {
        for number in 0.. {
            let mut world = World::new();
            prepare(&mut world);
            FAILED.set(false);
            act(&mut world, kind(number));
            let failed = FAILED.replace(false);
            world.check(&format!("{case}, {:?}", kind(number)));
            if !failed {
                break;
            }
        }
    }
}

/// Does what [`each_failure`] does, for the first `count` allocations only.
fn each_first_failure(case: &str, count: usize, act: impl Fn(&mut World, Failing)) {
    for number in 0..count {
        let mut world = World::new();
        act(&mut world, Failing::One(number));
        assert!(FAILED.replace(false));
        world.check(case);
    }
}

#[test]
fn calls_about_objects_are_refused() {
    each_failure(
        "eq_alloc",
        |_| {},
        |world, failing| {
            let handler = unfailing_handler(&world.poor.log);
            if let Some(eq) = refused(starving(failing, || world.poor.engine.eq_alloc(handler))) {
                world.poor.engine.eq_free(eq).unwrap();
            }
        },
    );
    // The allocation of the queue's events is refused; the few bytes of its head come from an
    // allocation that Rust does not let fail.
    each_first_failure("eq_alloc_polled", 1, |world, failing| {
        if let Some(eq) = refused(starving(failing, || world.poor.engine.eq_alloc_polled(100, None))) {
            starving(failing, || world.poor.engine.eq_free(eq)).unwrap();
        }
    });
    each_failure(
        "me_attach",
        |_| {},
        |world, failing| {
            if let Some(me) = refused(starving(failing, || world.poor.engine.me_attach(&spec(1)))) {
                starving(failing, || world.poor.engine.me_unlink(me)).unwrap();
            }
        },
    );
    each_failure(
        "me_insert",
        |_| {},
        |world, failing| {
            let beside = world.poor.post(1);
            let spec = lnet_api::MeSpec { position: Position::Before, ..spec(2) };
            if let Some(me) = refused(starving(failing, || world.poor.engine.me_insert(beside, &spec))) {
                world.poor.engine.me_unlink(me).unwrap();
            }
            world.poor.engine.me_unlink(beside).unwrap();
        },
    );
    each_failure(
        "md_attach",
        |_| {},
        |world, failing| {
            let (me, md) = (world.poor.post(1), world.md(MdOptions::OP_PUT, 1));
            let attached = refused(starving(failing, || world.poor.engine.md_attach(me, md, Unlink::Auto)));
            if attached.is_none() {
                assert_eq!(errno(world.poor.engine.me_unlink(me)), Errno::ENOENT);
            }
            world.mds.extend(attached);
        },
    );
    each_failure(
        "md_bind",
        |_| {},
        |world, failing| {
            let md = world.md(MdOptions::empty(), 1);
            let bound = refused(starving(failing, || world.poor.engine.md_bind(md, Unlink::Auto)));
            if let Some(md) = bound {
                starving(failing, || world.poor.engine.md_unlink(md)).unwrap();
            }
            world.mds.extend(bound);
        },
    );
}

#[test]
fn messages_are_refused_or_fail_in_their_event() {
    for (ack, threshold) in [(AckRequest::NoAck, 1), (AckRequest::Ack, 2)] {
        for target in [nid(3), nid(2), Nid::LOOPBACK] {
            each_failure(
                "put",
                |world| _ = world.bind(threshold),
                |world, failing| {
                    let md = world.mds[0];
                    world.peer.expect(1, &memory(64), MdOptions::OP_PUT);
                    refused(starving(failing, || world.poor.put(md, ProcessId::lnet(target), 1, ack)));
                },
            );
        }
    }
    for target in [nid(3), Nid::LOOPBACK] {
        each_failure(
            "get",
            |world| _ = world.bind(2),
            |world, failing| {
                let md = world.mds[0];
                world.peer.expect(1, &memory(64), MdOptions::OP_GET);
                refused(starving(failing, || world.poor.get(md, ProcessId::lnet(target), 1)));
            },
        );
    }
    // More PUTs than there are credits.
    each_failure(
        "queued put",
        |_| {},
        |world, failing| {
            for _ in 0..LIMITS.peer_credits {
                let md = world.bind(1);
                world.poor.put(md, world.peer.id(), 1, AckRequest::NoAck).unwrap();
            }
            let md = world.bind(1);
            refused(starving(failing, || world.poor.put(md, world.peer.id(), 1, AckRequest::NoAck)));
        },
    );
}

#[test]
fn messages_that_arrive_are_taken_or_dropped() {
    let wmd = WireHandle::new(1, 1);
    let put = |ack_wmd| Body::Put { ack_wmd, match_bits: MatchBits(1), hdr_data: 0, portal: 34, offset: 0 };
    for ack in [WireHandle::NONE, wmd] {
        for bytes in [0, 8] {
            each_failure(
                "arriving put",
                |world| world.post(MdOptions::OP_PUT),
                |world, failing| {
                    world.arrive(failing, bytes, put(ack));
                },
            );
            each_failure("unwanted put", |_| {}, |world, failing| world.arrive(failing, bytes, put(ack)));
            each_failure(
                "delayed put",
                |world| world.poor.engine.set_lazy(portal(), true),
                |world, failing| {
                    world.arrive(failing, bytes, put(ack));
                    let (me, md) = (world.poor.post(1), world.md(MdOptions::OP_PUT, 1));
                    let attached =
                        refused(starving(failing, || world.poor.engine.md_attach(me, md, Unlink::Auto)));
                    world.mds.extend(attached);
                },
            );
        }
    }
    let get =
        Body::Get { return_wmd: wmd, match_bits: MatchBits(1), portal: 34, src_offset: 0, sink_length: 8 };
    each_failure(
        "arriving get",
        |world| world.post(MdOptions::OP_GET),
        |world, failing| {
            world.arrive(failing, 0, get);
        },
    );
    each_failure(
        "arriving push",
        |_| {},
        |world, failing| {
            let push =
                Body::Put { ack_wmd: wmd, match_bits: MatchBits::PING, hdr_data: 0, portal: 0, offset: 0 };
            world.arrive(failing, 100, push);
        },
    );
    let asked = |get: bool| {
        move |world: &mut World| {
            let md = world.bind(2);
            let to = ProcessId::lnet(nid(3));
            if get { world.poor.get(md, to, 1) } else { world.poor.put(md, to, 1, AckRequest::Ack) }.unwrap();
            world.network.lose(0);
        }
    };
    each_failure("ack", asked(false), |world, failing| {
        let dst_wmd = WireHandle::new(cookie(2), world.mds[0].0);
        world.arrive(failing, 0, Body::Ack { dst_wmd, match_bits: MatchBits(1), mlength: 64 });
    });
    each_failure("reply", asked(true), |world, failing| {
        let dst_wmd = WireHandle::new(cookie(2), world.mds[0].0);
        world.arrive(failing, 64, Body::Reply { dst_wmd });
    });
    each_failure("late answer", asked(true), |world, failing| {
        starving(failing, || world.poor.engine.advance(1 << 60));
    });
}

#[test]
fn lazy_portals_are_cleared() {
    each_failure(
        "clearing",
        |world| world.poor.engine.set_lazy(portal(), true),
        |world, failing| {
            for _ in 0..5 {
                world.network.arrive(put_from(&world.poor, nid(3), 1, vec![1; 8]));
            }
            starving(failing, || world.poor.engine.set_lazy(portal(), false));
        },
    );
    each_failure(
        "many at once",
        |world| world.poor.engine.set_lazy(portal(), true),
        |world, failing| {
            for _ in 0..5 {
                world.network.arrive(put_from(&world.poor, nid(3), 1, vec![1; 8]));
            }
            let md = lnet_api::Md { threshold: Threshold::Infinite, ..world.md(MdOptions::OP_PUT, 0) };
            let me = world.poor.post(1);
            let attached = refused(starving(failing, || world.poor.engine.md_attach(me, md, Unlink::Auto)));
            world.mds.extend(attached);
        },
    );
}

/// Operations that wait for answers end with their connection or NI, however little memory there
/// is.
#[test]
fn answers_that_will_not_come_fail() {
    let expect = |world: &mut World| {
        for number in 0..6 {
            let md = world.bind(2);
            if number % 2 == 0 {
                world.poor.get(md, world.peer.id(), 1).unwrap();
            } else {
                world.poor.put(md, world.peer.id(), 1, AckRequest::Ack).unwrap();
            }
            world.network.lose(0);
        }
    };
    each_failure("peer_lost", expect, |world, failing| {
        let (ni, peer) = (world.poor.nid, world.peer.id());
        starving(failing, || world.poor.engine.peer_lost(ni, peer, Errno::ECONNRESET));
    });
    each_failure("late answers", expect, |world, failing| {
        let engine = &world.poor.engine;
        while engine.counters().rst_alloc > 0 {
            starving(failing, || engine.advance(1 << 60));
        }
    });
}

/// A region without memory for another lease refuses it.
#[test]
fn leases_are_refused() {
    let lease_some = |world: &World| {
        let ranges = (32..48).step_by(2);
        ranges.map(|at| world.buffer.outgoing(at..at + 1).unwrap()).collect::<Vec<_>>()
    };
    // The allocations are those of other PUTs, and that of the lease.
    each_failure(
        "a lease to send",
        |world| _ = world.bind(1),
        |world, failing| {
            let _leases = lease_some(world);
            let (md, to) = (world.mds[0], world.peer.id());
            refused(starving(failing, || world.poor.put(md, to, 1, AckRequest::NoAck)));
        },
    );
    each_failure(
        "a lease to receive",
        |world| world.post(MdOptions::OP_PUT),
        |world, failing| {
            let _leases = lease_some(world);
            let (ack_wmd, match_bits) = (WireHandle::NONE, MatchBits(1));
            world.arrive(failing, 8, Body::Put { ack_wmd, match_bits, hdr_data: 0, portal: 34, offset: 0 });
        },
    );
}

/// A node without memory for the buffers of pushes works otherwise, and acknowledges pushes.
#[test]
fn a_node_without_buffers_for_pushes_works() {
    const PUSH_BUFFER_BYTES: usize = 64 << 10;
    let mut world = World::new();
    let config = partitioned(EngineConfig::new(Pid::LNET, cookie(4)));
    let engine = starving(Failing::Sized(PUSH_BUFFER_BYTES), || Engine::new(config));
    assert!(FAILED.replace(false));
    engine.add_ni(ProcessId::lnet(nid(4)), world.network.clone()).unwrap();
    let poorest = Node::over(engine, nid(4));
    let md = world.bind(2);
    let push = Put {
        source: None,
        md,
        ack: AckRequest::Ack,
        target: poorest.id(),
        portal: Portal::RESERVED,
        match_bits: MatchBits::PING,
        offset: 0,
        hdr_data: 0,
    };
    world.poor.engine.put(&push).unwrap();
    world.network.run();
    let acknowledged = world.poor.events().last().map(|event| (event.kind, event.status, event.mlength));
    assert_eq!(acknowledged, Some((EventKind::Ack, Ok(()), 0)));
    world.poor = poorest;
    world.mds.clear();
    world.check("a node without buffers for pushes");
}

#[test]
fn the_allocator_refuses_as_requested() {
    let attempt = || Vec::<u8>::new().try_reserve_exact(100).is_ok();
    assert!(starving(Failing::One(1), || attempt() && !attempt() && attempt()));
    assert!(starving(Failing::All(1), || attempt() && !attempt() && !attempt() && without_failures(attempt)));
    assert!(FAILED.get() && attempt());
}
