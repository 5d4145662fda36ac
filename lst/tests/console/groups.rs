//! Sessions and groups (lst 10.1 to 10.4).

use std::sync::Arc;

use lnet_proto::lst::{Features, LstService, RequestBody};
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::console::{
    Console, ConsoleError, ConsoleOperation, GroupOutcome, GroupUpdate, NewSession, NodeFailure, NodeState,
    NodeStates, Report, Warning,
};

use crate::world::{Reaction, SECOND_NS, World, name, new_session, node, ping_test};

fn update(group: &str, update: GroupUpdate) -> ConsoleOperation {
    ConsoleOperation::UpdateGroup { name: name(group), update }
}

fn answers(report: Report) -> Vec<Result<(), NodeFailure>> {
    let Report::Group { nodes, .. } = report else { panic!("{report:?}") };
    nodes.iter().map(|node| node.answer).collect()
}

fn members(world: &World, group: &str) -> Vec<u32> {
    let groups = world.console.groups();
    let found = groups.iter().find(|found| found.name == name(group));
    found.map_or(Vec::new(), |group| {
        let numbers = 1..2000;
        let is_member = |number: &u32| group.nodes.iter().any(|member| member.node == node(*number));
        numbers.filter(is_member).collect()
    })
}

#[test]
fn a_session_begins_with_a_batch_and_without_groups() {
    let mut world = World::empty([]);
    let Report::Session(info) = world.run(ConsoleOperation::NewSession(new_session("main"))).unwrap() else {
        panic!()
    };
    assert_eq!((info.name, info.sid.stamp, info.features, info.nodes), (name("main"), 1000, Features(1), 0));
    assert_eq!(info.sid.nid(), Some("10.0.0.9@tcp".parse().unwrap()));
    let batches = world.console.batches();
    assert_eq!((batches.len(), batches[0].name, batches[0].id), (1, name("batch"), 1));
    assert_eq!((world.console.groups(), world.sent.len()), (vec![], 0));
}

#[test]
fn a_second_session_is_refused_and_the_first_stays() {
    let mut world = World::new([]);
    let error = world.run(ConsoleOperation::NewSession(new_session("other"))).unwrap_err();
    assert_eq!(
        (error.errno(), &error),
        (Errno::EOPNOTSUPP, &ConsoleError::SessionOpen { name: name("main") })
    );
    assert_eq!(world.console.session().unwrap().name, name("main"));
}

#[test]
fn nothing_is_done_without_a_session() {
    let mut world = World::empty([1]);
    let group = ConsoleOperation::AddGroup { name: name("c"), nodes: vec![node(1)] };
    for operation in [
        group,
        ConsoleOperation::DelGroup { name: name("c") },
        ConsoleOperation::AddBatch { name: name("b") },
        ConsoleOperation::AddTest(ping_test("c", "c")),
        ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 },
        ConsoleOperation::Stop { batch: name("batch"), force: false },
        ConsoleOperation::ShowError { targets: vec![] },
    ] {
        assert_eq!(world.run(operation).unwrap_err(), ConsoleError::NoSession);
    }
    assert_eq!(world.run(ConsoleOperation::EndSession).unwrap(), Report::End { nodes: vec![] });
    assert_eq!((world.console.session(), world.sent.len()), (None, 0));
}

#[test]
fn a_console_needs_an_address_of_four_bytes() {
    let own = "fd00::1@tcp".parse().unwrap();
    assert_eq!(Console::new(own, Arc::new(Ids::new(1))).unwrap_err(), ConsoleError::LargeNid { nid: own });
    let mut world = World::new([]);
    let nodes = vec!["12345-fd00::1@tcp".parse().unwrap()];
    let error = world.run(ConsoleOperation::AddGroup { name: name("c"), nodes }).unwrap_err();
    assert_eq!((error, world.console.groups()), (ConsoleError::LargeNid { nid: own }, vec![]));
}

#[test]
fn nodes_of_a_new_group_are_sent_the_session_once() {
    let mut world = World::new([1, 2, 3]);
    world.add_group("c", &[1, 2, 1]);
    assert_eq!(members(&world, "c"), [1, 2]);
    assert_eq!((world.state(1), world.state(2)), (NodeState::Active, NodeState::Active));
    // Node 2 is ACTIVE already.
    world.add_group("s", &[2, 3]);
    let to_2 = world.requests_to(2);
    assert!(matches!(to_2[..], [request] if matches!(request.body,
        RequestBody::MakeSession { force: 0, name: session, .. } if session == name("main"))));
    assert_eq!(world.services(), [LstService::MakeSession; 3]);
    assert_eq!(world.console.session().unwrap().nodes, 3);
    let error = world.run(ConsoleOperation::AddGroup { name: name("c"), nodes: vec![node(1)] }).unwrap_err();
    assert_eq!(
        (error.errno(), &error),
        (Errno::EEXIST, &ConsoleError::Exists { object: "group", name: name("c") })
    );
}

#[test]
fn a_group_keeps_refused_nodes_if_another_has_joined() {
    let mut world = World::new([1, 2, 3]);
    world.script(2, |_| Reaction::Status(12));
    world.node(3).session = Some((lnet_proto::lst::SessionId { nid4: 5, stamp: 6 }, name("theirs")));
    let report = world.add_group("c", &[1, 2, 3]);
    assert!(matches!(report, Report::Group { outcome: GroupOutcome::Added, .. }));
    let refused = |errno| Err(NodeFailure::Refused(errno));
    assert_eq!(answers(report), [Ok(()), refused(Errno::ENOMEM), refused(Errno::EBUSY)]);
    let states = [1, 2, 3].map(|number| world.state(number));
    assert_eq!(states, [NodeState::Active, NodeState::Unknown, NodeState::Busy]);
}

#[test]
fn a_group_without_a_node_is_deleted_again() {
    let mut world = World::new([1, 2]);
    world.script(1, |_| Reaction::Silent);
    world.script(2, |_| Reaction::Fails(Errno::EHOSTUNREACH));
    let report = world.add_group("c", &[1, 2]);
    assert!(matches!(report, Report::Group { outcome: GroupOutcome::AddedWithoutNodes, .. }));
    let failed = |errno| Err(NodeFailure::Rpc(errno));
    assert_eq!(answers(report), [failed(Errno::ETIMEDOUT), failed(Errno::EHOSTUNREACH)]);
    assert_eq!((world.now_ns, world.aborted.len()), (30 * SECOND_NS, 1));
    assert_eq!((world.console.groups(), world.console.session().unwrap().nodes), (vec![], 0));
}

#[test]
fn a_forced_session_takes_nodes_and_warns() {
    let mut world = World::empty([1]);
    world.node(1).session = Some((lnet_proto::lst::SessionId { nid4: 5, stamp: 6 }, name("theirs")));
    world.run(ConsoleOperation::NewSession(NewSession { force: true, ..new_session("main") })).unwrap();
    assert_eq!(world.warnings, [Warning::Forced]);
    assert_eq!(answers(world.add_group("c", &[1])), [Ok(())]);
    assert!(matches!(world.requests_to(1)[0].body, RequestBody::MakeSession { force: 1, .. }));
}

#[test]
fn refresh_repeats_the_session_for_nodes_that_are_not_active() {
    let mut world = World::with_groups(&[("c", &[1, 2])]);
    world.node(2).session = None;
    let target = nlx_lst::console::Target::Group(name("c"));
    world.run(ConsoleOperation::Ping { target, timeout_s: 5 }).unwrap();
    assert_eq!(world.state(2), NodeState::Unknown);
    world.sent.clear();
    assert_eq!(answers(world.run(update("c", GroupUpdate::Refresh)).unwrap()), [Ok(())]);
    assert_eq!((world.services(), world.sent[0].to), (vec![LstService::MakeSession], node(2)));
    assert_eq!(world.state(2), NodeState::Active);
}

#[test]
fn nodes_that_leave_their_last_group_are_sent_the_end_of_the_session() {
    let mut world = World::with_groups(&[("c", &[1, 2, 3]), ("s", &[2])]);
    world.script(3, |_| Reaction::Silent);
    world
        .run(ConsoleOperation::ShowError { targets: vec![nlx_lst::console::Target::Group(name("c"))] })
        .unwrap();
    assert_eq!(world.state(3), NodeState::Down);
    world.sent.clear();
    // Node 2 is in another group, node 3 is not ACTIVE.
    let report = world.run(ConsoleOperation::DelGroup { name: name("c") }).unwrap();
    assert_eq!(answers(report), [Ok(())]);
    assert_eq!((world.services(), world.sent[0].to), (vec![LstService::RemoveSession], node(1)));
    assert_eq!(world.console.session().unwrap().nodes, 1);
    assert_eq!((members(&world, "c"), members(&world, "s")), (vec![], vec![2]));
}

#[test]
fn a_node_that_has_no_session_any_more_leaves_without_an_error() {
    let mut world = World::with_groups(&[("c", &[1, 2])]);
    world.node(1).session = None;
    let report = world.run(update("c", GroupUpdate::Remove(vec![node(1)]))).unwrap();
    assert_eq!((answers(report), members(&world, "c")), (vec![Ok(())], vec![2]));
    let error = world.run(update("c", GroupUpdate::Remove(vec![node(1)]))).unwrap_err();
    assert_eq!(error, ConsoleError::NotMember { node: node(1), group: name("c") });
}

#[test]
fn clean_removes_nodes_by_state_and_an_empty_group() {
    let mut world = World::new([1, 2]);
    world.script(2, |_| Reaction::Silent);
    world.add_group("c", &[1, 2]);
    assert_eq!(world.state(2), NodeState::Down);
    world.run(update("c", GroupUpdate::Clean(NodeState::Busy.into()))).unwrap();
    assert_eq!(members(&world, "c"), [1, 2]);
    world.run(update("c", GroupUpdate::Clean(NodeStates::INVALID))).unwrap();
    assert_eq!(members(&world, "c"), [1]);
    world.run(update("c", GroupUpdate::Clean(NodeStates::ALL))).unwrap();
    assert_eq!((world.console.groups(), world.node(1).session), (vec![], None));
}

#[test]
fn a_group_that_a_test_uses_does_not_change() {
    let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
    world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    let used = |group| ConsoleError::InUse { group: name(group), batch: name("batch") };
    assert_eq!(world.run(ConsoleOperation::DelGroup { name: name("c") }).unwrap_err(), used("c"));
    assert_eq!(world.run(update("s", GroupUpdate::Refresh)).unwrap_err(), used("s"));
    assert_eq!(used("c").errno(), Errno::EBUSY);
}

/// The first reply decides on the features; others that differ count as EPROTO (lst 10.4).
#[test]
fn the_first_node_decides_on_the_features() {
    let mut world = World::new([1, 2, 3]);
    for (number, delay_ns) in [(1, 2), (2, 1), (3, 3)] {
        world.node(number).delay_ns = delay_ns;
    }
    world.node(2).knows = Features::NONE;
    world.node(3).knows = Features::NONE;
    let report = world.add_group("c", &[1, 2, 3]);
    assert_eq!(answers(report), [Err(NodeFailure::Refused(Errno::EPROTO)), Ok(()), Ok(())]);
    assert_eq!(world.warnings, [Warning::FeaturesChanged { features: Features::NONE }]);
    assert_eq!(world.console.session().unwrap().features, Features::NONE);
    world.run(ConsoleOperation::ShowError { targets: vec![] }).unwrap();
    world.run(ConsoleOperation::EndSession).unwrap();
    let last = world.requests_to(2).last().copied().unwrap();
    assert_eq!((last.service(), last.features), (LstService::RemoveSession, Features::NONE));
}

#[test]
fn unknown_features_of_a_node_are_an_error() {
    let mut world = World::new([1]);
    world.node(1).knows = Features(5);
    world.node(1).script = Box::new(|request| {
        let RequestBody::MakeSession { sid, .. } = request.body else { panic!() };
        let body = lnet_proto::lst::ReplyBody::MakeSession { timeout_s: 100, name: name("") };
        let reply = lnet_proto::lst::Reply { features: Features(3), status: 0, sid, body };
        Reaction::Raw(reply.emit().to_vec())
    });
    assert_eq!(answers(world.add_group("c", &[1])), [Err(NodeFailure::Refused(Errno::EPROTO))]);
    assert_eq!(world.console.session().unwrap().features, Features::BULK_LENGTH);
}

#[test]
fn an_operation_excludes_others_until_it_ends_or_is_cancelled() {
    let mut world = World::new([1, 2]);
    world.script(2, |_| Reaction::Silent);
    world.begin(ConsoleOperation::AddGroup { name: name("c"), nodes: vec![node(1), node(2)] }).unwrap();
    assert!(world.console.is_busy());
    assert_eq!(world.begin(ConsoleOperation::EndSession).unwrap_err(), ConsoleError::Busy);
    world.pass(SECOND_NS);
    world.console.cancel(world.now_ns);
    let report = world.finish().unwrap();
    assert_eq!(answers(report), [Ok(()), Err(NodeFailure::Rpc(Errno::EINTR))]);
    assert_eq!((world.aborted.len(), world.console.is_busy()), (1, false));
    // An RPC that this host breaks off does not change the state of the node.
    assert_eq!(world.state(2), NodeState::Unknown);
}

#[test]
fn a_thousand_nodes_join_and_leave() {
    let numbers: Vec<u32> = (1..=1000).collect();
    let mut world = World::new(numbers.iter().copied());
    world.script(500, |_| Reaction::Silent);
    let report = world.add_group("c", &numbers);
    assert_eq!(answers(report).iter().filter(|answer| answer.is_ok()).count(), 999);
    world.sent.clear();
    let Report::End { nodes } = world.run(ConsoleOperation::EndSession).unwrap() else { panic!() };
    assert_eq!((nodes.len(), world.sent.len()), (999, 999));
    assert!(world.nodes.values().all(|node| node.session.is_none()));
    let delay_ns = world.node(1).delay_ns;
    assert_eq!(world.now_ns, 30 * SECOND_NS + delay_ns, "the DOWN node is not waited for");
}
