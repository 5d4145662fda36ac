//! Memory: steady state allocates nothing, and a node's tests use no more than its limit.

use lnet_proto::lst::{Check, Direction, Reply, ReplyBody, RequestBody, SessionId, Test};
use nlx_lst::Ids;
use nlx_lst::node::{Config, Framework, INSTANCE_BYTES, RpcEnd, Served};
use nlx_testkit::heap::{allocations, live_bytes};

use crate::kit::{Bench, ON, ORDERS, brw_test, make_session, ping_test, process};

#[test]
fn an_rpc_allocates_nothing_at_either_side() {
    let mut bench = Bench::in_session(ORDERS[0]);
    let test = Test { repeats: u32::MAX, ..brw_test(Direction::WRITE, Check::FULL, 4096) };
    bench.ask(RequestBody::Test(test));
    bench.add_client(test, &[process("10.0.0.2@tcp")]);
    let data = bench.framework.data_service();
    let mut unit = bench.run(2).next().unwrap();
    let ids = Ids::new(0);
    let mut buffer = vec![0; 4096];
    let good = Reply { features: ON, status: 0, sid: SessionId::NONE, body: ReplyBody::Brw };
    let ((), count) = allocations(|| {
        for now_ns in 0..1000 {
            let rpc = unit.begin(&ids, &mut buffer, now_ns).unwrap();
            let Served::Pull(pull) = data.brw(&rpc.request) else { panic!("a WRITE is pulled") };
            let Served::Reply(answer) = data.finish(&pull, Ok(&buffer)) else { panic!("it is answered") };
            assert_eq!(answer.bytes, good.emit());
            unit.ended(RpcEnd::Reply(&answer.bytes), &[], now_ns + now_ns * now_ns);
        }
    });
    assert_eq!(count, 0);
    assert_eq!(unit.instance().results().latency().len(), 1000);
}

/// Tests of three kinds are added until each is refused: few units, many destinations, servers.
#[test]
fn tests_use_no_more_memory_than_the_limit() {
    let memory_max = 4 << 20;
    let config = Config { memory_max, ..Config::default() };
    let mut bench = Bench::with(ORDERS[0], config);
    bench.ask(make_session(1, 0, "one"));
    let to = vec![process("10.0.0.2@tcp"); 500];
    let before = live_bytes();
    let mut added = 0;
    for count in [1, 500, 3] {
        while bench.add_client(ping_test(), &to[..count]).status == 0 {
            added += 1;
        }
    }
    for batch in 0.. {
        if bench.ask(RequestBody::Test(Test { batch, ..ping_test() })).status != 0 {
            break;
        }
        added += 1;
    }
    let used = (live_bytes() - before) as u64;
    assert!(used <= memory_max, "{used} bytes");
    assert!(added * INSTANCE_BYTES <= memory_max);
    // All of it is given back.
    bench.framework = Framework::new(config);
    assert!(live_bytes() <= before);
}
