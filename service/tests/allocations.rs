//! Calls and services allocate nothing in the steady state, over LNet and over a transfer machine.
//! The only test of its program, because it counts the allocations of all threads.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "portals/bed.rs"]
mod bed;
#[path = "support/cores.rs"]
mod cores;
#[path = "machines/bed.rs"]
mod machines;
#[path = "rpc/wire.rs"]
mod wire;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use nlx_testkit::heap::WatchedHeap;
use nlx_testkit::until;

use lnet_api::Errno;
use lnet_node::{Node, NodeConfig};
use nlx_service::rpc::{ClientId, Decision, Header, Kind, ResponderOptions, Rpc, RpcHandler, RpcRequest};
use nlx_service::{BufferOptions, Class, Pool, PoolOptions, Service};

use bed::{Ask, Bed, LENGTH, small};

/// Counts the allocations of all threads that are not exempt.
#[global_allocator]
static HEAP: WatchedHeap = WatchedHeap {
    gives: |_| {
        if !IS_EXEMPT.try_with(Cell::get).unwrap_or(true) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
        true
    },
    takes: |_| {},
};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IS_EXEMPT: Cell<bool> = const { Cell::new(false) };
}

/// Attempts in which the heap must be left alone once.
const ATTEMPTS: u32 = 20;

/// In the steady state neither side allocates: not to call, to serve, to reply, or to continue.
// Covers: S-313
#[test]
fn calls_allocate_nothing() {
    IS_EXEMPT.set(true);
    over_portals();
    over_a_machine();
    over_the_protocol();
}

/// Checks that `repeat`, which makes this number of calls and returns the number of allocations so
/// far, comes to a steady state. Tables grow to their final size, and on a busy machine the pool
/// starts another thread; what every call allocated would show in each attempt.
fn settles(mut repeat: impl FnMut(usize) -> usize) {
    let mut count = repeat(300);
    let is_steady = (0..ATTEMPTS).any(|_| std::mem::replace(&mut count, repeat(300)) == count);
    assert!(is_steady, "{count} allocations, and more with each attempt");
}

/// A client of the Core's operations alone, whose own are counted, too.
fn over_a_machine() {
    let bed = machines::Bed::over(cores::Cores::in_process());
    let raw = bed.client();
    settles(|times| {
        IS_EXEMPT.set(false);
        for call in 0..times {
            raw.echo(call as u64);
        }
        IS_EXEMPT.set(true);
        ALLOCATIONS.load(Ordering::Relaxed)
    });
}

fn over_portals() {
    let bed = Bed::new(2, small());
    let collector = bed.caller.owner();
    collector.only_counts.store(true, Ordering::Relaxed);
    let (line, call) = bed.prepare(2, Ask::Echo);
    let mut calls = 0;
    settles(|times| {
        for _ in 0..times {
            // Beginning a call is counted, waiting for it is not.
            IS_EXEMPT.set(false);
            bed.caller.begin(&line, LENGTH, &call).unwrap();
            IS_EXEMPT.set(true);
            calls += 1;
            until("the call ends", || collector.count.load(Ordering::Acquire) == calls);
        }
        ALLOCATIONS.load(Ordering::Relaxed)
    });
}

/// Answers each request with its own bytes.
struct Echo;

impl RpcHandler<wire::Wire> for Echo {
    type State = ();

    fn request(
        &self,
        request: RpcRequest<'_, wire::Wire, ()>,
    ) -> Decision<lnet_nid::MatchBits, lnet_region::IoVec> {
        request.answer[..request.bytes.len()].copy_from_slice(request.bytes);
        Decision::Answer { length: request.bytes.len() }
    }

    fn moved(
        &self,
        _: RpcRequest<'_, wire::Wire, ()>,
        _: Result<usize, Errno>,
    ) -> Decision<lnet_nid::MatchBits, lnet_region::IoVec> {
        Decision::Drop
    }
}

/// At-most-once requests of a client with a session, over a transport in memory: the answer of each is
/// stored.
fn over_the_protocol() {
    let node = Node::start(&NodeConfig::new()).unwrap();
    let pool = Pool::start("test", node.drive(), 1, PoolOptions::default()).unwrap();
    let wire = wire::Wire::default();
    let rpc = Rpc::new(&pool, &ResponderOptions::default(), Echo).unwrap();
    let _service = Service::start(&pool, wire.clone(), BufferOptions::default(), rpc).unwrap();
    let mut header = Header {
        kind: Kind::Open,
        class: Class::Normal,
        has_offers: false,
        attempt: 1,
        slot: 0,
        client: ClientId { number: 0, incarnation: 7 },
        session: 0,
        sequence: 0,
        status: 0,
        length: 0,
        time_ms: 30_000,
        estimate_ms: 0,
    };
    wire.keep(true);
    wire.deliver(1, &header, b"");
    until("a session is opened", || wire.count() == 1);
    header.session = wire.next().unwrap().1.session;
    (header.kind, header.length) = (Kind::Once, 5);
    wire.keep(false);
    settles(|times| {
        for _ in 0..times {
            header.sequence += 1;
            IS_EXEMPT.set(false);
            wire.deliver(1, &header, b"hello");
            IS_EXEMPT.set(true);
            until("the answer leaves", || wire.count() == header.sequence + 1);
        }
        ALLOCATIONS.load(Ordering::Relaxed)
    });
}
