//! lst 8: STAT.

use lnet_proto::lst::{
    Brw, Check, Direction, LnetCounters, LstService, Reply, ReplyBody, Request, RequestBody, SessionId,
    Statistics,
};
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::node::{Outcome, RpcEnd, Served};

use crate::kit::{Bench, ON, ORDERS, brw_test, emit, make_session, ping_test, process, sid, status};

#[test]
fn the_rows_of_stat() {
    for order in ORDERS {
        let stat = |sid| RequestBody::Stat { sid, kind: 0 };
        let mut bench = Bench::new(order);
        assert_eq!(bench.ask(stat(SessionId::NONE)).status, status(Errno::EINVAL));
        assert_eq!(bench.ask(stat(sid(1))).status, status(Errno::ESRCH));
        bench.ask(make_session(1, 0, "one"));
        let foreign = bench.ask(stat(sid(2)));
        assert_eq!((foreign.status, foreign.sid), (status(Errno::ESRCH), sid(1)));
        assert_eq!(foreign.body, ReplyBody::Stat(Statistics::default()));
        assert_eq!(bench.ask(stat(sid(1))).status, 0);
    }
}

/// Each field of the reply has the number of its own events.
#[test]
fn each_counter_counts_its_events() {
    let mut bench = Bench::in_session(ORDERS[0]);
    let data = bench.framework.data_service();
    let to = [process("10.0.0.2@tcp")];
    bench.ask(RequestBody::Test(brw_test(Direction::READ, Check::NONE, 8)));
    bench.add_client(ping_test(), &to);
    bench.add_client(brw_test(Direction::WRITE, Check::NONE, 8), &[to[0]; 2]);
    let lnet = LnetCounters {
        messages: 1,
        messages_max: 2,
        errors: 3,
        sent: 4,
        received: 5,
        routed: 6,
        dropped: 7,
        bytes_sent: 8,
        bytes_received: 9,
        bytes_routed: 10,
        bytes_dropped: 11,
    };
    let ids = Ids::new(0);
    // One ping expires, one BRW fails, one is still running.
    let mut units: Vec<_> = bench.run(2).collect();
    for unit in &mut units {
        assert!(unit.begin(&ids, &mut [0; 8], 0).is_some());
    }
    units[0].ended(RpcEnd::Expired, &[], 1);
    units[1].ended(RpcEnd::Failed(Errno::EHOSTUNREACH), &[], 1);
    units.drain(..2);
    // A read of 16 bytes, a write of 24, one that fails, one that is no request.
    for (direction, length) in [(Direction::READ, 16), (Direction::WRITE, 24)] {
        let body = RequestBody::Brw(Brw { bulk_id: 1, direction, length, check: Check::NONE });
        let (Served::Push(transfer) | Served::Pull(transfer)) = data.brw(&Request::new(ON, 3, body).emit())
        else {
            panic!("{direction:?}")
        };
        assert!(matches!(data.finish(&transfer, Ok(&vec![0; length as usize])), Served::Reply(_)));
        assert!(matches!(data.finish(&transfer, Err(Errno::EIO)), Served::Drop(_)));
    }
    assert!(matches!(data.ping(&[]), Served::Drop(_)));
    bench.now_ns = 4_321_999_999;
    let request = bench.request(RequestBody::Stat { sid: sid(1), kind: 0 });
    let outcome =
        bench.framework.handle(LstService::Stat, &emit(&request, bench.order), || lnet, bench.now_ns);
    let Outcome::Reply(answer) = outcome else { panic!("{outcome:?}") };
    let Reply { status: 0, body: ReplyBody::Stat(found), .. } = bench.read(LstService::Stat, &answer) else {
        panic!("it is a reply of STAT")
    };
    let expected = Statistics {
        session_ms: 4321,
        active_batches: 1,
        zombie_sessions: 0,
        brw_errors: 1,
        ping_errors: 1,
        rpc_errors: 3,
        rpcs_sent: 3,
        // MKSN, three TEST, RUN, STAT; two BRW and what was no PING.
        rpcs_received: 9,
        rpcs_dropped: 3,
        rpcs_expired: 1,
        bulk_got: 12 + 24 + 24,
        bulk_put: 16,
        lnet,
    };
    assert_eq!(found, expected);
    drop(units);
    assert_eq!(bench.statistics().active_batches, 0);
}

/// The session's fields begin anew with each session, the node's go on.
#[test]
fn counters_of_the_session_end_with_it() {
    let mut bench = Bench::in_session(ORDERS[0]);
    let ids = Ids::new(0);
    bench.add_client(ping_test(), &[process("10.0.0.2@tcp")]);
    let mut unit = bench.run(2).next().unwrap();
    assert!(unit.begin(&ids, &mut [], 0).is_some());
    unit.ended(RpcEnd::Expired, &[], 0);
    bench.now_ns = 5_000_000_000;
    assert_eq!(bench.statistics().ping_errors, 1);
    bench.ask(make_session(2, 1, "two"));
    bench.ask(make_session(1, 1, "one"));
    let Statistics { session_ms, ping_errors, rpcs_expired, rpcs_sent, zombie_sessions, .. } =
        bench.statistics();
    assert_eq!((session_ms, ping_errors, rpcs_expired, rpcs_sent, zombie_sessions), (0, 0, 1, 1, 1));
    // An error of a unit of the ended session does not count for the new one.
    unit.ended(RpcEnd::Expired, &[], 0);
    assert_eq!(bench.statistics().ping_errors, 0);
}

/// The milliseconds of a session are 32 bits, which are full after 49 days.
#[test]
fn the_time_of_a_session_wraps_around() {
    let mut bench =
        Bench::with(ORDERS[0], nlx_lst::node::Config { session_timeout_ns: 0, ..Default::default() });
    bench.ask(make_session(1, 0, "one"));
    bench.now_ns = ((1 << 32) + 17) * 1_000_000;
    assert_eq!(bench.statistics().session_ms, 17);
}
