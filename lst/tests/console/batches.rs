//! Running, stopping and asking for batches (lst 10.3).

use lnet_proto::lst::{BatchOp, LstService, RequestBody};
use nix::errno::Errno;
use nlx_lst::console::{
    ConsoleError, ConsoleOperation, NodeFailure, NodeState, Query, Report, Target, Warning,
};

use crate::world::{Reaction, SECOND_NS, World, name, node, ping_test};

fn query(test: u32, servers: bool) -> ConsoleOperation {
    ConsoleOperation::Query(Query {
        batch: name("batch"),
        test,
        servers,
        timeout_s: 5,
        count: Some(1),
        delay_s: 5,
    })
}

fn run() -> ConsoleOperation {
    ConsoleOperation::Run { batch: name("batch"), timeout_s: 17 }
}

fn stop(force: bool) -> ConsoleOperation {
    ConsoleOperation::Stop { batch: name("batch"), force }
}

/// Two clients, two servers and a test of all of them.
fn tested() -> World {
    let mut world = World::with_groups(&[("c", &[1, 2]), ("s", &[3, 4])]);
    world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    world.sent.clear();
    world
}

/// Operation, test and argument of the BATCHes that were sent to a node.
fn batches(world: &World, number: u32) -> Vec<(BatchOp, u32, u32)> {
    let requests = world.requests_to(number);
    let batch = |body| match body {
        RequestBody::Batch { op, test, argument, batch: 1, .. } => Some((op, test, argument)),
        _ => None,
    };
    requests.iter().filter_map(|request| batch(request.body)).collect()
}

fn active(world: &mut World, operation: ConsoleOperation) -> Vec<Result<u32, NodeFailure>> {
    let Report::Query(report) = world.run(operation).unwrap() else { panic!() };
    report.nodes.iter().map(|node| node.answer).collect()
}

#[test]
fn only_clients_are_run_and_stopped() {
    let mut world = tested();
    let Report::Run { nodes, .. } = world.run(run()).unwrap() else { panic!() };
    assert!(nodes.iter().all(|node| node.answer.is_ok()));
    assert!(world.console.batches()[0].running);
    assert_eq!(active(&mut world, query(0, false)), [Ok(1), Ok(1)]);
    world.run(stop(true)).unwrap();
    assert!(!world.console.batches()[0].running);
    let expected =
        [(BatchOp::RUN, 0, 17), (BatchOp::QUERY, 0, 0), (BatchOp::STOP, 0, 1), (BatchOp::QUERY, 0, 0)];
    assert_eq!((batches(&world, 1), batches(&world, 2)), (expected.to_vec(), expected.to_vec()));
    assert_eq!((batches(&world, 3), batches(&world, 4)), (vec![], vec![]));
}

#[test]
fn a_batch_that_runs_is_run_again() {
    let mut world = tested();
    world.run(run()).unwrap();
    assert!(matches!(world.run(run()).unwrap(), Report::Run { .. }));
    assert_eq!(batches(&world, 1).len(), 2);
}

#[test]
fn a_batch_that_does_not_exist_or_has_no_test_is_not_run() {
    let mut world = World::new([]);
    let error = world.run(ConsoleOperation::Run { batch: name("x"), timeout_s: 0 }).unwrap_err();
    assert_eq!(error.errno(), Errno::ENOENT);
    assert_eq!(world.run(run()).unwrap_err(), ConsoleError::NoTests { batch: name("batch") });
    world.run(ConsoleOperation::AddBatch { name: name("b") }).unwrap();
    let error = world.run(ConsoleOperation::AddBatch { name: name("b") }).unwrap_err();
    assert_eq!(error, ConsoleError::Exists { object: "batch", name: name("b") });
    assert_eq!(world.console.batches()[1].id, 2);
}

#[test]
fn a_client_that_is_not_active_keeps_a_batch_from_running() {
    let mut world = tested();
    world.node(2).session = None;
    world.run(ConsoleOperation::Ping { target: Target::Group(name("c")), timeout_s: 5 }).unwrap();
    let error = world.run(run()).unwrap_err();
    assert_eq!(error, ConsoleError::NotActive { node: node(2), state: NodeState::Unknown });
    assert!(!world.console.batches()[0].running);
    // A server may be in any state.
    let mut world = tested();
    world.node(3).session = None;
    world.run(ConsoleOperation::Ping { target: Target::Group(name("s")), timeout_s: 5 }).unwrap();
    world.run(run()).unwrap();
}

#[test]
fn a_batch_that_no_client_has_started_does_not_run() {
    let mut world = tested();
    for number in [1, 2] {
        world.script(number, |_| Reaction::Status(2));
    }
    let Report::Run { nodes, .. } = world.run(run()).unwrap() else { panic!() };
    assert!(nodes.iter().all(|node| node.answer == Err(NodeFailure::Refused(Errno::ENOENT))));
    assert!(!world.console.batches()[0].running);
}

#[test]
fn stop_asks_every_second_until_nothing_runs() {
    let mut world = tested();
    world.run(run()).unwrap();
    world.node(2).drain = 3;
    let began_ns = world.now_ns;
    let Report::Stop { nodes, running, .. } = world.run(stop(false)).unwrap() else { panic!() };
    assert_eq!((running, nodes.len()), (0, 2));
    let stopping = Report::Stopping { batch: name("batch"), nodes: 1 };
    assert_eq!(world.progress, vec![stopping; 3]);
    let delay_ns = world.node(2).delay_ns;
    assert_eq!(world.now_ns - began_ns, 3 * SECOND_NS + 2 * delay_ns, "each a second after the one before");
    let of_2 = batches(&world, 2);
    assert_eq!(of_2[1], (BatchOp::STOP, 0, 0));
    assert_eq!(of_2[2..], [(BatchOp::QUERY, 0, 0); 4]);
}

#[test]
fn stop_ceases_to_wait_for_a_client_that_goes_on() {
    let mut world = tested();
    world.run(run()).unwrap();
    world.node(1).drain = u32::MAX;
    let began_ns = world.now_ns;
    assert!(matches!(world.run(stop(false)).unwrap(), Report::Stop { running: 1, .. }));
    assert_eq!((world.now_ns - began_ns) / SECOND_NS, 90);
    assert!(!world.console.batches()[0].running);
}

#[test]
fn a_client_that_dies_while_it_stops_is_not_waited_for() {
    let mut world = tested();
    world.run(run()).unwrap();
    world.node(2).drain = 2;
    world.script(1, |request| match request.body {
        RequestBody::Batch { op: BatchOp::QUERY, .. } => Reaction::Silent,
        _ => Reaction::Normal,
    });
    let Report::Stop { nodes, .. } = world.run(stop(false)).unwrap() else { panic!() };
    assert_eq!(nodes[0].answer, Err(NodeFailure::Rpc(Errno::ETIMEDOUT)));
    assert_eq!((nodes[1].answer, world.state(1)), (Ok(()), NodeState::Down));
    assert_eq!(world.aborted.len(), 1);
}

#[test]
fn a_client_that_has_not_run_the_batch_is_stopped_without_an_error() {
    let mut world = tested();
    world.script(1, |request| match request.body {
        RequestBody::Batch { op: BatchOp::STOP, .. } => Reaction::Status(1),
        _ => Reaction::Normal,
    });
    let Report::Stop { nodes, .. } = world.run(stop(false)).unwrap() else { panic!() };
    assert!(nodes.iter().all(|node| node.answer == Ok(())));
}

#[test]
fn only_active_clients_are_stopped() {
    let mut world = tested();
    world.run(run()).unwrap();
    world.node(2).session = None;
    world.run(ConsoleOperation::Ping { target: Target::Group(name("c")), timeout_s: 5 }).unwrap();
    world.sent.clear();
    let Report::Stop { nodes, running, .. } = world.run(stop(false)).unwrap() else { panic!() };
    assert_eq!((nodes.len(), running, batches(&world, 2)), (1, 0, vec![]));
    assert_eq!(batches(&world, 1), [(BatchOp::STOP, 0, 0), (BatchOp::QUERY, 0, 0)]);
}

/// Kernel nodes abort nothing on a STOP with force after one without.
// Covers: S-313
#[test]
fn force_that_comes_too_late_is_warned_of() {
    let mut world = tested();
    for (drain, first, is_late) in [(u32::MAX, false, true), (2, false, false), (u32::MAX, true, false)] {
        world.run(run()).unwrap();
        world.node(1).drain = drain;
        world.run(stop(first)).unwrap();
        world.node(1).drain = 0;
        world.run(stop(true)).unwrap();
        let late = Warning::ForcedTooLate { batch: name("batch") };
        assert_eq!(
            std::mem::take(&mut world.warnings),
            Vec::from_iter(is_late.then_some(late)),
            "{drain} {first}"
        );
    }
}

#[test]
fn stop_can_be_cancelled_while_it_waits() {
    let mut world = tested();
    world.run(run()).unwrap();
    world.node(1).drain = u32::MAX;
    world.begin(stop(false)).unwrap();
    world.pass(world.now_ns + 3 * SECOND_NS + SECOND_NS / 2);
    world.console.cancel(world.now_ns);
    assert_eq!(world.finish(), Err(ConsoleError::Canceled));
    assert!(world.begin(query(0, false)).is_ok());
}

/// A node counts its own instances: servers and clients in the order in which they came (lst 6).
#[test]
fn a_query_of_one_test_names_it_as_each_node_counts() {
    let mut world = World::with_groups(&[("a", &[1]), ("b", &[2]), ("both", &[1, 2])]);
    for (from, to) in [("a", "b"), ("b", "a"), ("both", "both")] {
        world.run(ConsoleOperation::AddTest(ping_test(from, to))).unwrap();
    }
    let asked = |world: &mut World, test, servers| {
        world.sent.clear();
        world.run(query(test, servers)).unwrap();
        [1, 2].map(|number| batches(world, number).first().map(|(_, test, _)| *test))
    };
    assert_eq!(asked(&mut world, 1, false), [Some(1), None]);
    assert_eq!(asked(&mut world, 1, true), [None, Some(1)]);
    assert_eq!(asked(&mut world, 2, false), [None, Some(2)]);
    assert_eq!(asked(&mut world, 2, true), [Some(2), None]);
    // The server of the third test came before its client.
    assert_eq!(asked(&mut world, 3, true), [Some(3), Some(3)]);
    assert_eq!(asked(&mut world, 3, false), [Some(4), Some(4)]);
    assert_eq!(world.run(query(4, false)).unwrap_err().errno(), Errno::ENOENT);
}

#[test]
fn a_query_is_repeated() {
    let mut world = tested();
    let repeated =
        Query { batch: name("batch"), test: 0, servers: true, timeout_s: 1, count: Some(3), delay_s: 2 };
    let began_ns = world.now_ns;
    world.run(ConsoleOperation::Query(repeated)).unwrap();
    assert_eq!((world.progress.len(), (world.now_ns - began_ns) / SECOND_NS), (2, 4));
    assert_eq!((batches(&world, 3).len(), batches(&world, 1).len()), (3, 0));
}

/// A wait below 6 s counts as interrupted: the node keeps its state. A wait is 3 s at least.
#[test]
fn a_client_that_does_not_answer_a_query_keeps_its_state() {
    let mut world = tested();
    world.script(2, |_| Reaction::Silent);
    for (timeout_s, wait_s, state) in
        [(1, 3, NodeState::Active), (5, 5, NodeState::Active), (99, 30, NodeState::Down)]
    {
        let began_ns = world.now_ns;
        let query =
            Query { batch: name("batch"), test: 0, servers: false, timeout_s, count: Some(1), delay_s: 1 };
        assert_eq!(
            active(&mut world, ConsoleOperation::Query(query)),
            [Ok(0), Err(NodeFailure::Rpc(Errno::ETIMEDOUT))]
        );
        assert_eq!(((world.now_ns - began_ns) / SECOND_NS, world.state(2)), (wait_s, state));
    }
}

#[test]
fn numbers_of_batches_go_on_in_the_next_session() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
    world.run(ConsoleOperation::AddBatch { name: name("b") }).unwrap();
    world.run(ConsoleOperation::EndSession).unwrap();
    for _ in 0..2 {
        world.run(ConsoleOperation::NewSession(crate::world::new_session("next"))).unwrap();
        world.run(ConsoleOperation::EndSession).unwrap();
    }
    world.run(ConsoleOperation::NewSession(crate::world::new_session("last"))).unwrap();
    assert_eq!(world.console.batches()[0].id, 5);
    assert!(world.services().contains(&LstService::RemoveSession));
}
