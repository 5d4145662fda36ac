//! lst 6 and 9.1: TEST requests.

use lnet_proto::ByteOrder;
use lnet_proto::lst::{BatchOp, BrwParameter, Check, Direction, LstService, RequestBody, SessionId, Test};
use nix::errno::Errno;
use nlx_lst::node::{
    BATCHES_MAX, Config, Count, INSTANCE_BYTES, INSTANCES_MAX, MEMORY_MAX, Outcome, RequestDropReason,
    UNIT_BYTES, Work,
};

use crate::kit::{
    Bench, OFF, ON, ORDERS, SECOND, batch, brw_test, list, make_session, ping_test, process, sid, status,
};

/// The numbers that are refused before the session is looked at.
#[test]
fn numbers_out_of_range_are_refused_without_a_session() {
    let client = Test { is_client: true, destinations: 1, ..ping_test() };
    let any = SessionId { nid4: u64::MAX, stamp: 1 };
    let refused = [
        Test { service: 10, ..ping_test() },
        Test { service: 13, ..ping_test() },
        Test { repeats: 0, ..ping_test() },
        Test { concurrency: 0, ..ping_test() },
        Test { concurrency: 1025, ..ping_test() },
        Test { sid: any, ..ping_test() },
        Test { destinations: 87_297, ..ping_test() },
        Test { destinations: 87_297, ..client },
        Test { destinations: 0, ..client },
    ];
    for order in ORDERS {
        for test in refused {
            let body = RequestBody::Test(test);
            assert_eq!(Bench::new(order).ask(body).status, status(Errno::EINVAL), "{test:?}");
            assert_eq!(Bench::in_session(order).ask(body).status, status(Errno::EINVAL), "{test:?}");
        }
        for test in [ping_test(), client, Test { concurrency: 1024, ..ping_test() }] {
            let body = RequestBody::Test(test);
            assert_eq!(Bench::new(order).ask(body).status, status(Errno::ENOENT), "{test:?}");
            let foreign = RequestBody::Test(Test { sid: sid(2), ..test });
            let reply = Bench::in_session(order).ask(foreign);
            assert_eq!((reply.status, reply.sid), (status(Errno::ENOENT), sid(1)));
        }
    }
}

#[test]
fn a_server_is_added_to_a_batch_that_it_makes() {
    for order in ORDERS {
        let mut bench = Bench::in_session(order);
        let data = bench.framework.data_service();
        assert_eq!(bench.query(2, 0).0, status(Errno::ENOENT));
        assert!(!data.has_server(LstService::Ping));
        assert_eq!(bench.ask(RequestBody::Test(ping_test())).status, 0);
        assert!(data.has_server(LstService::Ping) && !data.has_server(LstService::Brw));
        assert_eq!((bench.query(2, 0), bench.query(2, 1)), ((0, 0), (0, 0)));
        assert_eq!(bench.query(2, 2).0, status(Errno::ENOENT));
        bench.ask(RequestBody::RemoveSession { sid: sid(1) });
        assert!(!data.has_server(LstService::Ping));
    }
}

#[test]
fn a_client_is_added_when_its_list_has_come() {
    let to = [process("10.0.0.2@tcp"), process("10.0.0.3@tcp1"), process("10.0.0.2@o2ib")];
    for order in ORDERS {
        let mut bench = Bench::in_session(order);
        let test = Test { concurrency: 4, ..brw_test(Direction::WRITE, Check::FULL, 8192) };
        assert_eq!(bench.add_client(test, &to).status, 0);
        let clients: Vec<_> = bench.framework.clients().collect();
        assert_eq!(clients.len(), 1);
        let instance = &clients[0].instance;
        assert_eq!((clients[0].batch, clients[0].test, instance.destinations()), (2, 1, &to[..]));
        let work = Work::Brw { direction: Direction::WRITE, check: Check::FULL, length: 8192 };
        assert_eq!((instance.work(), instance.units(), instance.running()), (work, 12, 0));
        for destination in to {
            let units = bench.run(2).filter(|unit| unit.destination() == destination);
            assert_eq!(units.count(), 4);
        }
        assert_eq!(bench.framework.data_service().counters().total(Count::BulkGot), 36);
    }
}

#[test]
fn a_test_is_not_added_to_a_running_batch() {
    let mut bench = Bench::in_session(ORDERS[0]);
    bench.add_client(ping_test(), &[process("10.0.0.2@tcp")]);
    let units = bench.run(2);
    assert_eq!(bench.ask(RequestBody::Test(ping_test())).status, status(Errno::EBUSY));
    let client = Test { is_client: true, destinations: 1, ..ping_test() };
    assert_eq!(bench.ask(RequestBody::Test(client)).status, status(Errno::EBUSY));
    assert_eq!(bench.ask(RequestBody::Test(Test { batch: 3, ..ping_test() })).status, 0);
    drop(units);
    assert_eq!(bench.ask(RequestBody::Test(ping_test())).status, 0);
}

/// Direction, check, length, offset, and whether lst 9.1 or 13 refuses them.
#[test]
fn parameters_of_brw_are_refused_after_the_list_was_fetched() {
    let rows = [
        ((1, 1, 8, 0), true),
        ((2, 4, 1 << 20, 0), true),
        ((1, 3, 4096, 8192), true),
        ((1, 3, 4088, 8), true),
        ((0, 1, 4096, 0), false),
        ((3, 1, 4096, 0), false),
        ((1, 0, 4096, 0), false),
        ((1, 5, 4096, 0), false),
        ((1, 1, 4096, 4), false),
        ((1, 1, (1 << 20) + 8, 0), false),
        // These stop kernel nodes.
        ((1, 1, 0, 0), false),
        ((1, 1, 4100, 0), false),
        ((1, 1, 4096, 8), false),
    ];
    for order in ORDERS {
        for ((direction, check, length, offset), accepted) in rows {
            let mut bench = Bench::in_session(order);
            let brw = BrwParameter { direction: Direction(direction), check: Check(check), length, offset };
            let test = brw_test(Direction::READ, Check::NONE, 8).with_brw(&brw, ON).unwrap();
            let reply = bench.add_client(test, &[process("10.0.0.2@tcp")]);
            assert_eq!(reply.status, if accepted { 0 } else { status(Errno::EINVAL) }, "{brw:?}");
            assert_eq!(bench.query(2, 0), (0, 0), "the batch exists in any case");
            assert_eq!(bench.query(2, 1).0, if accepted { 0 } else { status(Errno::ENOENT) });
        }
    }
}

/// Pages, and the bytes of each transfer.
#[test]
fn lengths_are_pages_without_the_feature() {
    for order in ORDERS {
        for (pages, length) in
            [(1, Some(4096)), (256, Some(1 << 20)), (257, None), (0, None), (u32::MAX, None)]
        {
            let mut bench = Bench::new(order);
            bench.features = OFF;
            bench.ask(make_session(1, 0, "one"));
            let brw =
                BrwParameter { direction: Direction::READ, check: Check::FULL, length: pages, offset: 0 };
            let test = brw_test(Direction::READ, Check::NONE, 8).with_brw(&brw, OFF).unwrap();
            let reply = bench.add_client(test, &[process("10.0.0.2@tcp")]);
            assert_eq!(reply.status == 0, length.is_some(), "{pages}");
            let work = bench.framework.clients().next().map(|client| client.instance.work());
            let expected =
                length.map(|length| Work::Brw { direction: Direction::READ, check: Check::FULL, length });
            assert_eq!(work, expected);
        }
    }
}

#[test]
fn requests_that_stop_kernel_nodes_are_counted() {
    for order in ORDERS {
        let mut bench = Bench::in_session(order);
        let unaligned =
            BrwParameter { direction: Direction::READ, check: Check::NONE, length: 4096, offset: 8 };
        for test in [
            brw_test(Direction::READ, Check::NONE, 0),
            brw_test(Direction::READ, Check::NONE, 12),
            brw_test(Direction::READ, Check::NONE, 8).with_brw(&unaligned, ON).unwrap(),
            brw_test(Direction(7), Check::NONE, 8),
        ] {
            bench.add_client(test, &[process("10.0.0.2@tcp")]);
        }
        bench.ask(RequestBody::Test(Test { service: 4, ..ping_test() }));
        let data = bench.framework.data_service();
        let is_swapped = u64::from(order == ByteOrder::Big);
        assert_eq!(Count::FATAL.map(|count| data.counters().total(count)), [0, 2, 1, is_swapped]);
    }
}

#[test]
fn a_get_that_fails_gets_no_reply() {
    let mut bench = Bench::in_session(ORDERS[0]);
    let data = bench.framework.data_service();
    for (errno, errors) in [(Errno::ETIMEDOUT, 1), (Errno::ECANCELED, 1)] {
        let fetch = bench.fetch(ping_test(), 1);
        let outcome = bench.framework.fetched(&fetch, Err(errno), 0);
        assert!(matches!(outcome, Outcome::Drop(RequestDropReason::Bulk(of)) if of == errno), "{outcome:?}");
        assert_eq!(data.counters().total(Count::Errors), errors);
    }
    assert_eq!(data.counters().total(Count::Dropped), 2);
    assert_eq!((bench.query(2, 0), bench.query(2, 1).0), ((0, 0), status(Errno::ENOENT)));
}

#[test]
fn a_list_of_no_interfaces_or_of_another_length_is_refused() {
    let mut bench = Bench::in_session(ORDERS[0]);
    let good = list(&[process("10.0.0.2@tcp")], ByteOrder::Little);
    for bad in [&[0xff; 12][..], &good[..11], &[], &[&good[..], &good[..]].concat()] {
        let fetch = bench.fetch(ping_test(), 1);
        let Outcome::Reply(answer) = bench.framework.fetched(&fetch, Ok(bad), 0) else { panic!("{bad:?}") };
        assert_eq!(bench.read(LstService::Test, &answer).status, status(Errno::EINVAL));
    }
    assert_eq!(bench.framework.clients().count(), 0);
}

/// The session expires, another one begins, or the batch starts while the node fetches the list.
#[test]
fn a_list_that_comes_too_late_is_refused() {
    let to = list(&[process("10.0.0.2@tcp")], ByteOrder::Little);
    type Change = fn(&mut Bench);
    let changes: [(Change, Errno); 3] = [
        (|bench| bench.now_ns = 100 * SECOND, Errno::ENOENT),
        (|bench| assert_eq!(bench.ask(make_session(2, 1, "two")).status, 0), Errno::ENOENT),
        (
            |bench| {
                bench.add_client(ping_test(), &[process("10.0.0.2@tcp")]);
                std::mem::forget(bench.run(2));
            },
            Errno::EBUSY,
        ),
    ];
    for (change, errno) in changes {
        let mut bench = Bench::in_session(ORDERS[0]);
        let fetch = bench.fetch(ping_test(), 1);
        change(&mut bench);
        let Outcome::Reply(answer) = bench.framework.fetched(&fetch, Ok(&to), bench.now_ns) else {
            panic!("it is a reply")
        };
        let reply = lnet_proto::lst::Reply::parse(LstService::Test, &answer.bytes).unwrap();
        assert_eq!(reply.status, status(errno));
    }
}

#[test]
fn units_beyond_the_memory_limit_get_enomem() {
    let to = [process("10.0.0.2@tcp")];
    let megabyte = |concurrency| Test { concurrency, ..brw_test(Direction::READ, Check::NONE, 1 << 20) };
    let mut bench = Bench::in_session(ORDERS[0]);
    assert_eq!(bench.add_client(megabyte(1024), &to).status, 0);
    assert_eq!(bench.add_client(megabyte(1024), &to).status, 0);
    assert_eq!(bench.add_client(megabyte(1024), &to).status, status(Errno::ENOMEM));
    // What the units of one session used can be used by the next.
    bench.ask(make_session(2, 1, "two"));
    bench.ask(make_session(1, 1, "one"));
    assert_eq!(bench.add_client(megabyte(1024), &to).status, 0);

    let most = Test { concurrency: 1024, ..ping_test() };
    let all = vec![to[0]; 87_296];
    assert_eq!(bench.add_client(most, &all).status, status(Errno::ENOMEM));
    assert_eq!(bench.add_client(ping_test(), &all).status, 0);
}

#[test]
fn memory_of_an_ended_session_is_free_when_its_last_unit_has_ended() {
    let to = [process("10.0.0.2@tcp")];
    let memory_max = 10 * INSTANCE_BYTES + UNIT_BYTES + (40 << 10);
    let mut bench = Bench::with(ORDERS[0], Config { memory_max, ..Config::default() });
    bench.ask(make_session(1, 0, "one"));
    assert_eq!(bench.add_client(ping_test(), &to).status, 0);
    let units = bench.run(2);
    bench.ask(make_session(2, 1, "two"));
    bench.ask(make_session(1, 1, "one"));
    assert_eq!(bench.add_client(ping_test(), &to).status, status(Errno::ENOMEM));
    drop(units);
    assert_eq!(bench.statistics().zombie_sessions, 0);
    assert_eq!(bench.add_client(ping_test(), &to).status, 0);
    assert!(memory_max < MEMORY_MAX);
}

#[test]
fn batches_and_their_tests_are_limited() {
    let mut bench = Bench::in_session(ORDERS[0]);
    for id in 0..BATCHES_MAX as u64 {
        assert_eq!(bench.ask(RequestBody::Test(Test { batch: id, ..ping_test() })).status, 0);
    }
    let another = Test { batch: u64::MAX, ..ping_test() };
    assert_eq!(bench.ask(RequestBody::Test(another)).status, status(Errno::ENOMEM));
    for _ in 1..INSTANCES_MAX {
        assert_eq!(bench.ask(RequestBody::Test(Test { batch: 0, ..ping_test() })).status, 0);
    }
    let full = Test { batch: 0, ..ping_test() };
    assert_eq!(bench.ask(RequestBody::Test(full)).status, status(Errno::ENOMEM));
    assert_eq!(bench.ask(batch(1, 0, BatchOp::QUERY, INSTANCES_MAX as u32, 0)).status, 0);
}
