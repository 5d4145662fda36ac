//! lst 6: BATCH requests, and the end of sessions with running units.

use lnet_proto::lst::{BatchOp, RequestBody, Test};
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::node::{Outcome, RequestDropReason, Unit};

use crate::kit::{Bench, ORDERS, SECOND, batch, make_session, ping_test, process, sid, status};

/// A node with a server, a client of 2 units and a client of 6 units in batch 2.
fn bench(order: lnet_proto::ByteOrder) -> Bench {
    let to = ["10.0.0.2@tcp", "10.0.0.3@tcp", "10.0.0.4@tcp"].map(process);
    let mut bench = Bench::in_session(order);
    bench.ask(RequestBody::Test(ping_test()));
    bench.add_client(Test { concurrency: 2, ..ping_test() }, &to[..1]);
    bench.add_client(Test { concurrency: 2, ..ping_test() }, &to);
    bench
}

#[test]
fn batch_requests_need_the_session_and_a_batch() {
    for order in ORDERS {
        for op in [BatchOp::RUN, BatchOp::STOP, BatchOp::QUERY, BatchOp(4)] {
            let mut idle = Bench::new(order);
            assert_eq!(idle.ask(batch(1, 2, op, 0, 0)).status, status(Errno::ESRCH));
            let mut bench = bench(order);
            let foreign = bench.ask(batch(3, 2, op, 0, 0));
            assert_eq!((foreign.status, foreign.sid), (status(Errno::ESRCH), sid(1)));
            assert_eq!(bench.ask(batch(1, 9, op, 0, 0)).status, status(Errno::ENOENT));
        }
        for op in [0, 4, u32::MAX] {
            let outcome = bench(order).send(batch(1, 2, BatchOp(op), 0, 0));
            assert!(matches!(outcome, Outcome::Drop(RequestDropReason::Opcode(of)) if of == op));
        }
    }
}

/// The tests count in the order of their addition, the server included.
#[test]
fn queries_count_clients_of_the_batch_and_units_of_a_test() {
    for order in ORDERS {
        let mut bench = bench(order);
        let numbers = |bench: &mut Bench| [0, 1, 2, 3].map(|test| bench.query(2, test));
        assert_eq!(numbers(&mut bench), [(0, 0); 4]);
        let mut units: Vec<Unit> = bench.run(2).collect();
        assert_eq!(numbers(&mut bench), [(0, 2), (0, 0), (0, 2), (0, 6)]);
        units.swap_remove(7);
        units.swap_remove(0);
        units.swap_remove(1);
        assert_eq!(numbers(&mut bench), [(0, 1), (0, 0), (0, 0), (0, 5)]);
        units.clear();
        assert_eq!(numbers(&mut bench), [(0, 0); 4]);
        assert_eq!(bench.query(2, 4).0, status(Errno::ENOENT));
        for negative in [u32::MAX, 1 << 31] {
            assert_eq!(bench.query(2, negative).0, status(Errno::EINVAL));
        }
    }
}

/// Units count as running from the reply to RUN on, also before a driver has taken them.
#[test]
fn units_that_are_not_taken_run_until_they_are_dropped() {
    let mut bench = bench(ORDERS[0]);
    let mut units = bench.run(2);
    let first = units.next();
    assert_eq!((bench.query(2, 0), bench.query(2, 3)), ((0, 2), (0, 6)));
    drop(units);
    assert_eq!((bench.query(2, 0), bench.query(2, 2)), ((0, 1), (0, 1)));
    drop(first);
    assert_eq!(bench.query(2, 0), (0, 0));
}

#[test]
fn an_active_batch_is_not_started_again() {
    let mut bench = bench(ORDERS[0]);
    let mut units: Vec<Unit> = bench.run(2).collect();
    assert_eq!(units.len(), 8);
    assert_eq!(bench.run(2).count(), 0);
    units.truncate(1);
    assert_eq!(bench.run(2).count(), 0, "one client is active");
    units.clear();
    assert_eq!(bench.run(2).count(), 8);
}

#[test]
fn an_idle_batch_can_be_stopped_and_started() {
    let mut bench = bench(ORDERS[0]);
    for force in [0, 1] {
        assert_eq!(bench.ask(batch(1, 2, BatchOp::STOP, 0, force)).status, 0);
    }
    let ids = Ids::new(0);
    let mut begun = bench.run(2).map(|mut unit| unit.begin(&ids, &mut [], 0));
    assert!(begun.all(|rpc| rpc.is_some()));
}

/// What STOP demands: no new RPCs; with force, and with force after a STOP without, an abort.
#[test]
fn stop_ends_units_and_with_force_aborts_their_rpcs() {
    for (forces, aborted) in [(&[0][..], false), (&[1], true), (&[0, 1], true), (&[1, 0], true)] {
        let mut bench = bench(ORDERS[0]);
        let ids = Ids::new(0);
        let data = bench.framework.data_service();
        let mut units: Vec<Unit> = bench.run(2).collect();
        assert!(units.iter_mut().all(|unit| unit.begin(&ids, &mut [], 0).is_some()));
        let before = data.aborts();
        for force in forces {
            assert_eq!(bench.ask(batch(1, 2, BatchOp::STOP, 0, *force)).status, 0);
        }
        assert!(units.iter().all(|unit| unit.is_aborted() == aborted), "{forces:?}");
        assert_eq!(data.aborts() != before, aborted, "drivers are woken");
        assert_eq!(bench.query(2, 0), (0, 2), "RPCs in flight still run");
        assert!(units.iter_mut().all(|unit| unit.begin(&ids, &mut [], 0).is_none()));
    }
}

/// The three ends of a session abort its units, and it is a zombie until the last of them has ended.
#[test]
fn the_end_of_a_session_aborts_its_units() {
    type End = fn(&mut Bench);
    let ends: [End; 3] = [
        |bench| assert_eq!(bench.ask(RequestBody::RemoveSession { sid: sid(1) }).status, 0),
        |bench| assert_eq!(bench.ask(make_session(2, 1, "two")).status, 0),
        |bench| bench.now_ns = 100 * SECOND,
    ];
    for end in ends {
        let mut bench = bench(ORDERS[0]);
        let data = bench.framework.data_service();
        let mut units: Vec<Unit> = bench.run(2).collect();
        let before = data.aborts();
        end(&mut bench);
        bench.ask(make_session(1, 1, "one"));
        assert_ne!(data.aborts(), before);
        assert!(units.iter().all(Unit::is_aborted));
        assert_eq!(bench.statistics().zombie_sessions, 1);
        assert_eq!(bench.query(2, 0).0, status(Errno::ENOENT), "the batch has gone with its session");
        units.truncate(1);
        assert_eq!(bench.statistics().zombie_sessions, 1);
        units.clear();
        assert_eq!(bench.statistics().zombie_sessions, 0);
    }
}

#[test]
fn a_session_whose_units_have_ended_leaves_no_zombie() {
    let mut bench = bench(ORDERS[0]);
    drop(bench.run(2));
    bench.ask(make_session(2, 1, "two"));
    bench.ask(make_session(1, 1, "one"));
    assert_eq!(bench.statistics().zombie_sessions, 0);
}
