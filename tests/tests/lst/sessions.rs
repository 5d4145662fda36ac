//! Whole sessions between the raw console and the raw node.

use nlx_tests::judge::lst::console::Bulk;
use nlx_tests::judge::lst::data::{DISCARD, FULL, LENGTH_MAX, NONE, READ, SIMPLE, WRITE, filled, is_right};
use nlx_tests::judge::lst::message::{NO_SESSION, PING_MAGIC, service, status};
use nlx_tests::judge::lst::node::Fault;
use nlx_tests::judge::lst::{Console, TestFields};
use nlx_tests::judge::wire::Order;

use crate::Place;

const SERVER: TestFields =
    TestFields { batch: 1, service: 12, repeats: 1, concurrency: 1, is_client: 0, destinations: 0 };

/// Makes a session and adds a server instance.
fn begin(console: &mut Console<'_>) {
    let made = console.call(service::MKSN, console.sender.mksn(0, "judge")).unwrap();
    assert_eq!((made.status(), made.session(), made.at(44)), (0, console.sender.sid, 100));
    let added = console.call(service::TEST, console.sender.test(&SERVER)).unwrap();
    assert_eq!(added.status(), 0);
}

#[test]
fn a_session_with_pings_and_bulk() {
    let place = Place::new(1);
    let mut console = place.console(Order::Little);
    begin(&mut console);
    for sequence in 0..3 {
        let reply = console.call(service::PING, console.sender.ping(sequence)).unwrap();
        assert_eq!((reply.status(), reply.at(28), reply.at(32)), (0, PING_MAGIC, sequence));
    }
    let mut moved = 0;
    for check in [NONE, SIMPLE, FULL, DISCARD] {
        for length in [8, 4096, 4104, LENGTH_MAX] {
            let request = console.sender.brw(READ, length, check);
            let answer = console.call_bulk(service::BRW, request, Bulk::Await(length as usize)).unwrap();
            assert_eq!((answer.reply.status(), answer.bulk.len()), (0, length as usize));
            assert!(is_right(&answer.bulk, check, Order::Little));
            let data = filled(length as usize, check, Order::Little);
            let request = console.sender.brw(WRITE, length, check);
            let answer = console.call_bulk(service::BRW, request, Bulk::Offer(data)).unwrap();
            assert_eq!(answer.reply.status(), 0);
            moved += u64::from(length);
        }
    }
    let stat = console.call(service::STAT, console.sender.stat()).unwrap();
    // MKSN, TEST, 3 PINGs, 32 BRWs, and the STAT itself.
    assert_eq!((stat.status(), stat.at(72), stat.at(76)), (0, 38, 0));
    assert_eq!((stat.wide(84), stat.wide(92)), (moved, moved));
    let debug = console.call(service::DEBUG, console.sender.debug()).unwrap();
    assert_eq!((debug.status(), debug.at(44), debug.text(52)), (0, 100, "judge".to_string()));
    let ended = console.call(service::RMSN, console.sender.rmsn()).unwrap();
    assert_eq!((ended.status(), ended.session()), (0, NO_SESSION));
}

#[test]
fn wrong_data_of_a_write_are_found_where_the_check_looks() {
    let place = Place::new(2);
    let mut console = place.console(Order::Little);
    // The word at 16 is inside a page: a simple check does not look at it.
    for (check, at, due) in
        [(NONE, 0, 0), (SIMPLE, 0, status::EBADMSG), (SIMPLE, 16, 0), (FULL, 16, status::EBADMSG)]
    {
        let mut data = filled(8192, check, Order::Little);
        data[at] ^= 1;
        let request = console.sender.brw(WRITE, 8192, check);
        let answer = console.call_bulk(service::BRW, request, Bulk::Offer(data)).unwrap();
        assert_eq!(answer.reply.status(), due, "check {check}, byte {at}");
    }
}

#[test]
fn a_client_test_fetches_its_destinations_and_is_run_and_stopped() {
    let place = Place::new(3);
    for order in [Order::Little, Order::Big] {
        let mut console = place.console(order);
        begin(&mut console);
        let nids: Vec<u64> = (10..13).map(|last| place.target.own.turned(last).small()).collect();
        let list: Vec<u8> =
            nids.iter().flat_map(|&nid| [&order.u64(nid)[..], &order.u32(12345)].concat()).collect();
        let endless = TestFields { repeats: u32::MAX, is_client: 1, ..SERVER };
        let fields = TestFields { concurrency: 2, destinations: 3, ..endless };
        let request = console.sender.test(&fields);
        let answer = console.call_bulk(service::TEST, request, Bulk::Offer(list.clone())).unwrap();
        assert_eq!(answer.reply.status(), 0);
        assert_eq!(place.node.destinations().last(), Some(&list));
        // The operation, the index, and the expected status and number.
        let steps = [
            (3, 0, 0, 0),
            (1, 0, 0, 0),
            (3, 0, 0, 1),
            (3, 1, 0, 0),
            (3, 2, 0, 6),
            (3, 3, status::ENOENT, 0),
            (3, u32::MAX, status::EINVAL, 0),
            (2, 0, 0, 0),
            (3, 0, 0, 0),
        ];
        for (op, index, status, active) in steps {
            let reply = console.call(service::BATCH, console.sender.batch(1, op, index, 0)).unwrap();
            assert_eq!((reply.status(), reply.at(44)), (status, active), "operation {op}, index {index}");
        }
        assert_eq!(console.call(service::RMSN, console.sender.rmsn()).unwrap().status(), 0);
    }
}

#[test]
fn a_misbehaving_node_is_seen_as_such() {
    let place = Place::new(4);
    let mut console = place.console(Order::Little);
    begin(&mut console);
    let debug = console.sender.debug();
    place.node.misbehave(service::DEBUG, Fault::Features(6));
    assert_eq!(console.call(service::DEBUG, debug.clone()).unwrap().features(), 6);
    place.node.misbehave(service::DEBUG, Fault::Session((1, 2)));
    assert_eq!(console.call(service::DEBUG, debug.clone()).unwrap().session(), (1, 2));
    place.node.misbehave(service::TEST, Fault::Status(status::ENOMEM));
    let refused = console.call(service::TEST, console.sender.test(&SERVER)).unwrap();
    assert_eq!(refused.status(), status::ENOMEM);
    place.node.misbehave(service::BRW, Fault::WrongData);
    let request = console.sender.brw(READ, 4096, SIMPLE);
    let answer = console.call_bulk(service::BRW, request.clone(), Bulk::Await(4096)).unwrap();
    assert!(!is_right(&answer.bulk, SIMPLE, Order::Little));
    // A late reply comes after the next one.
    place.node.misbehave(service::DEBUG, Fault::Late);
    let late = console.send(service::DEBUG, debug.clone(), Bulk::None).unwrap();
    assert_eq!(console.call(service::PING, console.sender.ping(0)).unwrap().status(), 0);
    assert_eq!(console.answer(service::DEBUG, late).unwrap().reply.status(), 0);
    // Without a reply, the next one is that to the next request.
    place.node.misbehave(service::DEBUG, Fault::NoReply);
    console.send(service::DEBUG, debug, Bulk::None).unwrap();
    assert_eq!(console.call(service::PING, console.sender.ping(1)).unwrap().at(32), 1);
    place.node.misbehave(service::BRW, Fault::Dies);
    let end = console.call_bulk(service::BRW, request, Bulk::Await(4096)).unwrap_err();
    assert!(end.contains("closed"), "{end}");
}
