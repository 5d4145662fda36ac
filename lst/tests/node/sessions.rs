//! Whole sessions of nodes and a console.

use lnet_proto::ByteOrder;
use lnet_proto::lst::{
    BatchOp, Check, Direction, LstService, Reply, ReplyBody, RequestBody, SessionId, Statistics, Test,
};
use nlx_lst::node::Count;
use proptest::prelude::*;

use crate::kit::{ORDERS, batch, brw_test, make_session, ping_test, process, sid};
use crate::simulated::Simulated;

const CLIENT: &str = "10.0.0.2@tcp";
const SERVER: &str = "10.0.0.3@tcp";
const OTHER: &str = "10.0.0.4@tcp";
const NODES: [&str; 3] = [CLIENT, SERVER, OTHER];

/// A console with session 1 at all nodes.
fn session(order: ByteOrder) -> Simulated {
    let mut network = Simulated::new(order, &NODES);
    for node in NODES {
        assert_eq!(ask(&mut network, node, make_session(1, 0, "one")).status, 0);
    }
    network
}

fn ask(network: &mut Simulated, node: &str, body: RequestBody) -> Reply {
    network.ask(node, body, 30).unwrap_or_else(|| panic!("{node} has not replied to {body:?}"))
}

fn active(network: &mut Simulated, node: &str) -> u32 {
    match ask(network, node, batch(1, 2, BatchOp::QUERY, 0, 0)).body {
        ReplyBody::Batch { active, .. } => active,
        body => panic!("{body:?}"),
    }
}

fn statistics(network: &mut Simulated, node: &str) -> Statistics {
    match ask(network, node, RequestBody::Stat { sid: sid(1), kind: 0 }).body {
        ReplyBody::Stat(statistics) => statistics,
        body => panic!("{body:?}"),
    }
}

fn run(network: &mut Simulated, node: &str) {
    assert_eq!(ask(network, node, batch(1, 2, BatchOp::RUN, 0, 0)).status, 0);
}

/// Servers at these nodes, a client at [`CLIENT`], and the batch started.
fn started(network: &mut Simulated, test: Test, to: &[&str]) {
    for server in to {
        assert_eq!(ask(network, server, RequestBody::Test(test)).status, 0);
    }
    assert_eq!(network.add_client(CLIENT, test, to), Some(0));
    run(network, CLIENT);
}

fn finished(network: &mut Simulated) {
    while active(network, CLIENT) > 0 {
        network.pass(1);
    }
}

#[test]
fn a_ping_test_runs_to_its_end() {
    for order in ORDERS {
        let mut network = session(order);
        // The node pings itself, too.
        let to = [SERVER, OTHER, CLIENT];
        started(&mut network, Test { repeats: 10, concurrency: 4, ..ping_test() }, &to);
        finished(&mut network);
        let client = statistics(&mut network, CLIENT);
        assert_eq!((client.rpcs_sent, client.ping_errors, client.rpcs_expired), (3 * 4 * 10, 0, 0));
        for server in [SERVER, OTHER] {
            // MKSN, TEST, STAT, and the PINGs.
            assert_eq!(statistics(&mut network, server).rpcs_received, 3 + 40);
        }
        let instance = network.framework(CLIENT).clients().next().unwrap().instance;
        let latency = instance.results().latency();
        assert_eq!(latency.len(), 120);
        assert!(latency.equivalent(latency.min(), 2_000_000), "two messages: {}", latency.min());
        for node in NODES {
            let ended = ask(&mut network, node, RequestBody::RemoveSession { sid: sid(1) });
            assert_eq!((ended.status, ended.sid), (0, SessionId::NONE));
        }
    }
}

#[test]
fn bulk_tests_move_the_pattern_and_count_it_at_the_server() {
    for order in ORDERS {
        for direction in [Direction::READ, Direction::WRITE] {
            for check in [Check::NONE, Check::SIMPLE, Check::FULL, Check::DISCARD] {
                let mut network = session(order);
                let test = Test { repeats: 3, concurrency: 2, ..brw_test(direction, check, 12_296) };
                started(&mut network, test, &[SERVER]);
                finished(&mut network);
                assert_eq!(statistics(&mut network, CLIENT).brw_errors, 0);
                let server = statistics(&mut network, SERVER);
                let moved = 6 * 12_296;
                let is_read = direction == Direction::READ;
                let expected = if is_read { (moved, 0) } else { (0, moved) };
                assert_eq!((server.bulk_put, server.bulk_got), expected);
            }
        }
    }
}

#[test]
fn each_unit_stops_at_its_first_page_of_wrong_data() {
    for direction in [Direction::READ, Direction::WRITE] {
        let mut network = session(ByteOrder::Little);
        network.damages_bulk = true;
        let test = Test { repeats: u32::MAX, concurrency: 2, ..brw_test(direction, Check::SIMPLE, 4096) };
        started(&mut network, test, &[SERVER]);
        finished(&mut network);
        let client = statistics(&mut network, CLIENT);
        assert_eq!((client.brw_errors, client.rpc_errors, client.rpcs_sent), (2, 0, 2));
    }
}

#[test]
fn a_stop_ends_an_endless_batch_and_it_can_be_run_again() {
    for force in [0, 1] {
        let mut network = session(ByteOrder::Little);
        started(&mut network, Test { repeats: u32::MAX, concurrency: 8, ..ping_test() }, &[SERVER]);
        for _ in 0..2 {
            network.pass(1);
            assert_eq!((active(&mut network, CLIENT), network.units(CLIENT)), (1, 8));
            ask(&mut network, CLIENT, batch(1, 2, BatchOp::STOP, 0, force));
            assert_eq!((active(&mut network, CLIENT), network.units(CLIENT)), (0, 0));
            assert_eq!(statistics(&mut network, CLIENT).ping_errors, 0);
            run(&mut network, CLIENT);
        }
    }
}

/// The expiry is 100 s after the last framework request; the server's session lives longer.
#[test]
fn the_session_of_a_dead_console_expires_and_its_batch_ends() {
    let mut network = session(ByteOrder::Little);
    started(&mut network, Test { repeats: u32::MAX, ..ping_test() }, &[SERVER]);
    network.pass(50);
    ask(&mut network, SERVER, RequestBody::Debug { sid: sid(1), flags: 0 });
    network.cut.insert(process("10.0.0.9@tcp"));
    network.pass(49);
    assert_eq!((network.units(CLIENT), network.framework(CLIENT).session().is_some()), (1, true));
    network.pass(2);
    assert_eq!((network.units(CLIENT), network.framework(CLIENT).session().is_some()), (0, false));
    assert!(network.framework(SERVER).session().is_some());
    network.pass(50);
    assert!(network.framework(SERVER).session().is_none());
    // The next session finds nothing of it.
    network.cut.clear();
    assert_eq!(ask(&mut network, CLIENT, make_session(1, 0, "next")).status, 0);
    assert_eq!(statistics(&mut network, CLIENT).zombie_sessions, 0);
}

/// As measured with kernel nodes (lst 12.1): one RPC expired, one ping error, the only unit ended.
#[test]
fn a_dead_server_ends_the_unit_after_the_rpc_timeout() {
    let mut network = session(ByteOrder::Little);
    started(&mut network, Test { repeats: u32::MAX, ..ping_test() }, &[SERVER]);
    network.pass(1);
    network.cut.insert(process(SERVER));
    network.pass(63);
    assert_eq!(active(&mut network, CLIENT), 1);
    network.pass(2);
    assert_eq!(active(&mut network, CLIENT), 0);
    let client = statistics(&mut network, CLIENT);
    assert_eq!((client.ping_errors, client.rpcs_expired, client.rpc_errors), (1, 1, 0));
}

#[test]
fn a_forced_session_ends_the_batch_of_the_one_before() {
    let mut network = session(ByteOrder::Little);
    let test = Test { repeats: u32::MAX, concurrency: 3, ..brw_test(Direction::WRITE, Check::FULL, 4096) };
    started(&mut network, test, &[SERVER]);
    network.pass(1);
    for node in NODES {
        assert_eq!(ask(&mut network, node, make_session(2, 1, "two")).sid, sid(2));
    }
    assert_eq!(network.units(CLIENT), 0);
    network.pass(1);
    for node in NODES {
        ask(&mut network, node, make_session(1, 1, "one"));
        assert_eq!(statistics(&mut network, node).zombie_sessions, 0);
    }
    started(&mut network, test, &[SERVER]);
    network.pass(1);
    assert_eq!(network.units(CLIENT), 3);
}

/// The framework serves no other request until the GET has failed.
#[test]
fn a_list_that_cannot_be_fetched_gets_no_reply() {
    let mut network = session(ByteOrder::Little);
    // The console offers no list under these match bits.
    let test = Test { is_client: true, bulk_id: 1, destinations: 1, ..ping_test() };
    assert_eq!(network.ask(CLIENT, RequestBody::Test(test), 10), None);
    let debug = RequestBody::Debug { sid: sid(1), flags: 0 };
    assert_eq!(network.ask(CLIENT, debug, 10), None);
    network.pass(11);
    assert_eq!(ask(&mut network, CLIENT, debug).status, 0);
    assert_eq!(network.data(CLIENT).counters().total(Count::Dropped), 1);
    assert_eq!(network.data(CLIENT).counters().total(Count::Errors), 1);
}

/// A server without its TEST: nothing is answered, and the client counts it.
#[test]
fn a_server_that_was_not_asked_for_is_none() {
    let mut network = session(ByteOrder::Little);
    assert_eq!(network.add_client(CLIENT, ping_test(), &[SERVER]), Some(0));
    run(&mut network, CLIENT);
    network.pass(65);
    assert_eq!(active(&mut network, CLIENT), 0);
    assert_eq!(statistics(&mut network, CLIENT).ping_errors, 1);
    assert_eq!(statistics(&mut network, SERVER).rpcs_dropped, 1);
}

/// A step of a random session: which node, what.
fn steps() -> impl Strategy<Value = Vec<(usize, u8, u64)>> {
    prop::collection::vec((0..3_usize, 0..9_u8, 0..40_u64), 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever a console does, and whatever is lost: once its sessions have expired, nothing runs, and
    /// a test that needs all memory can be added.
    #[test]
    fn nothing_of_a_session_remains(steps in steps()) {
        let mut network = session(ByteOrder::Little);
        let endless = Test { repeats: u32::MAX, concurrency: 2, ..ping_test() };
        let bulk = Test { repeats: 4, ..brw_test(Direction::READ, Check::FULL, 4096) };
        for (node, kind, seconds) in steps {
            let node = NODES[node];
            match kind {
                0 => drop(network.ask(node, make_session(seconds as i64 % 2 + 1, 1, "some"), 1)),
                1 => drop(network.ask(node, RequestBody::Test(endless), 1)),
                2 => drop(network.add_client(node, endless, &NODES)),
                3 => drop(network.add_client(node, bulk, &[SERVER])),
                4 => drop(network.ask(node, batch(1, 2, BatchOp::RUN, 0, 0), 1)),
                5 => drop(network.ask(node, batch(1, 2, BatchOp::STOP, 0, seconds as u32 % 2), 1)),
                6 => drop(network.ask(node, RequestBody::RemoveSession { sid: sid(1) }, 1)),
                7 => drop(network.cut.insert(process(node))),
                _ => network.cut.clear(),
            }
            network.pass(seconds % 3);
        }
        network.cut.insert(process("10.0.0.9@tcp"));
        network.pass(240);
        network.cut.clear();
        for node in NODES {
            prop_assert_eq!(network.units(node), 0);
            prop_assert!(network.framework(node).session().is_none());
            prop_assert!(!network.data(node).has_server(LstService::Ping));
            ask(&mut network, node, make_session(1, 0, "all"));
            prop_assert_eq!(statistics(&mut network, node).zombie_sessions, 0);
            let most = Test { concurrency: 1024, ..brw_test(Direction::READ, Check::NONE, 1 << 20) };
            prop_assert_eq!(network.add_client(node, most, &[SERVER, OTHER]), Some(0));
        }
    }
}
