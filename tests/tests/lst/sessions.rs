//! Whole sessions between the raw console and each kind of node.

use nlx_tests::judge::lst::Lst;
use nlx_tests::judge::lst::TestFields;
use nlx_tests::judge::lst::console::Bulk;
use nlx_tests::judge::lst::data::{DISCARD, FULL, LENGTH_MAX, NONE, READ, SIMPLE, WRITE, filled, is_right};
use nlx_tests::judge::lst::message::{NO_SESSION, PING_MAGIC, service, status};
use nlx_tests::judge::lst::node::Fault;
use nlx_tests::judge::wire::{Nid, Order};

use crate::place::{Place, SERVER, Tested, begin, list, wait_for};

// Covers: S-313
#[test]
fn a_session_with_pings_and_bulk() {
    for order in [Order::Little, Order::Big] {
        Place::each().iter().for_each(|place| pings_and_bulk(place, order));
    }
}

fn pings_and_bulk(place: &Place, order: Order) {
    let mut console = place.console(order);
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
            assert!(is_right(&answer.bulk, check, Order::Little), "{}", place.name());
            let data = filled(length as usize, check, order);
            let request = console.sender.brw(WRITE, length, check);
            let answer = console.call_bulk(service::BRW, request, Bulk::Offer(data)).unwrap();
            assert_eq!(answer.reply.status(), 0);
            moved += u64::from(length);
        }
    }
    let stat = console.call(service::STAT, console.sender.stat()).unwrap();
    // MKSN, 2 TESTs, 3 PINGs, 32 BRWs, and the STAT itself; none was dropped.
    assert_eq!((stat.status(), stat.at(72), stat.at(76)), (0, 39, 0), "{}", place.name());
    assert_eq!((stat.wide(84), stat.wide(92)), (moved, moved));
    // No batch, zombie or error, and nothing sent or expired as a client.
    assert!([48, 52, 56, 60, 64, 68, 80].iter().all(|&at| stat.at(at) == 0), "{stat:?}");
    let debug = console.call(service::DEBUG, console.sender.debug()).unwrap();
    assert_eq!((debug.status(), debug.at(44), debug.text(52)), (0, 100, "judge".to_string()));
    let ended = console.call(service::RMSN, console.sender.rmsn()).unwrap();
    assert_eq!((ended.status(), ended.session()), (0, NO_SESSION));
}

#[test]
fn wrong_data_of_a_write_are_found_where_the_check_looks() {
    for place in Place::each() {
        let mut console = place.console(Order::Little);
        begin(&mut console);
        // The word at 16 is inside a page: a simple check does not compare it.
        for (check, at, due) in
            [(NONE, 0, 0), (SIMPLE, 0, status::EBADMSG), (SIMPLE, 16, 0), (FULL, 16, status::EBADMSG)]
        {
            let mut data = filled(8192, check, Order::Little);
            data[at] ^= 1;
            let request = console.sender.brw(WRITE, 8192, check);
            let answer = console.call_bulk(service::BRW, request, Bulk::Offer(data)).unwrap();
            assert_eq!(answer.reply.status(), due, "{}, check {check}, byte {at}", place.name());
        }
    }
}

#[test]
fn a_client_test_fetches_its_destinations_and_is_run_and_stopped() {
    for place in Place::each() {
        for order in [Order::Little, Order::Big] {
            run_and_stop(&place, order);
        }
    }
}

fn run_and_stop(place: &Place, order: Order) {
    let mut console = place.console(order);
    begin(&mut console);
    let servers = [(); 3].map(|()| place.server());
    let nids: Vec<Nid> = servers.iter().map(|server| server.nid).collect();
    let list = list(order, &nids);
    let endless = TestFields { repeats: u32::MAX, is_client: 1, ..SERVER };
    let request = console.sender.test(&TestFields { concurrency: 2, destinations: 3, ..endless });
    let answer = console.call_bulk(service::TEST, request, Bulk::Offer(list.clone())).unwrap();
    assert_eq!(answer.reply.status(), 0);
    if let Tested::Raw(node) = &place.node {
        assert_eq!(node.destinations().last(), Some(&list));
    }
    let sender = console.sender;
    let mut call = |op, index| {
        let reply: Lst = console.call(service::BATCH, sender.batch(1, op, index, 0)).unwrap();
        (reply.status(), reply.at(44))
    };
    assert_eq!([call(3, 0), call(1, 0), call(3, 0)], [(0, 0), (0, 0), (0, 1)], "{}", place.name());
    // The units of two servers and of the client.
    assert_eq!([call(3, 1), call(3, 2), call(3, 3)], [(0, 0), (0, 0), (0, 6)]);
    assert_eq!([call(3, 4), call(3, u32::MAX)], [(status::ENOENT, 0), (status::EINVAL, 0)]);
    let test = sender.test(&SERVER);
    assert_eq!(call(2, 0), (0, 0));
    wait_for(&mut console, 1, 0, 0);
    assert_eq!(console.call(service::TEST, test).unwrap().status(), 0, "an idle batch takes a test");
    assert_eq!(console.call(service::RMSN, console.sender.rmsn()).unwrap().status(), 0);
}

#[test]
fn a_misbehaving_node_is_seen_as_such() {
    let place = Place::raw();
    let Tested::Raw(node) = &place.node else { unreachable!("a raw place has a raw node") };
    let mut console = place.console(Order::Little);
    begin(&mut console);
    let debug = console.sender.debug();
    node.misbehave(service::DEBUG, Fault::Features(6));
    assert_eq!(console.call(service::DEBUG, debug.clone()).unwrap().features(), 6);
    node.misbehave(service::DEBUG, Fault::Session((1, 2)));
    assert_eq!(console.call(service::DEBUG, debug.clone()).unwrap().session(), (1, 2));
    node.misbehave(service::TEST, Fault::Status(status::ENOMEM));
    let refused = console.call(service::TEST, console.sender.test(&SERVER)).unwrap();
    assert_eq!(refused.status(), status::ENOMEM);
    node.misbehave(service::BRW, Fault::WrongData);
    let request = console.sender.brw(READ, 4096, SIMPLE);
    let answer = console.call_bulk(service::BRW, request.clone(), Bulk::Await(4096)).unwrap();
    assert!(!is_right(&answer.bulk, SIMPLE, Order::Little));
    // A late reply comes after the next one.
    node.misbehave(service::DEBUG, Fault::Late);
    let late = console.send(service::DEBUG, debug.clone(), Bulk::None).unwrap();
    assert_eq!(console.call(service::PING, console.sender.ping(0)).unwrap().status(), 0);
    assert_eq!(console.answer(service::DEBUG, late).unwrap().reply.status(), 0);
    // Without a reply, the next one is that to the next request.
    node.misbehave(service::DEBUG, Fault::NoReply);
    console.send(service::DEBUG, debug, Bulk::None).unwrap();
    assert_eq!(console.call(service::PING, console.sender.ping(1)).unwrap().at(32), 1);
    node.misbehave(service::BRW, Fault::Dies);
    let end = console.call_bulk(service::BRW, request, Bulk::Await(4096)).unwrap_err();
    assert!(end.contains("closed"), "{end}");
}
