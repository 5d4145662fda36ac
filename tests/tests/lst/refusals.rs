//! The refusals of lst 6 and 7, row by row.

use nlx_tests::judge::lst::message::{FRAMEWORK, Lst, NO_SESSION, service, status};
use nlx_tests::judge::lst::{Console, Sender, TestFields};
use nlx_tests::judge::wire::Order;

use crate::Place;

const SERVER: TestFields =
    TestFields { batch: 1, service: 12, repeats: 1, concurrency: 1, is_client: 0, destinations: 0 };

/// Sends each request and compares the status of its reply; the reply must have this session.
fn refused(console: &mut Console<'_>, cases: Vec<(u64, Lst, u32)>, session: (u64, u64)) {
    for (number, (to, request, due)) in cases.into_iter().enumerate() {
        let reply = console.call(to, request).unwrap();
        assert_eq!((reply.status(), reply.session()), (due, session), "case {number}");
    }
}

#[test]
fn requests_without_a_session_are_refused() {
    let place = Place::new(10);
    for order in [Order::Little, Order::Big] {
        let mut console = place.console(order);
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
        refused(&mut console, cases, NO_SESSION);
    }
}

#[test]
fn requests_beside_a_session_are_refused() {
    let place = Place::new(11);
    let mut console = place.console(Order::Little);
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
    refused(&mut console, cases, sender.sid);
    // By force, the other session takes its place.
    let forced = console.call(service::MKSN, other.mksn(1, "second")).unwrap();
    assert_eq!((forced.status(), forced.session()), (0, other.sid));
    let ended = console.call(service::RMSN, other.rmsn()).unwrap();
    assert_eq!((ended.status(), ended.session()), (0, NO_SESSION));
}

#[test]
fn data_requests_are_refused() {
    let place = Place::new(12);
    let mut console = place.console(Order::Little);
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

#[test]
fn malformed_requests_get_no_reply_and_are_counted() {
    let place = Place::new(13);
    let mut console = place.console(Order::Little);
    let sender = console.sender;
    assert_eq!(console.call(service::MKSN, sender.mksn(0, "x")).unwrap().status(), 0);
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
        console.send(to, request, nlx_tests::judge::lst::console::Bulk::None).unwrap();
    }
    // The next reply is that to the next request.
    let stat = console.call(service::STAT, sender.stat()).unwrap();
    assert_eq!((stat.status(), stat.at(72), stat.at(76)), (0, 8, 6));
}
