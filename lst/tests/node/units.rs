//! lst 9.2: the units of a test.

use lnet_proto::ByteOrder;
use lnet_proto::lst::{
    Check, Direction, Features, LstService, Reply, ReplyBody, Request, RequestBody, SessionId, Test,
};
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::node::{BulkBuffer, Config, Count, RpcEnd, Unit, UnitRpc};
use nlx_lst::pattern::{self, PAGE_SIZE};

use crate::kit::{Bench, ON, ORDERS, SECOND, brw_test, make_session, ping_test, process};

/// The units of a batch with this test only.
fn units(bench: &mut Bench, test: Test) -> Vec<Unit> {
    assert_eq!(bench.add_client(test, &[process("10.0.0.2@tcp")]).status, 0);
    bench.run(2).collect()
}

/// The reply of a server that has nothing to complain of, in its byte order.
fn good_reply(rpc: &UnitRpc, order: ByteOrder) -> Vec<u8> {
    let (request, _) = Request::parse(rpc.service, &rpc.request).unwrap();
    let body = match request.body {
        RequestBody::Ping { sequence, .. } => ReplyBody::Ping { sequence },
        _ => ReplyBody::Brw,
    };
    let reply = Reply { features: ON, status: 0, sid: SessionId::NONE, body };
    let mut bytes = reply.emit().to_vec();
    if order == ByteOrder::Big {
        // A data service's reply has fields of 4 bytes only.
        bytes[..36].chunks_mut(4).for_each(<[u8]>::reverse);
    }
    bytes
}

#[test]
fn a_ping_is_sent_and_its_reply_recognised() {
    for order in ORDERS {
        let mut bench = Bench::in_session(order);
        let mut units = units(&mut bench, Test { repeats: 2, ..ping_test() });
        let ids = Ids::new(3);
        let unit = &mut units[0];
        let rpc = unit.begin(&ids, &mut [], 7 * SECOND + 5).unwrap();
        assert_eq!((rpc.to, rpc.service, rpc.bulk), (process("10.0.0.2@tcp"), LstService::Ping, None));
        assert_eq!((rpc.reply_id, rpc.deadline_ns), (3 << 48, 71 * SECOND + 5));
        let body = RequestBody::Ping { sequence: 0, seconds: 7, nanoseconds: 5 };
        assert_eq!(rpc.request, Request::new(ON, 3 << 48, body).emit());
        unit.ended(RpcEnd::Reply(&good_reply(&rpc, order)), &[], 7 * SECOND + 1005);
        let latency = unit.instance().results().latency();
        assert_eq!((latency.len(), unit.instance().results().errors()), (1, 0));
        assert!(latency.equivalent(latency.max(), 1000));
        let rpc = unit.begin(&ids, &mut [], 0).unwrap();
        assert!(matches!(
            Request::parse(LstService::Ping, &rpc.request).unwrap().0.body,
            RequestBody::Ping { sequence: 1, .. }
        ));
    }
}

#[test]
fn all_units_of_a_node_number_their_pings_together() {
    let mut bench = Bench::in_session(ORDERS[0]);
    let ids = Ids::new(0);
    let mut sequences = Vec::new();
    let mut units = units(&mut bench, Test { concurrency: 3, ..ping_test() });
    for unit in &mut units {
        let rpc = unit.begin(&ids, &mut [], 0).unwrap();
        let (request, _) = Request::parse(LstService::Ping, &rpc.request).unwrap();
        let RequestBody::Ping { sequence, .. } = request.body else { panic!("{request:?}") };
        sequences.push(sequence);
    }
    assert_eq!(sequences, [0, 1, 2]);
}

/// The reply id is taken first, and the request has length and check of the test, and no offset.
#[test]
fn a_brw_offers_its_buffer() {
    for (direction, is_sink) in [(Direction::READ, true), (Direction::WRITE, false)] {
        let mut bench = Bench::in_session(ORDERS[0]);
        let mut units = units(&mut bench, brw_test(direction, Check::SIMPLE, 8192));
        let mut buffer = vec![0; units[0].instance().work().bulk_length()];
        let rpc = units[0].begin(&Ids::new(0), &mut buffer, 0).unwrap();
        assert_eq!((rpc.reply_id, rpc.bulk), (0, Some(BulkBuffer { id: 1, is_sink, length: 8192 })));
        let (request, _) = Request::parse(LstService::Brw, &rpc.request).unwrap();
        let RequestBody::Brw(brw) = request.body else { panic!("{request:?}") };
        assert_eq!((brw.bulk_id, brw.direction, brw.length, brw.check), (1, direction, 8192, Check::SIMPLE));
        let mut expected = vec![0; 8192];
        let prepare = if is_sink { pattern::poison } else { pattern::fill };
        prepare(Check::SIMPLE, PAGE_SIZE, &mut expected);
        assert_eq!(buffer, expected);
    }
}

#[test]
fn requests_have_the_features_of_their_session() {
    let mut bench = Bench::new(ORDERS[0]);
    bench.features = Features::NONE;
    bench.ask(make_session(1, 0, "one"));
    let brw = lnet_proto::lst::BrwParameter {
        direction: Direction::WRITE,
        check: Check::FULL,
        length: 2,
        offset: 0,
    };
    let test = brw_test(Direction::READ, Check::NONE, 8).with_brw(&brw, Features::NONE).unwrap();
    let mut units = units(&mut bench, test);
    let rpc = units[0].begin(&Ids::new(0), &mut [0; 8192], 0).unwrap();
    let (request, _) = Request::parse(LstService::Brw, &rpc.request).unwrap();
    let RequestBody::Brw(brw) = request.body else { panic!("{request:?}") };
    assert_eq!((request.features, brw.length, brw.check), (Features::NONE, 8192, Check::FULL));
}

/// Loop counts, and the RPCs that are done; `None` is without end.
#[test]
fn units_do_as_many_rpcs_as_the_test_says() {
    for (repeats, expected) in [(1, Some(1)), (5, Some(5)), (u32::MAX, None), (1 << 31, None)] {
        let mut bench = Bench::in_session(ORDERS[0]);
        let mut units = units(&mut bench, Test { repeats, ..ping_test() });
        // And each run begins with the same number.
        for _ in 0..2 {
            let ids = Ids::new(0);
            let mut done = 0;
            while done < 1000 {
                let Some(rpc) = units[0].begin(&ids, &mut [], 0) else { break };
                units[0].ended(RpcEnd::Reply(&good_reply(&rpc, ByteOrder::Little)), &[], 0);
                done += 1;
            }
            assert_eq!(done, expected.unwrap_or(1000));
            units.clear();
            units.extend(bench.run(2));
        }
    }
}

/// Each row: what ends the RPC, changed from a good reply; whether it is an error.
#[test]
fn what_is_an_error() {
    type Change = fn(&mut Vec<u8>, &mut Vec<u8>);
    let rows: [(Change, bool); 10] = [
        (|_, _| {}, false),
        (|_, data| data[20] = 1, false),
        (|reply, _| reply[24] = 5, true),
        (|reply, _| reply[8] = 15, true),
        (|reply, _| reply[0] = 0, true),
        (|reply, _| reply[4] = 2, true),
        (|reply, _| reply.truncate(159), true),
        (|reply, _| reply.clear(), true),
        (|_, data| data[0] ^= 1, true),
        (|_, data| data.truncate(8184), true),
    ];
    for (change, is_error) in rows {
        let mut bench = Bench::in_session(ORDERS[0]);
        let mut units = units(&mut bench, brw_test(Direction::READ, Check::SIMPLE, 8192));
        let mut data = vec![0; 8192];
        let rpc = units[0].begin(&Ids::new(0), &mut data, 0).unwrap();
        let mut reply = good_reply(&rpc, ByteOrder::Little);
        pattern::fill(Check::SIMPLE, PAGE_SIZE, &mut data);
        change(&mut reply, &mut data);
        units[0].ended(RpcEnd::Reply(&reply), &data, 1);
        let instance = units[0].instance();
        assert_eq!(
            (instance.results().errors(), instance.results().latency().len()),
            (is_error.into(), (!is_error).into())
        );
        let statistics = bench.statistics();
        assert_eq!((statistics.brw_errors, statistics.ping_errors), (is_error.into(), 0));
    }
}

#[test]
fn another_sequence_or_inner_magic_is_a_ping_error() {
    for at in [28, 32] {
        let mut bench = Bench::in_session(ORDERS[0]);
        let mut units = units(&mut bench, ping_test());
        let rpc = units[0].begin(&Ids::new(0), &mut [], 0).unwrap();
        let mut reply = good_reply(&rpc, ByteOrder::Little);
        reply[at] ^= 1;
        units[0].ended(RpcEnd::Reply(&reply), &[], 1);
        assert_eq!((bench.statistics().ping_errors, bench.statistics().brw_errors), (1, 0));
    }
}

#[test]
fn the_data_of_a_read_are_checked_in_the_order_of_the_server() {
    for order in ORDERS {
        for filled in ORDERS {
            let mut bench = Bench::in_session(ORDERS[0]);
            let mut units = units(&mut bench, brw_test(Direction::READ, Check::FULL, 64));
            let mut data = vec![0; 64];
            let rpc = units[0].begin(&Ids::new(0), &mut data, 0).unwrap();
            pattern::fill(Check::FULL, PAGE_SIZE, &mut data);
            if filled == ByteOrder::Big {
                data.chunks_mut(8).for_each(<[u8]>::reverse);
            }
            units[0].ended(RpcEnd::Reply(&good_reply(&rpc, order)), &data, 1);
            assert_eq!(bench.statistics().brw_errors, u32::from(order != filled));
        }
    }
}

/// Whether the test stops on errors; the ends, and the counters they count in: errors of LNet, RPCs
/// that expired.
#[test]
fn with_stop_on_error_only_the_unit_with_the_error_stops() {
    for stop_on_error in [false, true] {
        for (end, counted) in [
            (RpcEnd::Failed(Errno::EHOSTUNREACH), (1, 0)),
            (RpcEnd::Failed(Errno::ECANCELED), (0, 0)),
            (RpcEnd::Expired, (0, 1)),
            (RpcEnd::Reply(&[]), (0, 0)),
        ] {
            let mut bench = Bench::in_session(ORDERS[0]);
            let test = Test { repeats: 9, concurrency: 2, stop_on_error, ..ping_test() };
            let mut units = units(&mut bench, test);
            let ids = Ids::new(0);
            assert!(units.iter_mut().all(|unit| unit.begin(&ids, &mut [], 0).is_some()));
            units[0].ended(end, &[], 0);
            assert_eq!(units[0].begin(&ids, &mut [], 0).is_none(), stop_on_error);
            assert_eq!(bench.statistics().ping_errors, 1);
            let data = bench.framework.data_service();
            let counters = data.counters();
            assert_eq!((counters.total(Count::Errors), counters.total(Count::Expired)), counted);
            units[1].ended(RpcEnd::Aborted, &[], 0);
            assert_eq!(units[1].begin(&ids, &mut [], 0).is_none(), stop_on_error);
        }
    }
}

#[test]
fn errors_while_a_test_is_stopped_do_not_count() {
    for force in [0, 1] {
        let mut bench = Bench::in_session(ORDERS[0]);
        let mut units = units(&mut bench, ping_test());
        assert!(units[0].begin(&Ids::new(0), &mut [], 0).is_some());
        bench.ask(crate::kit::batch(1, 2, lnet_proto::lst::BatchOp::STOP, 0, force));
        units[0].ended(if force == 1 { RpcEnd::Aborted } else { RpcEnd::Expired }, &[], 0);
        assert_eq!((bench.statistics().ping_errors, units[0].instance().results().errors()), (0, 0));
    }
}

#[test]
fn without_rpc_timeout_an_rpc_waits_for_ever() {
    let mut bench = Bench::with(ORDERS[0], Config { rpc_timeout_ns: 0, ..Config::default() });
    bench.ask(make_session(1, 0, "one"));
    let mut units = units(&mut bench, ping_test());
    assert_eq!(units[0].begin(&Ids::new(0), &mut [], 5).unwrap().deadline_ns, u64::MAX);
}

#[test]
fn results_can_be_read_after_the_session() {
    let mut bench = Bench::in_session(ORDERS[0]);
    let mut units = units(&mut bench, Test { concurrency: 20, ..ping_test() });
    let instance = bench.framework.clients().next().unwrap().instance;
    bench.ask(make_session(2, 1, "two"));
    let ids = Ids::new(0);
    for unit in &mut units {
        assert!(unit.begin(&ids, &mut [], 0).is_none());
    }
    drop(units);
    assert_eq!((instance.running(), instance.results().latency().len()), (0, 0));
}
