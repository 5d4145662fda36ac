//! Adding tests: order, distribution, refusals (lst 10.3).

use lnet_nid::ProcessId;
use lnet_proto::ByteOrder;
use lnet_proto::lst::{Check, Destinations, Direction, Features, LstService, Request, RequestBody, Test};
use nix::errno::Errno;
use nlx_lst::console::{
    AddTest, BrwTest, ConsoleError, ConsoleOperation, Distribution, NewSession, NodeFailure, NodeState,
    Report, Target, TestKind, Warning,
};

use crate::world::{Reaction, World, name, new_session, node, parsed, ping_test};

fn test_of(request: &Request) -> Test {
    let RequestBody::Test(test) = request.body else { panic!("{request:?}") };
    test
}

fn tests(world: &World) -> Vec<(ProcessId, Test)> {
    let sent = world.sent.iter().filter(|rpc| rpc.service == LstService::Test);
    sent.map(|rpc| (rpc.to, test_of(&parsed(rpc)))).collect()
}

/// The servers that each client was given.
fn given(world: &World) -> Vec<(ProcessId, Vec<ProcessId>)> {
    let lists = world.sent.iter().filter_map(|rpc| Some((rpc.to, rpc.destinations.as_ref()?)));
    lists
        .map(|(to, list)| {
            let list = Destinations::new(&list.bytes, ByteOrder::Little);
            (to, list.iter().map(Result::unwrap).collect())
        })
        .collect()
}

pub(crate) fn brw(check: Check) -> TestKind {
    TestKind::Brw(BrwTest { direction: Direction::WRITE, check, length: 8192, offset: 0 })
}

#[test]
fn servers_are_added_before_clients() {
    let mut world = World::with_groups(&[("c", &[1, 2]), ("s", &[3])]);
    world.sent.clear();
    let test = AddTest { repeats: Some(7), kind: brw(Check::FULL), concurrency: 3, ..ping_test("c", "s") };
    let Report::Test { number, nodes, .. } = world.run(ConsoleOperation::AddTest(test)).unwrap() else {
        panic!()
    };
    assert_eq!((number, nodes.len()), (Some(1), 3));
    let sent = tests(&world);
    let order: Vec<_> = sent.iter().map(|(to, test)| (*to, test.is_client)).collect();
    assert_eq!(order, [(node(3), false), (node(1), true), (node(2), true)]);
    let (server, client) = (sent[0].1, sent[1].1);
    // Two clients with three units each, for one server.
    assert_eq!((server.repeats, server.destinations, server.bulk_id), (6, 0, 0));
    assert_eq!((client.repeats, client.destinations, client.concurrency), (7, 1, 3));
    for test in [server, client] {
        assert_eq!((test.service, test.batch, test.stop_on_error), (11, 1, true));
        let brw = test.brw(Features::BULK_LENGTH);
        assert_eq!(
            (brw.direction, brw.check, brw.length, brw.offset),
            (Direction::WRITE, Check::FULL, 8192, 0)
        );
    }
    assert_eq!(given(&world), [(node(1), vec![node(3)]), (node(2), vec![node(3)])]);
    assert_eq!(world.console.batches()[0].tests[0].test, test);
}

#[test]
fn a_test_without_end_has_all_ones_as_its_loop() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
    world.sent.clear();
    world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    let loops: Vec<u32> = tests(&world).iter().map(|(_, test)| test.repeats).collect();
    assert_eq!(loops, [1, u32::MAX]);
    assert!(tests(&world).iter().all(|(_, test)| test.service == 12 && test.parameter == [0; 12]));
}

/// The rule of lst 10.3, in its own words, for many sizes.
#[test]
fn clients_are_distributed_over_servers() {
    for (clients, servers, dist, span) in
        [(1, 1, 1, 1), (4, 4, 1, 1), (5, 3, 1, 1), (6, 4, 2, 1), (6, 4, 1, 2), (5, 5, 2, 3), (7, 3, 3, 3)]
    {
        let (from, to): (Vec<u32>, Vec<u32>) = ((1..=clients).collect(), (101..=100 + servers).collect());
        let mut world = World::with_groups(&[("c", &from), ("s", &to)]);
        world.sent.clear();
        let distribution = Distribution { clients: dist, servers: span };
        let test = AddTest { distribution, concurrency: 2, ..ping_test("c", "s") };
        world.run(ConsoleOperation::AddTest(test)).unwrap();
        for (number, (_, servers_of)) in given(&world).into_iter().enumerate() {
            let mut first = 0;
            for _ in 0..number as u32 / dist {
                first = (first + span) % servers;
            }
            let expected: Vec<ProcessId> = (0..span).map(|at| node(101 + (first + at) % servers)).collect();
            assert_eq!(servers_of, expected, "client {number} of {clients}:{servers} {dist}:{span}");
        }
        let up = |a: u32, b: u32| (1..).find(|times| times * b >= a).unwrap();
        let expected = up(up(clients, dist), up(servers, span)) * dist * 2;
        let loops = tests(&world);
        assert!(loops.iter().filter(|(_, test)| !test.is_client).all(|(_, test)| test.repeats == expected));
    }
}

#[test]
fn a_test_is_refused_before_anything_is_sent() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2, 3])]);
    world.sent.clear();
    let test = ping_test("c", "s");
    let distribution = |clients, servers| AddTest { distribution: Distribution { clients, servers }, ..test };
    let wrong = [
        (AddTest { from: name("x"), ..test }, Errno::ENOENT),
        (AddTest { to: name("x"), ..test }, Errno::ENOENT),
        (AddTest { batch: name("x"), ..test }, Errno::ENOENT),
        (AddTest { repeats: Some(0), ..test }, Errno::EINVAL),
        (AddTest { repeats: Some(1 << 31), ..test }, Errno::EINVAL),
        (AddTest { concurrency: 0, ..test }, Errno::EINVAL),
        (AddTest { concurrency: 1025, ..test }, Errno::EINVAL),
        (distribution(0, 1), Errno::EINVAL),
        (distribution(1, 0), Errno::EINVAL),
        (distribution(1, 3), Errno::EINVAL),
    ];
    for (test, errno) in wrong {
        assert_eq!(world.run(ConsoleOperation::AddTest(test)).unwrap_err().errno(), errno, "{test:?}");
    }
    assert_eq!((world.sent.len(), world.console.batches()[0].tests.len()), (0, 0));
}

#[test]
fn a_node_that_is_not_active_keeps_a_test_from_being_added() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
    world.node(2).session = None;
    world.run(ConsoleOperation::ShowError { targets: vec![Target::Group(name("s"))] }).unwrap();
    world.sent.clear();
    let error = world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap_err();
    assert_eq!(error, ConsoleError::NotActive { node: node(2), state: NodeState::Unknown });
    assert_eq!((error.errno(), world.sent.len()), (Errno::ENETDOWN, 0));
}

#[test]
fn clients_are_not_asked_after_a_server_has_refused() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2, 3])]);
    world.script(3, |_| Reaction::Status(12));
    let report = world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    let Report::Test { number, nodes, .. } = report else { panic!() };
    assert_eq!((number, nodes.len()), (None, 2));
    assert_eq!(nodes[1].answer, Err(NodeFailure::Refused(Errno::ENOMEM)));
    assert_eq!((given(&world), world.console.batches()[0].tests.len()), (vec![], 0));
    // The group is free again.
    world.script(3, |_| Reaction::Normal);
    world.run(ConsoleOperation::DelGroup { name: name("s") }).unwrap();
}

#[test]
fn clients_that_have_added_a_refused_test_are_warned_of() {
    let mut world = World::with_groups(&[("c", &[1, 4]), ("s", &[2])]);
    world.script(4, |_| Reaction::Status(12));
    let report = world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    assert!(matches!(report, Report::Test { number: None, .. }));
    assert_eq!(world.warnings, [Warning::TestLeftovers { batch: name("batch"), nodes: 1 }]);
}

#[test]
fn a_running_batch_takes_no_test() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
    let add = ConsoleOperation::AddTest(ping_test("c", "s"));
    let batch = name("batch");
    world.run(add.clone()).unwrap();
    world.run(ConsoleOperation::Run { batch, timeout_s: 0 }).unwrap();
    let error = world.run(add.clone()).unwrap_err();
    assert_eq!((error.errno(), error), (Errno::EINVAL, ConsoleError::Running { batch }));
    world.run(ConsoleOperation::Stop { batch, force: false }).unwrap();
    assert!(matches!(world.run(add).unwrap(), Report::Test { number: Some(2), .. }));
}

#[test]
fn without_the_feature_lengths_are_in_pages() {
    let mut world = World::empty([1, 2]);
    let session = NewSession { features: Features::NONE, ..new_session("old") };
    world.run(ConsoleOperation::NewSession(session)).unwrap();
    world.add_group("c", &[1]);
    world.add_group("s", &[2]);
    world.sent.clear();
    world.run(ConsoleOperation::AddTest(AddTest { kind: brw(Check::FULL), ..ping_test("c", "s") })).unwrap();
    for (_, test) in tests(&world) {
        let words: Vec<u32> =
            test.parameter.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(words, [Direction::WRITE.0, 2, Check::FULL.0]);
    }
}

#[test]
fn cancelling_between_two_steps_ends_a_test() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
    world.script(2, |_| Reaction::Silent);
    world.begin(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    world.pass(world.now_ns + 1);
    world.console.cancel(world.now_ns);
    assert!(matches!(world.finish(), Ok(Report::Test { number: None, .. })));
    assert_eq!((given(&world), world.console.batches()[0].tests.len()), (vec![], 0));
}
