//! The refusals of lst 6 and 7, row by row, at each kind of node.

use nlx_tests::judge::lst::console::Bulk;
use nlx_tests::judge::lst::message::{FRAMEWORK, Lst, NO_SESSION, service, status};
use nlx_tests::judge::lst::{Console, Sender, TestFields};
use nlx_tests::judge::wire::Order;

use crate::place::{Place, SERVER, begin, list, wait_for};

/// Sends each request and compares the status of its reply; the reply must have this session.
fn refused(console: &mut Console<'_>, cases: Vec<(u64, Lst, u32)>, session: (u64, u64)) {
    for (number, (to, request, due)) in cases.into_iter().enumerate() {
        let reply = console.call(to, request).unwrap();
        assert_eq!((reply.status(), reply.session()), (due, session), "case {number}");
    }
}

// Covers: S-313
#[test]
fn requests_without_a_session_are_refused() {
    for place in Place::each() {
        for order in [Order::Little, Order::Big] {
            without_a_session(&mut place.console(order));
        }
    }
}

fn without_a_session(console: &mut Console<'_>) {
    let sender = console.sender;
    let any = Sender { sid: NO_SESSION, ..sender };
    let test = |fields: TestFields| sender.test(&fields);
    let cases = vec![
        (service::MKSN, any.mksn(0, "x"), status::EINVAL),
        (service::MKSN, sender.mksn(0, "x").u32(20, 2), status::EPROTO),
        (service::DEBUG, sender.debug().u32(20, 3), status::EPROTO),
        (service::DEBUG, sender.debug(), status::ESRCH),
        (service::DEBUG, sender.debug().u32(4, 2), status::EPROTO),
        (service::RMSN, any.rmsn(), status::EINVAL),
        (service::RMSN, sender.rmsn(), status::ESRCH),
        (service::STAT, any.stat(), status::EINVAL),
        (service::STAT, sender.stat(), status::ESRCH),
        (service::BATCH, sender.batch(1, 3, 0, 0), status::ESRCH),
        (service::TEST, test(SERVER), status::ENOENT),
        (service::TEST, test(TestFields { repeats: 0, ..SERVER }), status::EINVAL),
        (service::TEST, test(TestFields { concurrency: 0, ..SERVER }), status::EINVAL),
        (service::TEST, test(TestFields { concurrency: 1025, ..SERVER }), status::EINVAL),
        (service::TEST, test(TestFields { service: 1, ..SERVER }), status::EINVAL),
        (service::TEST, test(TestFields { is_client: 1, ..SERVER }), status::EINVAL),
        (service::TEST, test(TestFields { destinations: 87_297, ..SERVER }), status::EINVAL),
        (service::TEST, any.test(&SERVER), status::EINVAL),
    ];
    refused(console, cases, NO_SESSION);
}

// Covers: S-313
#[test]
fn requests_beside_a_session_are_refused() {
    Place::each().iter().for_each(|place| beside_a_session(&mut place.console(Order::Little)));
}

fn beside_a_session(console: &mut Console<'_>) {
    let sender = console.sender;
    let other = Sender { sid: (sender.sid.0, 1), ..sender };
    assert_eq!(console.call(service::MKSN, sender.mksn(0, "first")).unwrap().status(), 0);
    let busy = console.call(service::MKSN, other.mksn(0, "second")).unwrap();
    assert_eq!((busy.status(), busy.at(44), busy.text(48)), (status::EBUSY, 100, "first".to_string()));
    let cases = vec![
        (service::RMSN, other.rmsn(), status::EBUSY),
        (service::STAT, other.stat(), status::ESRCH),
        (service::STAT, sender.stat().u32(20, 0), status::EPROTO),
        (service::BATCH, other.batch(1, 3, 0, 0), status::ESRCH),
        (service::BATCH, sender.batch(9, 1, 0, 0), status::ENOENT),
        (service::TEST, other.test(&SERVER), status::ENOENT),
        (service::DEBUG, other.debug(), 0),
        (service::DEBUG, sender.debug().u32(20, 0), 0),
        (service::MKSN, sender.mksn(0, "again").u32(20, 0), 0),
        (service::RMSN, sender.rmsn(), 0),
    ];
    refused(console, cases, sender.sid);
    // By force, the other session takes its place.
    let forced = console.call(service::MKSN, other.mksn(1, "second")).unwrap();
    assert_eq!((forced.status(), forced.session()), (0, other.sid));
    let ended = console.call(service::RMSN, other.rmsn()).unwrap();
    assert_eq!((ended.status(), ended.session()), (0, NO_SESSION));
}

/// A batch that runs takes no test; nothing that it refuses changes it.
#[test]
fn a_running_batch_refuses_tests() {
    for place in Place::each() {
        let mut console = place.console(Order::Little);
        begin(&mut console);
        let sender = console.sender;
        let server = place.server();
        let client = TestFields { repeats: u32::MAX, is_client: 1, destinations: 1, ..SERVER };
        let offer = || Bulk::Offer(list(Order::Little, &[server.nid]));
        assert_eq!(
            console.call_bulk(service::TEST, sender.test(&client), offer()).unwrap().reply.status(),
            0
        );
        assert_eq!(console.call(service::BATCH, sender.batch(1, 1, 0, 0)).unwrap().status(), 0);
        let cases = vec![
            (service::TEST, sender.test(&SERVER), status::EBUSY),
            (service::TEST, sender.test(&client), status::EBUSY),
            (service::BATCH, sender.batch(1, 1, 0, 0), 0),
        ];
        refused(&mut console, cases, sender.sid);
        wait_for(&mut console, 1, 0, 1);
        assert_eq!(console.call(service::BATCH, sender.batch(1, 2, 0, 1)).unwrap().status(), 0);
        wait_for(&mut console, 1, 0, 0);
    }
}

/// Parameters of clients that a node refuses after it has fetched the list, with their status.
#[test]
fn parameters_of_clients_are_refused() {
    for place in Place::each() {
        let mut console = place.console(Order::Little);
        begin(&mut console);
        let fields = TestFields { service: 11, is_client: 1, destinations: 1, ..SERVER };
        let sender = console.sender;
        let test = |direction, check, length| sender.test_brw(&fields, direction, check, length);
        let cases = [
            (test(0, 1, 4096), status::EINVAL),
            (test(3, 1, 4096), status::EINVAL),
            (test(1, 0, 4096), status::EINVAL),
            (test(2, 5, 4096), status::EINVAL),
            (test(2, 1, (1 << 20) + 8), status::EINVAL),
            (test(2, 1, 0), status::EINVAL),
            (test(2, 1, 4096).u32(90, 4), status::EINVAL),
            (test(2, 4, 1 << 20), 0),
        ];
        for (number, (request, due)) in cases.into_iter().enumerate() {
            let list = list(Order::Little, &[place.target.own]);
            let reply = console.call_bulk(service::TEST, request, Bulk::Offer(list)).unwrap().reply;
            assert_eq!((reply.status(), reply.session()), (due, sender.sid), "case {number}");
        }
        // Only the last one was added, behind the two servers.
        let mut query = |index| console.call(service::BATCH, sender.batch(1, 3, index, 0)).unwrap().status();
        assert_eq!([query(3), query(4)], [0, status::ENOENT], "{}", place.name());
    }
}

// Covers: S-313
#[test]
fn data_requests_are_refused() {
    Place::each().iter().for_each(|place| data_requests(&mut place.console(Order::Little)));
}

fn data_requests(console: &mut Console<'_>) {
    begin(console);
    let sender = console.sender;
    let cases = [
        (sender.brw(3, 4096, 1), status::EINVAL),
        (sender.brw(1, 4096, 5), status::EINVAL),
        (sender.brw(1, 0, 1), status::EINVAL),
        (sender.brw(1, (1 << 20) + 8, 1), status::EINVAL),
        (sender.brw(1, 4095, 1), status::EINVAL),
        (sender.brw(1, 4104, 1).u32(20, 0), status::EINVAL),
        (sender.brw(1, 4096, 1).u32(20, 2), status::EPROTO),
    ];
    for (number, (request, due)) in cases.into_iter().enumerate() {
        assert_eq!(console.call(service::BRW, request).unwrap().status(), due, "case {number}");
    }
    let ping = console.call(service::PING, sender.ping(7).u32(20, 2)).unwrap();
    assert_eq!((ping.status(), ping.features(), ping.at(32)), (status::EPROTO, 1, 7));
}

// Covers: S-313
#[test]
fn malformed_requests_get_no_reply_and_are_counted() {
    Place::each().iter().for_each(|place| malformed(&mut place.console(Order::Little)));
}

fn malformed(console: &mut Console<'_>) {
    begin(console);
    let sender = console.sender;
    let debug = sender.debug();
    for bytes in [&debug.bytes[..159], &[&debug.bytes[..], &[0]].concat()] {
        console.send_raw(FRAMEWORK, service::DEBUG, bytes).unwrap();
    }
    let silent = [
        (service::DEBUG, debug.clone().u32(0, 1)),
        (service::DEBUG, sender.stat()),
        (service::PING, sender.ping(0).u32(32, 1)),
        (service::BATCH, sender.batch(1, 1, 0, 0).u32(8, 5)),
    ];
    for (to, request) in silent {
        console.send(to, request, Bulk::None).unwrap();
    }
    // The services count side by side, so a STAT may come before the count of the PING. MKSN, 2
    // TESTs and 6 malformed requests came before the first one.
    for received in 10.. {
        let stat = console.call(service::STAT, sender.stat()).unwrap();
        if stat.at(76) == 6 {
            return assert_eq!((stat.status(), stat.at(72)), (0, received));
        }
    }
}
