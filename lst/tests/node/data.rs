//! lst 7: PING and BRW.

use lnet_proto::ByteOrder;
use lnet_proto::lst::{
    Brw, Check, Direction, Features, LstService, Reply, ReplyBody, Request, RequestBody, Test,
};
use nix::errno::Errno;
use nlx_lst::node::{Count, DataService, RequestDropReason, Served, Transfer};
use nlx_lst::pattern::{self, PAGE_SIZE};

use crate::kit::{Bench, OFF, ON, ORDERS, emit, make_session, ping_test, sid, status};

const UNKNOWN: Features = Features(4);

/// A node with servers of both services.
fn bench(order: ByteOrder) -> (Bench, DataService) {
    let mut bench = Bench::in_session(order);
    for service in [LstService::Ping, LstService::Brw] {
        let test = Test { service: service as u32, ..ping_test() };
        assert_eq!(bench.ask(RequestBody::Test(test)).status, 0);
    }
    let data = bench.framework.data_service();
    (bench, data)
}

fn ping(features: Features, sequence: u32) -> Request {
    Request::new(features, 9, RequestBody::Ping { sequence, seconds: 1, nanoseconds: 2 })
}

fn brw(features: Features, direction: u32, check: u32, length: u32) -> Request {
    let brw = Brw { bulk_id: 55, direction: Direction(direction), length, check: Check(check) };
    Request::new(features, 9, RequestBody::Brw(brw))
}

fn reply(service: LstService, served: Served) -> Reply {
    let Served::Reply(answer) = served else { panic!("{served:?}") };
    assert_eq!(answer.reply_id, 9);
    assert!(answer.bytes[Reply::length(service)..].iter().all(|byte| *byte == 0));
    Reply::parse(service, &answer.bytes).unwrap()
}

fn counts(data: &DataService) -> [u64; 3] {
    [Count::Received, Count::Dropped, Count::Errors].map(|count| data.counters().total(count))
}

#[test]
fn the_rows_of_ping() {
    for order in ORDERS {
        let (_bench, data) = bench(order);
        let rows = [(OFF, 0, OFF), (ON, 0, ON), (UNKNOWN, 71, ON), (ON | UNKNOWN, 71, ON)];
        for (sequence, (features, status, replied)) in (0..).zip(rows) {
            let reply = reply(LstService::Ping, data.ping(&emit(&ping(features, sequence), order)));
            assert_eq!((reply.status, reply.features), (status, replied));
            assert_eq!(reply.body, ReplyBody::Ping { sequence });
        }
        let other = Request { version: 3, ..ping(ON, 8) };
        let reply = reply(LstService::Ping, data.ping(&emit(&other, order)));
        assert_eq!((reply.status, reply.body), (status(Errno::EPROTO), ReplyBody::Ping { sequence: 8 }));
    }
}

#[test]
fn what_is_no_ping_or_brw_is_dropped_and_counted() {
    let (_bench, data) = bench(ByteOrder::Little);
    let mut bytes = ping(ON, 1).emit();
    bytes[32] ^= 1; // the inner magic
    let [received, dropped, errors] = counts(&data);
    assert!(matches!(data.ping(&bytes), Served::Drop(RequestDropReason::Malformed(_))));
    assert!(matches!(data.brw(&ping(ON, 1).emit()), Served::Drop(RequestDropReason::Malformed(_))));
    assert!(matches!(data.brw(&[]), Served::Drop(RequestDropReason::Malformed(_))));
    assert_eq!(counts(&data), [received + 3, dropped + 3, errors]);
}

/// The refusals in the order of lst 7.2; where the features are undefined there, they are the request's.
#[test]
fn the_rows_of_brw() {
    let (einval, eproto) = (status(Errno::EINVAL), status(Errno::EPROTO));
    let most = 1 << 20;
    let refused = [
        (brw(ON, 0, 1, 4096), einval, ON),
        (brw(ON, 3, 1, 4096), einval, ON),
        (brw(ON, 1, 0, 4096), einval, ON),
        (brw(ON, 1, 5, 4096), einval, ON),
        (brw(UNKNOWN, 3, 1, 4096), einval, UNKNOWN),
        (brw(UNKNOWN, 1, 1, 4096), eproto, ON),
        (brw(ON | UNKNOWN, 1, 1, 0), eproto, ON),
        (brw(OFF, 1, 1, 4104), einval, OFF),
        (brw(OFF, 1, 1, 0), einval, OFF),
        (brw(ON, 1, 1, 0), einval, ON),
        (brw(ON, 1, 1, most + 8), einval, ON),
        (brw(ON, 2, 1, u32::MAX - 7), einval, ON),
        // This stops kernel nodes.
        (brw(ON, 1, 1, 4100), einval, ON),
    ];
    for order in ORDERS {
        let (_bench, data) = bench(order);
        for (request, status, features) in refused {
            let reply = reply(LstService::Brw, data.brw(&emit(&request, order)));
            assert_eq!((reply.status, reply.features), (status, features), "{request:?}");
        }
        assert_eq!(data.counters().total(Count::FatalRequest), refused.len() as u64);
        let other = Request { version: 0, ..brw(ON, 9, 9, 9) };
        assert_eq!(reply(LstService::Brw, data.brw(&emit(&other, order))).status, eproto);
        for (check, length) in [(1, 8), (2, most), (3, 4096), (4, 12_288)] {
            for features in if length == 8 { &[ON][..] } else { &[ON, OFF] } {
                let pushed = data.brw(&emit(&brw(*features, 1, check, length), order));
                let pulled = data.brw(&emit(&brw(*features, 2, check, length), order));
                let (Served::Push(push), Served::Pull(pull)) = (pushed, pulled) else { panic!("{check}") };
                for transfer in [push, pull] {
                    assert_eq!((transfer.bulk_id, transfer.length), (55, length as usize));
                    let reply = reply(LstService::Brw, data.finish(&transfer, Ok(&vec![0; length as usize])));
                    // No data came for the WRITEs that are checked.
                    assert!(reply.status == 0 || reply.status == status(Errno::EBADMSG));
                    assert_eq!(reply.features, *features);
                }
            }
        }
    }
}

#[test]
fn a_read_sends_the_pattern() {
    for check in [Check::NONE, Check::SIMPLE, Check::FULL, Check::DISCARD] {
        let (_bench, data) = bench(ByteOrder::Little);
        let Served::Push(push) = data.brw(&brw(ON, 1, check.0, 12_296).emit()) else { panic!("{check:?}") };
        let mut buffer = vec![0; push.length];
        push.prepare(&mut buffer);
        let mut expected = vec![0; push.length];
        pattern::fill(check, PAGE_SIZE, &mut expected);
        assert_eq!(buffer, expected);
        assert_eq!(reply(LstService::Brw, data.finish(&push, Ok(&[]))).status, 0);
        assert_eq!(data.counters().total(Count::BulkPut), 12_296);
        assert_eq!(data.counters().total(Count::BulkGot), 0);
    }
}

fn pull(data: &DataService, check: Check, order: ByteOrder) -> Transfer {
    match data.brw(&emit(&brw(ON, 2, check.0, 8192), order)) {
        Served::Pull(pull) => pull,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_data_of_a_write_are_checked_in_the_order_of_their_sender() {
    for order in ORDERS {
        for (check, checked) in
            [(Check::NONE, false), (Check::SIMPLE, true), (Check::FULL, true), (Check::DISCARD, false)]
        {
            let (_bench, data) = bench(order);
            let finish = |bytes: &[u8]| {
                reply(LstService::Brw, data.finish(&pull(&data, check, order), Ok(bytes))).status
            };
            let mut good = vec![0; 8192];
            pattern::fill(check, PAGE_SIZE, &mut good);
            if order == ByteOrder::Big {
                good.as_chunks_mut::<8>().0.iter_mut().for_each(|word| word.reverse());
            }
            assert_eq!(finish(&good), 0);
            let mut poisoned = vec![0; 8192];
            pull(&data, check, order).prepare(&mut poisoned);
            let wrong = if checked { status(Errno::EBADMSG) } else { 0 };
            assert_eq!(finish(&poisoned), wrong, "bytes that have not come");
            good[8191] ^= 1;
            assert_eq!(finish(&good), wrong);
            assert_eq!(finish(&good[..8184]), status(Errno::EBADMSG), "{check:?}");
            assert_eq!(data.counters().total(Count::BulkGot), 4 * 8192);
        }
    }
}

#[test]
fn a_transfer_that_fails_gets_no_reply() {
    let (_bench, data) = bench(ByteOrder::Little);
    let [received, dropped, errors] = counts(&data);
    for (number, errno) in [(1, Errno::ETIMEDOUT), (2, Errno::ECANCELED)] {
        let pull = pull(&data, Check::NONE, ByteOrder::Little);
        let served = data.finish(&pull, Err(errno));
        assert!(matches!(served, Served::Drop(RequestDropReason::Bulk(of)) if of == errno));
        assert_eq!(counts(&data), [received + number, dropped + number, errors + 1], "cancelled is no error");
    }
    data.reply_failed(Errno::EHOSTUNREACH);
    assert_eq!(counts(&data), [received + 2, dropped + 3, errors + 2]);
}

#[test]
fn the_end_of_the_session_aborts_requests_that_are_being_served() {
    let (mut bench, data) = bench(ByteOrder::Little);
    let pull = pull(&data, Check::NONE, ByteOrder::Little);
    assert!(!data.is_aborted(&pull));
    bench.ask(make_session(1, 0, "one"));
    assert!(!data.is_aborted(&pull), "the session goes on");
    bench.ask(RequestBody::RemoveSession { sid: sid(1) });
    assert!(!data.is_aborted(&pull), "it had two references");
    bench.ask(RequestBody::RemoveSession { sid: sid(1) });
    assert!(data.is_aborted(&pull));
    assert!(matches!(data.finish(&pull, Ok(&[0; 8192])), Served::Drop(RequestDropReason::Aborted)));
}

#[test]
fn requests_without_a_server_get_no_reply() {
    let mut bench = Bench::in_session(ByteOrder::Little);
    let data = bench.framework.data_service();
    let no_server = |served| matches!(served, Served::Drop(RequestDropReason::NoServer(_)));
    assert!(no_server(data.ping(&ping(ON, 0).emit())));
    bench.ask(RequestBody::Test(ping_test()));
    assert!(!no_server(data.ping(&ping(ON, 0).emit())));
    assert!(no_server(data.brw(&brw(ON, 1, 1, 8).emit())));
    bench.ask(RequestBody::RemoveSession { sid: sid(1) });
    assert!(no_server(data.ping(&ping(ON, 0).emit())));
}

#[test]
fn threads_count_in_lanes_of_their_own() {
    let (_bench, data) = bench(ByteOrder::Little);
    let before = data.counters().total(Count::Received);
    std::thread::scope(|scope| {
        for lane in 0..20 {
            let data = data.on_lane(lane);
            scope.spawn(move || {
                for sequence in 0..100 {
                    assert!(matches!(data.ping(&ping(ON, sequence).emit()), Served::Reply(_)));
                }
            });
        }
    });
    assert_eq!(data.counters().total(Count::Received), before + 2000);
}
