//! Keep-alive and expiry (lst 10.5).

use lnet_proto::lst::{LstService, RequestBody, SessionId};
use nix::errno::Errno;
use nlx_lst::console::{
    ConsoleError, ConsoleOperation, GroupUpdate, NewSession, NodeState, Report, Target, Warning,
};

use crate::world::{Reaction, SECOND_NS, World, name, new_session, node, ping_test};

fn at(world: &World, number: u32, service: LstService) -> usize {
    world.requests_to(number).iter().filter(|request| request.service() == service).count()
}

/// A session with this timeout, a client and a server with a test.
fn tested(timeout_s: u32) -> World {
    let mut world = World::empty([1, 2]);
    world.run(ConsoleOperation::NewSession(NewSession { timeout_s, ..new_session("main") })).unwrap();
    world.add_group("c", &[1]);
    world.add_group("s", &[2]);
    world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    world
}

#[test]
fn nodes_that_are_silent_for_half_of_their_timeout_are_kept_alive() {
    let mut world = tested(3000);
    world.pass(48 * SECOND_NS);
    assert_eq!(at(&world, 1, LstService::Debug), 0);
    // The ticks are 8 s apart, and 50 s have passed since the last reply.
    world.pass(56 * SECOND_NS + SECOND_NS / 2);
    assert_eq!((at(&world, 1, LstService::Debug), at(&world, 2, LstService::Debug)), (1, 1));
    let last = world.requests_to(1).last().copied().unwrap();
    let sid = world.console.session().unwrap().sid;
    assert_eq!(last.body, RequestBody::Debug { sid, flags: 0 });
    // Each 56 s: the answer of the last one is 50 s old at the seventh tick.
    world.pass(56 * 10 * SECOND_NS + SECOND_NS);
    assert_eq!(at(&world, 2, LstService::Debug), 10);
}

#[test]
fn any_reply_counts_as_a_sign_of_life() {
    let mut world = tested(3000);
    for round in 1..10 {
        world.pass(round * 40 * SECOND_NS);
        world.run(ConsoleOperation::ShowError { targets: vec![Target::Group(name("c"))] }).unwrap();
    }
    assert_eq!((at(&world, 1, LstService::Debug), at(&world, 2, LstService::Debug)), (0, 6));
}

#[test]
fn a_node_that_announces_no_timeout_is_left_alone() {
    let mut world = World::new([1]);
    world.script(1, |request| match request.body {
        RequestBody::MakeSession { sid, .. } => {
            let body = lnet_proto::lst::ReplyBody::MakeSession { timeout_s: 0, name: name("") };
            let reply = lnet_proto::lst::Reply { features: request.features, status: 0, sid, body };
            Reaction::Raw(reply.emit().to_vec())
        }
        _ => panic!("nothing else is sent"),
    });
    world.add_group("c", &[1]);
    world.pass(299 * SECOND_NS);
    assert_eq!(world.sent.len(), 1);
}

#[test]
fn a_node_that_does_not_answer_keep_alive_stays_active_and_is_warned_of_once() {
    let mut world = tested(3000);
    world.run(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap();
    world.script(1, |_| Reaction::Silent);
    // The fourth DEBUG is given up 30 s after the 224th second.
    world.pass(260 * SECOND_NS);
    assert_eq!((world.state(1), world.state(2)), (NodeState::Active, NodeState::Active));
    assert_eq!(world.aborted.len(), at(&world, 1, LstService::Debug));
    let [Warning::NodeExpired { node: silent, silent_s, batch }] = &world.warnings[..] else {
        panic!("{:?}", world.warnings)
    };
    assert_eq!((*silent, *batch), (node(1), name("batch")));
    assert!((108..116).contains(silent_s), "at the first tick after 100 s and the node's 8 s: {silent_s}");
}

/// The state stays even while an operation is in progress, whose own failures mark nodes as DOWN.
#[test]
fn a_keep_alive_that_fails_does_not_change_the_state() {
    let mut world = tested(3000);
    world.nodes.insert(node(3), crate::world::Node::new());
    world.script(3, |_| Reaction::Silent);
    world.script(1, |_| Reaction::Fails(Errno::EHOSTUNREACH));
    world.pass(54 * SECOND_NS);
    world.begin(ConsoleOperation::AddGroup { name: name("x"), nodes: vec![node(3)] }).unwrap();
    world.pass(57 * SECOND_NS);
    assert_eq!((at(&world, 1, LstService::Debug), world.state(1)), (1, NodeState::Active));
    world.finish().unwrap();
    assert_eq!(world.state(1), NodeState::Active);
}

#[test]
fn a_session_without_commands_expires() {
    let mut world = tested(140);
    world.pass(100 * SECOND_NS);
    world.run(ConsoleOperation::Ping { target: Target::Group(name("c")), timeout_s: 5 }).unwrap();
    // A list is no command.
    world.pass(200 * SECOND_NS);
    assert_eq!(world.console.groups().len(), 2);
    world.pass(239 * SECOND_NS);
    assert!(!world.console.session().unwrap().expired);
    world.pass(250 * SECOND_NS);
    assert_eq!((at(&world, 1, LstService::RemoveSession), at(&world, 2, LstService::RemoveSession)), (1, 1));
    assert!(world.console.session().unwrap().expired);
    assert!(world.nodes.values().all(|node| node.session.is_none()));
    assert_eq!((world.console.groups().len(), world.state(1)), (2, NodeState::Unknown));
    assert_eq!(world.warnings, []);
    // Then nothing happens any more.
    let sent = world.sent.len();
    world.pass(2000 * SECOND_NS);
    assert_eq!((world.sent.len(), world.console.next_ns()), (sent, None));
}

#[test]
fn a_session_does_not_expire_while_an_operation_waits() {
    let mut world = tested(10);
    world.script(1, |_| Reaction::Silent);
    world.begin(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap();
    world.pass(29 * SECOND_NS);
    assert!(!world.console.session().unwrap().expired);
    world.finish().unwrap();
    world.pass(64 * SECOND_NS);
    assert!(world.console.session().unwrap().expired);
}

#[test]
fn an_expired_session_takes_no_command_but_its_end() {
    let mut world = tested(10);
    world.pass(40 * SECOND_NS);
    let error = world.run(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap_err();
    assert_eq!(error, ConsoleError::Expired { name: name("main"), timeout_s: 10 });
    assert_eq!(world.run(ConsoleOperation::EndSession).unwrap(), Report::End { nodes: vec![] });
    world.run(ConsoleOperation::NewSession(new_session("next"))).unwrap();
    assert_eq!(world.console.session().unwrap().name, name("next"));
}

#[test]
fn a_new_session_takes_the_place_of_an_expired_one() {
    let mut world = tested(10);
    world.script(2, |_| Reaction::Silent);
    world.pass(17 * SECOND_NS);
    assert!(world.console.session().unwrap().expired);
    world.run(ConsoleOperation::NewSession(new_session("next"))).unwrap();
    // The RMSN that was not answered is given up: it belongs to the old session.
    assert_eq!((world.aborted.len(), world.console.groups().len()), (1, 0));
}

#[test]
fn expiry_with_a_running_batch_is_warned_of() {
    let mut world = tested(20);
    world.run(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap();
    world.pass(60 * SECOND_NS);
    assert_eq!(world.warnings, [Warning::ExpiredRunning { timeout_s: 20, batch: name("batch") }]);
}

/// A session that ends while a batch runs may become a zombie at kernel nodes.
// Covers: S-313
#[test]
fn the_end_with_a_running_batch_is_warned_of() {
    let mut world = tested(300);
    world.run(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap();
    world.run(ConsoleOperation::EndSession).unwrap();
    assert_eq!(world.warnings, [Warning::EndedRunning { batch: name("batch") }]);
    let mut world = tested(300);
    world.run(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap();
    world.run(ConsoleOperation::Stop { batch: name("batch"), force: true }).unwrap();
    world.run(ConsoleOperation::EndSession).unwrap();
    assert_eq!(world.warnings, []);
}

/// A client that another console takes, or whose session expires, while its batch runs; a server has no
/// clients that could stay.
// Covers: S-313
#[test]
fn a_session_that_is_lost_with_a_running_batch_is_warned_of() {
    let other = SessionId::new("10.0.0.8@tcp".parse().unwrap(), 7).unwrap();
    for (held, state) in [(Some((other, name("other"))), NodeState::Busy), (None, NodeState::Unknown)] {
        for is_running in [true, false] {
            let mut world = tested(300);
            if is_running {
                world.run(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap();
            }
            world.node(1).session = held;
            world.node(2).session = held;
            for _ in 0..2 {
                world.run(ConsoleOperation::Ping { target: Target::Session, timeout_s: 5 }).unwrap();
            }
            assert_eq!((world.state(1), world.state(2)), (state, state));
            let lost = Warning::SessionLost { node: node(1), state, batch: name("batch") };
            assert_eq!(world.warnings, Vec::from_iter(is_running.then_some(lost)));
        }
    }
}

/// A node that was taken by force and then answers nothing has a zombie session.
// Covers: S-313
#[test]
fn a_forced_node_that_falls_silent_is_warned_of() {
    for force in [true, false] {
        let mut world = World::empty([1, 2, 3]);
        world.run(ConsoleOperation::NewSession(NewSession { force, ..new_session("main") })).unwrap();
        world.script(3, |_| Reaction::Silent);
        world.add_group("c", &[1, 3]);
        world.add_group("s", &[2]);
        // Node 3 has never joined.
        assert_eq!((world.state(1), world.state(3)), (NodeState::Active, NodeState::Down));
        world.script(2, |_| Reaction::Silent);
        world
            .run(ConsoleOperation::UpdateGroup {
                name: name("c"),
                update: GroupUpdate::Clean(NodeState::Down.into()),
            })
            .unwrap();
        world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
        let silent = [Warning::Forced, Warning::SilentForced { node: node(2) }];
        assert_eq!(world.warnings, if force { &silent[..] } else { &[] });
    }
}

#[test]
fn ticks_that_were_missed_are_not_made_up_for() {
    let mut world = tested(3000);
    world.console.advance(1000 * SECOND_NS);
    let next_ns = world.console.next_ns().unwrap();
    assert_eq!(next_ns, 1008 * SECOND_NS);
    let debugs = std::iter::from_fn(|| world.console.next_rpc());
    assert_eq!(debugs.map(|rpc| rpc.service).collect::<Vec<_>>(), [LstService::Debug; 2]);
}

/// After a session its keep-alive RPCs are of no interest.
#[test]
fn keep_alive_ends_with_the_session() {
    let mut world = tested(3000);
    world.script(2, |_| Reaction::Silent);
    world.pass(57 * SECOND_NS);
    world.run(ConsoleOperation::EndSession).unwrap();
    assert_eq!((world.console.session(), world.console.next_ns()), (None, None));
    // The DEBUG, and the RMSN that was waited for.
    assert_eq!(world.aborted.len(), 2);
}
