//! lst 6: the checks before the handlers, and the session's requests.

use lnet_proto::ProtoError;
use lnet_proto::lst::{
    BatchOp, Features, LnetCounters, LstService, MESSAGE_LEN, Name, Reply, ReplyBody, Request, RequestBody,
    SessionId, Test,
};
use nix::errno::Errno;
use nlx_lst::node::{BatchReport, Config, Count, Expired, Outcome, RequestDropReason};

use crate::kit::{
    Bench, OFF, ON, ORDERS, SECOND, batch, emit, make_session, name, ping_test, process, sid, status,
};

const UNKNOWN: Features = Features(2);

/// One request of each framework service that a node has, for session 1.
fn requests() -> Vec<RequestBody> {
    vec![
        RequestBody::Debug { sid: sid(1), flags: 0 },
        make_session(1, 0, "again"),
        batch(1, 9, BatchOp::QUERY, 0, 0),
        RequestBody::Test(ping_test()),
        RequestBody::Stat { sid: sid(1), kind: 0 },
        RequestBody::RemoveSession { sid: sid(1) },
    ]
}

#[test]
fn what_is_no_message_of_the_service_is_dropped_and_counted() {
    for order in ORDERS {
        for body in requests() {
            let mut bench = Bench::in_session(order);
            let request = bench.request(body);
            let service = request.service();
            let good = emit(&request, order);
            let mut magic = good.clone();
            magic[1] ^= 1;
            let mut kind = good.clone();
            kind[8..12].copy_from_slice(&99_u32.to_le_bytes());
            let longer = [&good[..], &[0]].concat();
            let counters = bench.framework.data_service();
            let before = [Count::Received, Count::Dropped].map(|count| counters.counters().total(count));
            for bad in [&good[..MESSAGE_LEN - 1], &longer, &magic, &kind, &[]] {
                let outcome = bench.framework.handle(service, bad, LnetCounters::default, 0);
                assert!(matches!(outcome, Outcome::Drop(RequestDropReason::Malformed(_))), "{outcome:?}");
            }
            let after = [Count::Received, Count::Dropped].map(|count| counters.counters().total(count));
            assert_eq!(after, before.map(|count| count + 5));
            let outcome = bench.framework.handle(service, &magic, LnetCounters::default, 0);
            let Outcome::Drop(RequestDropReason::Malformed(error)) = outcome else { panic!("{outcome:?}") };
            assert!(matches!(error, ProtoError::Magic { .. }));
        }
    }
}

/// A node that may not use this one gets EACCES, learns nothing of the session, and changes nothing.
// Covers: S-313
#[test]
fn a_stranger_is_refused_and_counted() {
    for order in ORDERS {
        for body in requests() {
            let mut bench = Bench::in_session(order);
            let (before, counters) = (bench.framework.report(0), bench.framework.data_service());
            let request = bench.request(body);
            let outcome = bench.framework.refuse(request.service(), &emit(&request, order));
            let Outcome::Reply(answer) = outcome else { panic!("{outcome:?}") };
            let reply = bench.read(request.service(), &answer);
            assert_eq!((reply.status, reply.sid), (Errno::EACCES as u32, SessionId::NONE), "{body:?}");
            assert_eq!(bench.framework.report(0), before);
            let malformed = bench.framework.refuse(request.service(), &[0; MESSAGE_LEN]);
            assert!(matches!(malformed, Outcome::Drop(RequestDropReason::Malformed(_))), "{malformed:?}");
            let counted = [Count::Received, Count::Strangers, Count::Dropped]
                .map(|count| counters.counters().total(count));
            assert_eq!(counted, [3, 1, 1], "one made the session");
        }
    }
}

/// What a node reports of its session follows its batches and their clients.
// Covers: S-313
#[test]
fn a_report_has_the_session_and_its_batches() {
    let mut bench = Bench::new(ORDERS[0]);
    let idle = bench.framework.report(0);
    assert_eq!((idle.session, idle.zombies, idle.memory_used), (None, 0, 0));
    bench.now_ns = 5 * SECOND;
    bench.ask(make_session(1, 0, "one"));
    bench.ask(RequestBody::Test(ping_test()));
    let destinations = [process("10.0.0.2@tcp"), process("10.0.0.3@tcp")];
    bench.add_client(Test { concurrency: 3, ..ping_test() }, &destinations);
    let units = bench.run(2);
    let report = bench.framework.report(7 * SECOND);
    let session = report.session.unwrap();
    assert_eq!((session.view.name, session.age_ns), (name("one"), 2 * SECOND));
    assert_eq!(session.expires_in_ns, Some(98 * SECOND), "2 s after the last request");
    let batch =
        BatchReport { id: 2, servers: 1, clients: 1, running_clients: 1, running_units: 6, errors: 0 };
    assert_eq!(session.batches, [batch]);
    assert!(report.memory_used > 0 && report.memory_used < report.memory_max);
    bench.framework.expire(1000 * SECOND);
    let zombie = bench.framework.report(1000 * SECOND);
    assert_eq!((zombie.session, zombie.zombies), (None, 1));
    drop(units);
    let gone = bench.framework.report(1000 * SECOND);
    assert_eq!((gone.zombies, gone.memory_used), (0, 0));
}

#[test]
fn services_that_a_node_does_not_have_are_not_served() {
    let mut bench = Bench::in_session(ORDERS[0]);
    let join = RequestBody::Join { sid: SessionId::NONE, group: name("g") };
    let ping = RequestBody::Ping { sequence: 0, seconds: 0, nanoseconds: 0 };
    for body in [join, ping] {
        assert!(matches!(bench.send(body), Outcome::Drop(RequestDropReason::NotServed(_))));
    }
}

#[test]
fn another_version_gets_eproto_and_does_not_keep_the_session_alive() {
    for order in ORDERS {
        for body in requests() {
            let mut bench = Bench::in_session(order);
            let deadline = bench.framework.next_ns();
            let request = Request { version: 2, ..bench.request(body) };
            let bytes = emit(&request, order);
            let outcome = bench.framework.handle(request.service(), &bytes, LnetCounters::default, SECOND);
            let Outcome::Reply(answer) = outcome else { panic!("{outcome:?}") };
            let reply = bench.read(request.service(), &answer);
            assert_eq!((reply.status, reply.sid), (status(Errno::EPROTO), sid(1)));
            assert_eq!(bench.framework.next_ns(), deadline);
        }
        let mut idle = Bench::new(order);
        let request = Request { version: 0, ..idle.request(requests()[0]) };
        let outcome =
            idle.framework.handle(LstService::Debug, &emit(&request, order), LnetCounters::default, 0);
        let Outcome::Reply(answer) = outcome else { panic!("{outcome:?}") };
        let reply = idle.read(LstService::Debug, &answer);
        assert_eq!((reply.status, reply.features), (status(Errno::EPROTO), ON));
    }
}

#[test]
fn a_node_that_shuts_down_does_not_reply() {
    for body in requests() {
        let mut bench = Bench::in_session(ORDERS[0]);
        bench.framework.shut_down();
        assert_eq!(bench.framework.session(), None);
        assert!(matches!(bench.send(body), Outcome::Drop(RequestDropReason::ShutDown)));
    }
}

/// Rows 4 and 5 of the checks: features of the session, of the request, whether it is refused.
#[test]
fn features_are_checked() {
    for order in ORDERS {
        for (held, asked) in [(ON, OFF), (OFF, ON), (ON, UNKNOWN), (ON, ON | UNKNOWN), (ON, ON), (OFF, OFF)] {
            for body in requests() {
                let mut bench = Bench::new(order);
                bench.features = held;
                assert_eq!(bench.ask(make_session(1, 0, "one")).features, held);
                bench.features = asked;
                let reply = bench.ask(body);
                let session_only = matches!(reply.service(), LstService::MakeSession | LstService::Debug);
                let refused = if session_only { asked.has_unknown() } else { asked != held };
                assert_eq!(reply.status == status(Errno::EPROTO), refused, "{held:?} {asked:?} {body:?}");
                // A RMSN that succeeds leaves no session.
                let ended = reply.service() == LstService::RemoveSession && !refused;
                assert_eq!(reply.features, if refused || ended { ON } else { held });
                assert_eq!(reply.sid, if ended { SessionId::NONE } else { sid(1) });
            }
        }
    }
}

#[test]
fn without_a_session_features_are_checked_for_mksn_and_debug_only() {
    for body in requests() {
        let mut bench = Bench::new(ORDERS[0]);
        bench.features = UNKNOWN;
        let reply = bench.ask(body);
        let session_only = matches!(reply.service(), LstService::MakeSession | LstService::Debug);
        assert_eq!(reply.status == status(Errno::EPROTO), session_only, "{reply:?}");
        assert_eq!((reply.features, reply.sid), (ON, SessionId::NONE));
        assert_eq!(bench.framework.session(), None);
    }
}

fn made(reply: &Reply) -> (u32, SessionId, u32, Name) {
    let ReplyBody::MakeSession { timeout_s, name } = reply.body else { panic!("{reply:?}") };
    (reply.status, reply.sid, timeout_s, name)
}

#[test]
fn the_rows_of_mksn() {
    for order in ORDERS {
        let mut bench = Bench::new(order);
        let any = RequestBody::MakeSession {
            sid: SessionId { nid4: u64::MAX, stamp: 4 },
            force: 1,
            name: name("x"),
        };
        let refused = made(&bench.ask(any));
        assert_eq!((refused.0, refused.1), (status(Errno::EINVAL), SessionId::NONE));
        assert_eq!(made(&bench.ask(make_session(1, 0, "one"))), (0, sid(1), 100, Name::EMPTY));
        assert_eq!(bench.ask(any).status, status(Errno::EINVAL));
        let busy = (status(Errno::EBUSY), sid(1), 100, name("one"));
        assert_eq!(made(&bench.ask(make_session(2, 0, "two"))), busy);
        // Features of a MKSN for the same session are ignored.
        bench.features = OFF;
        assert_eq!(made(&bench.ask(make_session(1, 0, "other"))), (0, sid(1), 100, Name::EMPTY));
        assert_eq!(bench.framework.session().unwrap().features, ON);
        assert_eq!(bench.framework.session().unwrap().name, name("one"));
        // Another console takes the node; the session has the features of its request.
        assert_eq!(made(&bench.ask(make_session(2, 1, "two"))), (0, sid(2), 100, Name::EMPTY));
        assert_eq!(bench.framework.session().unwrap().features, OFF);
        assert_eq!(bench.framework.session().unwrap().name, name("two"));
    }
}

#[test]
fn the_rows_of_rmsn() {
    for order in ORDERS {
        let remove = |stamp| RequestBody::RemoveSession { sid: sid(stamp) };
        let any = RequestBody::RemoveSession { sid: SessionId::NONE };
        let mut bench = Bench::new(order);
        assert_eq!(bench.ask(any).status, status(Errno::EINVAL));
        assert_eq!(bench.ask(remove(1)).status, status(Errno::ESRCH));
        assert_eq!(bench.ask(make_session(1, 0, "one")).status, 0);
        assert_eq!(bench.ask(any).status, status(Errno::EINVAL));
        let busy = bench.ask(remove(2));
        assert_eq!((busy.status, busy.sid), (status(Errno::EBUSY), sid(1)));
        let ended = bench.ask(remove(1));
        assert_eq!((ended.status, ended.sid, ended.body), (0, SessionId::NONE, ReplyBody::RemoveSession));
        assert_eq!(bench.framework.next_ns(), None);
    }
}

#[test]
fn a_session_ends_with_as_many_rmsn_as_it_had_mksn() {
    let mut bench = Bench::in_session(ORDERS[0]);
    bench.ask(make_session(1, 0, "one"));
    bench.ask(make_session(1, 1, "one"));
    let sids: Vec<_> = (0..3).map(|_| bench.ask(RequestBody::RemoveSession { sid: sid(1) }).sid).collect();
    assert_eq!(sids, [sid(1), sid(1), SessionId::NONE]);
}

#[test]
fn the_rows_of_debug() {
    for order in ORDERS {
        let mut bench = Bench::new(order);
        let reply = bench.ask(RequestBody::Debug { sid: sid(1), flags: 0 });
        let empty = ReplyBody::Debug { timeout_s: 0, batches: 0, name: Name::EMPTY };
        assert_eq!((reply.status, reply.sid, reply.body), (status(Errno::ESRCH), SessionId::NONE, empty));
        bench.ask(make_session(1, 0, "one"));
        for asked in [sid(1), sid(2), SessionId::NONE] {
            let reply = bench.ask(RequestBody::Debug { sid: asked, flags: 0 });
            let body = ReplyBody::Debug { timeout_s: 100, batches: 0, name: name("one") };
            assert_eq!((reply.status, reply.sid, reply.body), (0, sid(1), body));
        }
    }
}

#[test]
fn each_framework_request_restarts_the_expiry() {
    for body in requests().into_iter().take(5) {
        let mut bench = Bench::in_session(ORDERS[0]);
        bench.now_ns = 99 * SECOND;
        bench.send(body);
        assert_eq!(bench.framework.next_ns(), Some(199 * SECOND));
        assert_eq!(bench.framework.expire(199 * SECOND - 1), None);
        let expired = bench.framework.expire(199 * SECOND);
        assert_eq!(expired, Some(Expired { sid: sid(1), name: name("one") }));
        assert_eq!((bench.framework.session(), bench.framework.next_ns()), (None, None));
    }
}

#[test]
fn a_request_that_comes_too_late_finds_no_session() {
    let mut bench = Bench::in_session(ORDERS[0]);
    bench.now_ns = 100 * SECOND;
    assert_eq!(bench.ask(RequestBody::RemoveSession { sid: sid(1) }).status, status(Errno::ESRCH));
}

#[test]
fn a_node_without_session_timeout_keeps_its_session() {
    let mut bench = Bench::with(ORDERS[0], Config { session_timeout_ns: 0, ..Config::default() });
    let reply = bench.ask(make_session(1, 0, "one"));
    assert_eq!(made(&reply), (0, sid(1), 0, Name::EMPTY));
    assert_eq!(bench.framework.next_ns(), None);
    assert_eq!(bench.framework.expire(u64::MAX - 1), None);
}
