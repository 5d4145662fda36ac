//! The protocol on a service: over a transport in memory, with real worker threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lnet_api::Errno;
use lnet_nid::MatchBits;
use lnet_node::{Node, NodeConfig};
use lnet_region::{IoVec, Region};
use nlx_service::rpc::{BULK_MIN_NS, Decision, HEADER, Rpc, RpcHandler, RpcRequest};
use nlx_service::{BufferOptions, Pool, PoolOptions, Service};
use nlx_testkit::until;
use parking_lot::{Condvar, Mutex};

use super::wire::Wire;
use super::*;

const CLIENT: u32 = 5;

/// What a request asks for, in its first byte.
const ECHO: u8 = 0;
const HOLD: u8 = 1;
const BULK: u8 = 2;
const PANIC: u8 = 3;

/// Answers with the request's bytes, after what its first byte says.
#[derive(Default)]
struct Echo {
    ran: AtomicU32,
    /// Requests of the kind `HOLD` wait until this is set.
    is_released: Mutex<bool>,
    released: Condvar,
}

impl RpcHandler<Wire> for Echo {
    type State = ();

    fn request(&self, request: RpcRequest<'_, Wire, ()>) -> Decision<MatchBits, IoVec> {
        self.ran.fetch_add(1, Ordering::Release);
        match request.bytes[0] {
            HOLD => {
                let mut is_released = self.is_released.lock();
                self.released.wait_while(&mut is_released, |is_released| !*is_released);
            }
            BULK => {
                let memory = IoVec::whole(Region::heap(1).unwrap());
                return Decision::Pull { offer: MatchBits(1), memory };
            }
            PANIC => panic!("a handler that panics"),
            _ => {}
        }
        request.answer[..request.bytes.len()].copy_from_slice(request.bytes);
        Decision::Answer { length: request.bytes.len() }
    }

    fn moved(
        &self,
        _: RpcRequest<'_, Wire, ()>,
        outcome: Result<usize, Errno>,
    ) -> Decision<MatchBits, IoVec> {
        Decision::Refuse(outcome.unwrap_err())
    }
}

struct Bed {
    wire: Wire,
    service: Arc<Service<Wire, Rpc<Wire, Echo>>>,
    _pool: Pool,
    _node: Node,
    session: u64,
}

impl Bed {
    /// One partition with one worker, and a client with a session.
    fn new() -> Bed {
        let node = Node::start(&NodeConfig::new()).unwrap();
        let options = PoolOptions { threads_min: 1, threads_max: 1, ..PoolOptions::default() };
        let pool = Pool::start("test", node.drive(), 1, options).unwrap();
        let wire = Wire::default();
        wire.keep(true);
        let rpc = Rpc::new(&pool, &ResponderOptions::default(), Echo::default()).unwrap();
        let service = Service::start(&pool, wire.clone(), BufferOptions::default(), rpc).unwrap();
        let mut bed = Bed { wire, service, _pool: pool, _node: node, session: 0 };
        bed.wire.deliver(CLIENT, &message(Kind::Open, CLIENT, 0, 0), b"");
        let (to, header, _) = bed.next();
        assert_eq!((to, header.kind), (CLIENT, Kind::Opened));
        bed.session = header.session;
        bed
    }

    fn request(&self, slot: u16, time_ms: u32, attempt: u8) -> Header {
        Header { slot, time_ms, attempt, length: 1, ..message(Kind::Once, CLIENT, self.session, 1) }
    }

    /// Waits for the next message of the service.
    fn next(&self) -> (u32, Header, Vec<u8>) {
        let mut next = None;
        until("the service sends a message", || {
            next = self.wire.next();
            next.is_some()
        });
        next.unwrap()
    }

    fn handler(&self) -> &Echo {
        self.service.handler().handler()
    }
}

/// A request has one worker, and a second one waits for it: both are announced, in time and when they
/// are repeated, although no worker is free.
// Covers: S-313
#[test]
fn early_replies_leave_while_all_workers_are_busy() {
    let bed = Bed::new();
    let requests = [bed.request(0, 200, 1), bed.request(1, 200, 1)];
    requests.iter().for_each(|request| bed.wire.deliver(CLIENT, request, &[HOLD]));
    // By slot.
    let mut early = [0; 2];
    while early.contains(&0) {
        let (_, header, _) = bed.next();
        assert_eq!((header.kind, header.sequence), (Kind::Early, 1));
        assert!(header.time_ms >= 100);
        early[usize::from(header.slot)] += 1;
    }
    // A request with much time is announced only when it is repeated.
    let patient = bed.request(2, 3_600_000, 1);
    bed.wire.deliver(CLIENT, &patient, &[ECHO]);
    bed.wire.deliver(CLIENT, &Header { attempt: 2, ..patient }, &[ECHO]);
    while bed.next().1.slot != 2 {}
    let echo = bed.handler();
    *echo.is_released.lock() = true;
    echo.released.notify_all();
    let mut answered = 0;
    while answered < 3 {
        answered += u32::from(bed.next().1.kind == Kind::Answer);
    }
    let counters = bed.service.handler().counters();
    assert_eq!((counters.requests, counters.ignored, echo.ran.load(Ordering::Acquire)), (3, 1, 3));
    assert!(counters.early >= 3);
    assert!(bed.service.handler().estimate_ns(Class::Normal, 0) >= 150 * MS_NS);
}

// Covers: S-313
#[test]
fn a_repetition_gets_the_stored_answer() {
    let bed = Bed::new();
    let request = bed.request(0, 60_000, 1);
    bed.wire.deliver(CLIENT, &request, &[ECHO]);
    let (_, first, body) = bed.next();
    assert_eq!((first.kind, first.status, first.slot, &body[..]), (Kind::Answer, 0, 0, &[ECHO][..]));
    bed.wire.deliver(CLIENT, &Header { attempt: 2, ..request }, &[ECHO]);
    let (_, second, body) = bed.next();
    assert_eq!((second.kind, second.attempt, &body[..]), (Kind::Answer, 2, &[ECHO][..]));
    assert_eq!(bed.handler().ran.load(Ordering::Acquire), 1);
    // A request of an unknown session is refused.
    bed.wire.deliver(CLIENT, &Header { session: request.session ^ 1, ..request }, &[ECHO]);
    let (_, refused, _) = bed.next();
    assert_eq!((refused.kind, refused.status), (Kind::Refusal, Errno::ESTALE as u32));
    let (sessions, bytes) = bed.service.handler().sessions();
    assert!(sessions == 1 && bytes >= 1);
}

/// Bulk that never ends is cancelled when the client stops waiting, but not at once.
// Covers: S-313
#[test]
fn bulk_ends_with_the_clients_patience() {
    let bed = Bed::new();
    let begun = std::time::Instant::now();
    bed.wire.deliver(CLIENT, &bed.request(0, 10, 1), &[BULK]);
    let refused = loop {
        let (_, header, _) = bed.next();
        if header.kind != Kind::Early {
            break header;
        }
    };
    assert_eq!((refused.kind, refused.status), (Kind::Answer, Errno::ECANCELED as u32));
    assert!(begun.elapsed() >= Duration::from_nanos(BULK_MIN_NS));
}

/// A request whose handler panics is dropped: its repetitions are, too, and nothing announces it.
// Covers: S-313
#[test]
fn a_panic_ends_a_request() {
    let bed = Bed::new();
    let request = bed.request(0, 3_600_000, 1);
    bed.wire.deliver(CLIENT, &request, &[PANIC]);
    let ended = || bed.service.counters()[0].dropped == 1;
    until("the request ends", ended);
    bed.wire.deliver(CLIENT, &Header { attempt: 2, ..request }, &[PANIC]);
    // The answer to a later request comes next.
    bed.wire.deliver(CLIENT, &bed.request(1, 60_000, 1), &[ECHO]);
    let (_, header, _) = bed.next();
    assert_eq!((header.kind, header.slot), (Kind::Answer, 1));
    let counters = bed.service.handler().counters();
    assert_eq!((counters.early, counters.ignored), (0, 1));
}

/// An answer that does not fit, and a message that is none, end as the protocol says.
// Covers: S-313
#[test]
fn what_is_malformed_is_dropped_and_counted() {
    let bed = Bed::new();
    let request = bed.request(0, 60_000, 1);
    bed.wire.deliver(CLIENT, &Header { length: 7, ..request }, &[ECHO]);
    bed.wire.deliver(CLIENT, &Header { kind: Kind::Answer, ..request }, &[ECHO]);
    bed.wire.deliver(CLIENT, &request, &[ECHO]);
    let (_, header, body) = bed.next();
    assert_eq!((header.kind, body.len() + HEADER), (Kind::Answer, HEADER + 1));
    assert_eq!(bed.service.handler().counters().malformed, 2);
    // A body that is no table of offers.
    bed.wire.deliver(CLIENT, &Header { has_offers: true, ..bed.request(1, 60_000, 1) }, &[ECHO]);
    let (_, header, _) = bed.next();
    assert_eq!((header.kind, header.status), (Kind::Answer, Errno::EBADMSG as u32));
    assert_eq!(bed.handler().ran.load(Ordering::Acquire), 1);
}
