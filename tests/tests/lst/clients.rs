//! The test clients of a node of nlx, which a raw console runs against raw nodes.

use nlx_testkit::until;
use nlx_tests::judge::lst::console::Bulk;
use nlx_tests::judge::lst::data::{DISCARD, FULL, NONE, READ, SIMPLE, WRITE};
use nlx_tests::judge::lst::message::{NO_SESSION, service, status};
use nlx_tests::judge::lst::node::Fault;
use nlx_tests::judge::lst::{Console, Lst, Sender, TestFields};
use nlx_tests::judge::wire::{Nid, Order};

use crate::place::{Place, SERVER, Server, begin, list, wait_for};

/// The TEST of a client with one unit.
const CLIENT: TestFields = TestFields { is_client: 1, destinations: 1, ..SERVER };
/// The opcodes of BATCH.
const RUN: u32 = 1;
const STOP: u32 = 2;

/// Adds a client of these servers to a batch.
fn add(console: &mut Console<'_>, test: Lst, servers: &[Server]) {
    let nids: Vec<Nid> = servers.iter().map(|server| server.nid).collect();
    let offer = Bulk::Offer(list(console.sender.order, &nids));
    assert_eq!(console.call_bulk(service::TEST, test, offer).unwrap().reply.status(), 0);
}

/// Sends a BATCH request that succeeds.
fn batch(console: &mut Console<'_>, batch: u64, op: u32, argument: u32) {
    let request = console.sender.batch(batch, op, 0, argument);
    assert_eq!(console.call(service::BATCH, request).unwrap().status(), 0);
}

/// Returns the errors of a session's clients: those of BRW, those of PING.
fn errors(console: &mut Console<'_>) -> (u32, u32) {
    let stat = console.call(service::STAT, console.sender.stat()).unwrap();
    assert_eq!(stat.status(), 0);
    (stat.at(56), stat.at(60))
}

/// Every kind of test, in both forms of its parameter and from consoles of both byte orders, does
/// exactly the RPCs of its request, at each of its destinations.
// Covers: S-313
#[test]
fn a_batch_does_its_rpcs_at_every_destination() {
    for (order, features) in [(Order::Little, 1), (Order::Big, 1), (Order::Little, 0), (Order::Big, 0)] {
        Place::nlx(2).with_servers(2, |place, servers| every_kind(place, servers, order, features));
    }
}

fn every_kind(place: &Place, servers: &[Server], order: Order, features: u32) {
    let mut console = place.console(order);
    console.sender.features = features;
    let sender = console.sender;
    begin(&mut console);
    let mut moved = (0, 0);
    let checks = [NONE, SIMPLE, FULL, DISCARD];
    let kinds: Vec<_> = [READ, WRITE].into_iter().flat_map(|way| checks.map(|check| (way, check))).collect();
    let kinds = [None].into_iter().chain(kinds.into_iter().map(Some));
    let count = kinds.clone().count() as u32;
    for (number, kind) in kinds.enumerate() {
        let number = number as u64 + 2;
        let fields = TestFields { batch: number, repeats: 3, concurrency: 2, destinations: 2, ..CLIENT };
        let test = match kind {
            None => sender.test(&fields),
            Some((way, check)) => {
                let length = if features == 1 { 12_296 } else { 3 };
                sender.test_brw(&TestFields { service: 11, ..fields }, way as u16, check as u16, length)
            }
        };
        add(&mut console, test, servers);
        let before = [0, 1].map(|at| servers[at].raw.counters());
        batch(&mut console, number, RUN, 0);
        wait_for(&mut console, number, 0, 0);
        let bytes = if features == 1 { 12_296 } else { 12_288 };
        let (got, put) = match kind {
            None => (0, 0),
            Some((WRITE, _)) => (6 * bytes, 0),
            Some(_) => (0, 6 * bytes),
        };
        for (server, before) in servers.iter().zip(before) {
            let now = server.raw.counters();
            assert_eq!((now.received - before.received, now.dropped), (6, 0), "{kind:?}");
            assert_eq!((now.bulk_got - before.bulk_got, now.bulk_put - before.bulk_put), (got, put));
        }
        moved = (moved.0 + got, moved.1 + put);
    }
    assert!(moved.0 > 0 && moved.0 == moved.1);
    let stat = console.call(service::STAT, sender.stat()).unwrap();
    assert_eq!((stat.status(), stat.at(68)), (0, 12 * count));
    assert!([48, 52, 56, 60, 64, 76, 80].iter().all(|&at| stat.at(at) == 0), "{stat:?}");
    // The lists of destinations are all that it has fetched as a server.
    assert_eq!((stat.wide(84), stat.wide(92)), (u64::from(count) * 24, 0));
    let ended = console.call(service::RMSN, sender.rmsn()).unwrap();
    assert_eq!((ended.status(), ended.session()), (0, NO_SESSION));
}

/// A wrong answer ends its unit alone, and is counted once.
#[test]
fn a_wrong_answer_stops_its_unit_only() {
    Place::nlx(1).with_servers(1, |place, servers| {
        let mut console = place.console(Order::Little);
        begin(&mut console);
        let sender = console.sender;
        let cases = [
            (12, 0, Fault::Status(status::EPROTO)),
            (11, READ, Fault::WrongData),
            (11, READ, Fault::Status(status::EINVAL)),
            (11, WRITE, Fault::Status(status::EBADMSG)),
        ];
        let mut due = (0, 0);
        for (number, (service, way, fault)) in cases.into_iter().enumerate() {
            let number = number as u64 + 2;
            let fields = TestFields { batch: number, service, repeats: 3, concurrency: 2, ..CLIENT };
            let test = match service {
                11 => sender.test_brw(&fields, way as u16, SIMPLE as u16, 8192),
                _ => sender.test(&fields),
            };
            add(&mut console, test, servers);
            let before = servers[0].received();
            servers[0].raw.misbehave(service.into(), fault);
            batch(&mut console, number, RUN, 0);
            wait_for(&mut console, number, 0, 0);
            // The first request ends its unit; the other unit does its three.
            assert_eq!(servers[0].received() - before, 4, "{fault:?}");
            due = if service == 11 { (due.0 + 1, due.1) } else { (due.0, due.1 + 1) };
            assert_eq!(errors(&mut console), due, "{fault:?}");
        }
    });
}

/// RPCs that a server does not answer keep a batch active after a STOP; one with force aborts them.
#[test]
fn force_stops_rpcs_without_an_answer() {
    for (service, way, fault) in
        [(12, 0, Fault::NoReply), (11, READ, Fault::Dies), (11, WRITE, Fault::NoReply)]
    {
        Place::nlx(1).with_servers(1, |place, servers| {
            let mut console = place.console(Order::Little);
            begin(&mut console);
            let fields = TestFields { service, repeats: u32::MAX, ..CLIENT };
            let test = match service {
                11 => console.sender.test_brw(&fields, way as u16, FULL as u16, 4096),
                _ => console.sender.test(&fields),
            };
            add(&mut console, test, servers);
            servers[0].raw.misbehave(service.into(), fault);
            batch(&mut console, 1, RUN, 0);
            until("the request has arrived", || servers[0].received() == 1);
            wait_for(&mut console, 1, 0, 1);
            batch(&mut console, 1, STOP, 1);
            wait_for(&mut console, 1, 0, 0);
            assert_eq!(errors(&mut console), (0, 0), "what a stop aborts is no error");
            batch(&mut console, 1, RUN, 0);
            until("the batch runs again", || servers[0].received() > 3);
            batch(&mut console, 1, STOP, 0);
            wait_for(&mut console, 1, 0, 0);
            assert_eq!(console.call(service::RMSN, console.sender.rmsn()).unwrap().status(), 0);
        });
    }
}

/// A batch outlives its console; the next console ends it by force.
// Covers: S-313
#[test]
fn a_console_that_dies_leaves_a_running_batch_and_the_next_one_takes_the_node() {
    Place::nlx(2).with_servers(2, |place, servers| {
        let mut console = place.console(Order::Little);
        begin(&mut console);
        let ping = TestFields { repeats: u32::MAX, concurrency: 4, destinations: 2, ..CLIENT };
        let test = console.sender.test(&ping);
        add(&mut console, test, servers);
        // Not WRITE: a raw node serves nothing while it waits for data that were withdrawn.
        let read = TestFields { service: 11, ..ping };
        let test = console.sender.test_brw(&read, READ as u16, FULL as u16, 65_536);
        add(&mut console, test, servers);
        batch(&mut console, 1, RUN, 0);
        drop(console);
        let put = servers[1].raw.counters().bulk_put;
        until("the batch goes on", || servers[1].raw.counters().bulk_put > put + (1 << 20));

        let mut console = place.console(Order::Little);
        console.sender = Sender { sid: (console.sender.sid.0, 7), ..console.sender };
        let sender = console.sender;
        let busy = console.call(service::MKSN, sender.mksn(0, "next")).unwrap();
        assert_eq!((busy.status(), busy.text(48)), (status::EBUSY, "judge".to_string()));
        assert_ne!(busy.session(), sender.sid);
        let taken = console.call(service::MKSN, sender.mksn(1, "next")).unwrap();
        assert_eq!((taken.status(), taken.session()), (0, sender.sid));
        // The old session is a zombie until its units have ended.
        while console.call(service::STAT, sender.stat()).unwrap().at(52) > 0 {}
        assert!(place.clients().is_empty());
        let test = sender.test(&TestFields { repeats: 5, destinations: 2, ..CLIENT });
        add(&mut console, test, servers);
        let before = servers[0].received();
        batch(&mut console, 1, RUN, 0);
        wait_for(&mut console, 1, 0, 0);
        // A server may also get requests of the old session now, which were sent before it ended.
        assert!(servers[0].received() - before >= 5);
        assert_eq!(errors(&mut console), (0, 0));
        assert_eq!(console.call(service::RMSN, sender.rmsn()).unwrap().status(), 0);
    });
}

/// A list that the console does not offer is not waited for by other requests, and adds no client.
#[test]
fn a_list_that_cannot_be_fetched_gets_no_reply() {
    let place = Place::nlx(1);
    let mut console = place.console(Order::Little);
    begin(&mut console);
    let request = console.sender.test(&CLIENT).u64(32, 0xdead);
    console.send(service::TEST, request, Bulk::None).unwrap();
    // Cut off, it is refused.
    let short = console.call_bulk(service::TEST, console.sender.test(&CLIENT), Bulk::Offer(vec![0; 11]));
    assert_eq!(short.unwrap().reply.status(), status::EINVAL);
    let debug = console.call(service::DEBUG, console.sender.debug()).unwrap();
    assert_eq!(debug.status(), 0);
    assert!(place.clients().is_empty());
    let ended = console.call(service::RMSN, console.sender.rmsn()).unwrap();
    assert_eq!((ended.status(), ended.session()), (0, NO_SESSION));
}
