//! JOIN: every row of lst 10.6, in its order.

use lnet_nid::ProcessId;
use lnet_proto::lst::{Features, LstService, Reply, ReplyBody, Request, RequestBody, SessionId};
use nix::errno::Errno;
use nlx_lst::console::{ConsoleError, ConsoleOperation, GROUPS_MAX, MEMBERS_MAX, NODES_MAX, NodeState};

use crate::world::{SECOND_NS, World, name, node, ping_test};

struct Join {
    from: ProcessId,
    sid: SessionId,
    features: Features,
    group: &'static str,
}

fn joining(number: u32, group: &'static str) -> Join {
    Join { from: node(number), sid: SessionId::NONE, features: Features::BULK_LENGTH, group }
}

fn join(world: &mut World, join: &Join) -> Reply {
    let body = RequestBody::Join { sid: join.sid, group: name(join.group) };
    let request = Request::new(join.features, 77, body).emit();
    let (reply_id, reply) = world.console.join(join.from, &request, world.now_ns).unwrap();
    assert_eq!(reply_id, 77);
    Reply::parse(LstService::Join, &reply).unwrap()
}

#[test]
fn a_node_joins_a_group_which_is_made() {
    let mut world = World::new([]);
    for (number, group) in [(1, "c"), (2, "c"), (1, "s")] {
        let reply = join(&mut world, &joining(number, group));
        let sid = world.console.session().unwrap().sid;
        assert_eq!((reply.status, reply.sid, reply.features), (0, sid, Features::BULK_LENGTH));
        assert_eq!(reply.body, ReplyBody::Join { timeout_s: 300, name: name("main") });
    }
    assert_eq!((world.state(1), world.console.groups().len()), (NodeState::Active, 2));
    assert_eq!((world.console.groups()[0].nodes.len(), world.console.session().unwrap().nodes), (2, 2));
    // The console sends it nothing.
    assert_eq!(world.sent.len(), 0);
    // A node that has joined has fixed the features.
    world.nodes.insert(node(3), crate::world::Node::new());
    world.node(3).knows = Features::NONE;
    world.add_group("old", &[3]);
    assert_eq!(world.console.session().unwrap().features, Features::BULK_LENGTH);
}

#[test]
fn joins_are_refused_in_the_order_of_the_table() {
    let mut world = World::empty([1, 2]);
    let none = join(&mut world, &joining(3, "c"));
    assert_eq!((none.status, none.sid), (3, SessionId::NONE));
    world.run(ConsoleOperation::NewSession(crate::world::new_session("main"))).unwrap();
    world.add_group("c", &[1]);
    world.add_group("s", &[2]);
    world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    let other = SessionId { nid4: 1, stamp: 2 };
    let sid = world.console.session().unwrap().sid;
    let features = Features::NONE;
    let refused = [
        (Join { features, sid: other, ..joining(1, "c") }, 71),
        (Join { sid: other, ..joining(1, "c") }, 16),
        (Join { sid, ..joining(1, "c") }, 16),
        (Join { sid, ..joining(3, "x") }, 0),
        (Join { sid, ..joining(3, "x") }, 17),
        (joining(3, ""), 0),
        (Join { from: "12345-fd00::1@tcp".parse().unwrap(), ..joining(4, "x") }, 22),
    ];
    for (asked, status) in refused {
        let reply = join(&mut world, &asked);
        assert_eq!((reply.status, reply.sid), (status, sid), "{:?} {:?}", asked.from, asked.group);
    }
    assert_eq!(world.console.groups().len(), 3);
}

/// Hostile nodes cannot make the console grow without end.
#[test]
fn groups_and_members_have_limits() {
    let mut world = World::new([]);
    let mut groups = (0..GROUPS_MAX).map(|number| name(&format!("g{number}")));
    let asked = |world: &mut World, group| {
        let body = RequestBody::Join { sid: SessionId::NONE, group };
        let request = Request::new(Features::BULK_LENGTH, 77, body).emit();
        let (_, reply) = world.console.join(node(1), &request, 0).unwrap();
        Reply::parse(LstService::Join, &reply).unwrap().status
    };
    assert!(groups.all(|group| asked(&mut world, group) == 0));
    assert_eq!(asked(&mut world, name("one more")), 12);
    world.run(ConsoleOperation::EndSession).unwrap();
    world.run(ConsoleOperation::NewSession(crate::world::new_session("next"))).unwrap();
    let numbers: Vec<u32> = (1..=NODES_MAX as u32).collect();
    for group in ["a", "b", "c", "d", "e"] {
        let nodes = numbers.iter().map(|number| node(*number)).collect();
        let begun = world.begin(ConsoleOperation::AddGroup { name: name(group), nodes });
        if group == "e" {
            let limit = MEMBERS_MAX;
            assert_eq!(begun, Err(ConsoleError::TooMany { what: "members of groups", limit }));
            continue;
        }
        // The nodes exist in no world: the RPCs fail.
        let mut rpcs = std::iter::from_fn(|| world.console.next_rpc()).collect::<Vec<_>>();
        if let Some(first) = rpcs.pop() {
            let reply = Reply {
                features: Features::BULK_LENGTH,
                status: 0,
                sid: world.console.session().unwrap().sid,
                body: ReplyBody::MakeSession { timeout_s: 0, name: name("") },
            };
            world.console.answered(first.reply_id, Ok(&reply.emit()), 0);
        }
        for rpc in rpcs {
            world.console.answered(rpc.reply_id, Err(Errno::EHOSTUNREACH), 0);
        }
        world.finish().unwrap();
    }
    let error = world.begin(ConsoleOperation::AddGroup { name: name("x"), nodes: vec![node(0)] });
    assert_eq!(error, Err(ConsoleError::TooMany { what: "nodes", limit: NODES_MAX }));
}

#[test]
fn an_expired_session_is_no_session() {
    let mut world = World::new([]);
    world.pass(400 * SECOND_NS);
    assert_eq!(join(&mut world, &joining(1, "c")).status, 3);
}

#[test]
fn malformed_joins_get_no_reply_and_other_versions_an_error() {
    let mut world = World::new([]);
    let body = RequestBody::Join { sid: SessionId::NONE, group: name("c") };
    let good = Request::new(Features::BULK_LENGTH, 7, body);
    for at in [0, 8] {
        let mut bytes = good.emit();
        bytes[at] ^= 0xff;
        assert_eq!(world.console.join(node(1), &bytes, 0), None);
    }
    assert_eq!(world.console.join(node(1), &good.emit()[..159], 0), None);
    let (_, reply) = world.console.join(node(1), &Request { version: 2, ..good }.emit(), 0).unwrap();
    assert_eq!(Reply::parse(LstService::Join, &reply).unwrap().status, 71);
    assert_eq!(world.console.groups(), []);
}

#[test]
fn a_node_that_has_joined_takes_part_like_others() {
    let mut world = World::with_groups(&[("s", &[2])]);
    let sid = world.console.session().unwrap().sid;
    let mut joined = crate::world::Node::new();
    joined.session = Some((sid, name("main")));
    world.nodes.insert(node(1), joined);
    assert_eq!(join(&mut world, &joining(1, "c")).status, 0);
    world.run(ConsoleOperation::AddTest(ping_test("c", "s"))).unwrap();
    world.run(ConsoleOperation::Run { batch: name("batch"), timeout_s: 0 }).unwrap();
    assert_eq!(world.requests_to(1).len(), 2);
    world.run(ConsoleOperation::EndSession).unwrap();
    assert_eq!(world.node(1).session, None);
}
