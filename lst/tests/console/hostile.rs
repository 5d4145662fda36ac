//! Arbitrary replies, at arbitrary times.

use lnet_proto::lst::{MESSAGE_LEN, Reply, ReplyBody, SessionId};
use nix::errno::Errno;
use nlx_lst::console::{
    ConsoleOperation, ConsoleRpc, Event, GroupUpdate, NodeFailure, NodeState, Query, Report, Stat, Target,
};
use proptest::prelude::*;

use crate::world::{Reaction, SECOND_NS, World, name, node, parsed, ping_test};

#[test]
fn a_reply_that_cannot_be_read_fails_the_rpc_and_not_the_node() {
    let mut world = World::with_groups(&[("c", &[1])]);
    let good = Reply {
        features: lnet_proto::lst::Features(1),
        status: 0,
        sid: SessionId::NONE,
        body: ReplyBody::Test,
    };
    for bytes in [vec![], vec![0; MESSAGE_LEN], good.emit().to_vec(), vec![0xff; 200]] {
        world.script(1, move |_| Reaction::Raw(bytes.clone()));
        let report =
            world.run(ConsoleOperation::ShowError { targets: vec![Target::Group(name("c"))] }).unwrap();
        let Report::Errors(targets) = report else { panic!() };
        assert_eq!(targets[0].nodes[0].answer, Err(NodeFailure::Rpc(Errno::EPROTO)));
        assert_eq!(world.state(1), NodeState::Active);
    }
}

#[test]
fn replies_after_the_end_of_an_rpc_are_ignored() {
    let mut world = World::with_groups(&[("c", &[1])]);
    world.script(1, |_| Reaction::Silent);
    world.run(ConsoleOperation::ShowError { targets: vec![Target::Group(name("c"))] }).unwrap();
    let late = world.sent.last().unwrap().reply_id;
    assert_eq!(world.aborted, [late]);
    let sid = world.console.session().unwrap().sid;
    let body = ReplyBody::Stat(lnet_proto::lst::Statistics::default());
    let reply = Reply { features: lnet_proto::lst::Features(1), status: 0, sid, body }.emit();
    for id in [late, 0, u64::MAX] {
        world.console.answered(id, Ok(&reply), world.now_ns);
    }
    assert_eq!((world.console.next_event(), world.state(1)), (None, NodeState::Down));
}

/// States only move forward: what is reported with an earlier time does not overwrite a later one.
#[test]
fn an_earlier_reply_does_not_overwrite_a_later_state() {
    let mut world = World::with_groups(&[("c", &[1])]);
    let nodes = Target::Nodes(vec![node(1), node(1)]);
    world.console.begin(ConsoleOperation::Ping { target: nodes, timeout_s: 5 }, SECOND_NS).unwrap();
    let rpcs: Vec<ConsoleRpc> = std::iter::from_fn(|| world.console.next_rpc()).collect();
    let own = world.console.session().unwrap().sid;
    let reply = |sid| {
        let body = ReplyBody::Debug { timeout_s: 100, batches: 0, name: name("") };
        Reply { features: lnet_proto::lst::Features(1), status: 0, sid, body }.emit()
    };
    let other = SessionId { nid4: 3, stamp: 4 };
    world.console.answered(rpcs[0].reply_id, Ok(&reply(other)), 3 * SECOND_NS);
    world.console.answered(rpcs[1].reply_id, Ok(&reply(own)), 2 * SECOND_NS);
    assert_eq!(world.state(1), NodeState::Busy);
}

/// What a test does next.
#[derive(Clone, Debug)]
enum Act {
    Begin(usize),
    /// The oldest RPC ends: by these bytes of the right kind, by other bytes, by an error.
    Reply {
        status: u32,
        own: u8,
        active: u32,
    },
    Bytes(Vec<u8>),
    Fail(i32),
    Pass(u64),
    Cancel,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..OPERATIONS).prop_map(Act::Begin),
        8 => (prop_oneof![Just(0u32), Just(3), Just(16), Just(22), any::<u32>()], 0..3u8, 0..3u32)
            .prop_map(|(status, own, active)| Act::Reply { status, own, active }),
        1 => proptest::collection::vec(any::<u8>(), 0..200).prop_map(Act::Bytes),
        1 => (0..150i32).prop_map(Act::Fail),
        3 => (0..40 * SECOND_NS).prop_map(Act::Pass),
        1 => Just(Act::Cancel),
    ]
}

const OPERATIONS: usize = 13;

fn operation(number: usize) -> ConsoleOperation {
    let (batch, group) = (name("batch"), name("c"));
    let targets = vec![Target::Group(group), Target::Session];
    match number {
        0 => ConsoleOperation::NewSession(crate::world::new_session("main")),
        1 => ConsoleOperation::AddGroup { name: group, nodes: vec![node(1), node(2)] },
        2 => ConsoleOperation::AddGroup { name: name("s"), nodes: vec![node(2), node(3)] },
        3 => ConsoleOperation::AddTest(ping_test("c", "s")),
        4 => ConsoleOperation::Run { batch, timeout_s: 0 },
        5 => ConsoleOperation::Stop { batch, force: false },
        6 => ConsoleOperation::Query(Query {
            batch,
            test: 1,
            servers: true,
            timeout_s: 5,
            count: Some(2),
            delay_s: 1,
        }),
        7 => ConsoleOperation::Stat(Stat { targets, timeout_s: 5, delay_s: 1, count: Some(2) }),
        8 => ConsoleOperation::ShowError { targets },
        9 => ConsoleOperation::Ping { target: Target::Batch { name: batch, servers: false }, timeout_s: 8 },
        10 => ConsoleOperation::UpdateGroup { name: group, update: GroupUpdate::Refresh },
        11 => ConsoleOperation::DelGroup { name: group },
        _ => ConsoleOperation::EndSession,
    }
}

/// A reply of the kind that the RPC asks for.
fn reply_to(rpc: &ConsoleRpc, status: u32, own: u8, active: u32, session: SessionId) -> [u8; MESSAGE_LEN] {
    use lnet_proto::lst::LstService;
    let sid = [session, SessionId::NONE, SessionId { nid4: 9, stamp: 9 }][usize::from(own)];
    let body = match rpc.service {
        LstService::MakeSession => ReplyBody::MakeSession { timeout_s: active * 10, name: name("x") },
        LstService::RemoveSession => ReplyBody::RemoveSession,
        LstService::Batch => ReplyBody::Batch { active, time: 0 },
        LstService::Test => ReplyBody::Test,
        LstService::Stat => {
            ReplyBody::Stat(lnet_proto::lst::Statistics { session_ms: active, ..Default::default() })
        }
        _ => ReplyBody::Debug { timeout_s: active, batches: 0, name: name("x") },
    };
    Reply { features: parsed(rpc).features, status, sid, body }.emit()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever nodes do: nothing panics, each operation that has begun ends exactly once, time has
    /// an end for it, and an RPC is handed out once and given up at most once.
    #[test]
    fn every_operation_ends_once(acts in proptest::collection::vec(acts(), 1..120)) {
        let mut world = World::empty([]);
        let mut flight: std::collections::VecDeque<ConsoleRpc> = Default::default();
        let (mut begun, mut ended, mut now_ns) = (0u32, 0u32, 0u64);
        let mut ids = std::collections::HashSet::new();
        for act in acts {
            let console = &mut world.console;
            let session = console.session().map_or(SessionId::NONE, |session| session.sid);
            match act {
                Act::Begin(number) => begun += u32::from(console.begin(operation(number), now_ns).is_ok()),
                Act::Pass(ns) => {
                    now_ns += ns;
                    console.advance(now_ns);
                    prop_assert!(console.next_ns().is_none_or(|next_ns| next_ns > now_ns));
                }
                Act::Cancel => console.cancel(now_ns),
                act => if let Some(rpc) = flight.pop_front() {
                    match act {
                        Act::Reply { status, own, active } => {
                            let reply = reply_to(&rpc, status, own, active, session);
                            console.answered(rpc.reply_id, Ok(&reply), now_ns);
                        }
                        Act::Bytes(bytes) => console.answered(rpc.reply_id, Ok(&bytes), now_ns),
                        Act::Fail(errno) => {
                            console.answered(rpc.reply_id, Err(Errno::from_raw(errno)), now_ns);
                        }
                        _ => unreachable!("handled above"),
                    }
                }
            }
            while let Some(id) = console.next_abort() {
                let before = flight.len();
                flight.retain(|rpc| rpc.reply_id != id);
                prop_assert_eq!(flight.len() + 1, before, "only an RPC in flight is given up");
            }
            while let Some(rpc) = console.next_rpc() {
                prop_assert!(ids.insert(rpc.reply_id), "a reply id is used once");
                flight.push_back(rpc);
            }
            while let Some(event) = console.next_event() {
                ended += u32::from(matches!(event, Event::Done(_)));
            }
            prop_assert_eq!(begun - ended, u32::from(console.is_busy()));
        }
        // No further answer comes, so the operation ends by its timeouts.
        for _ in 0..300 {
            let Some(next_ns) = world.console.next_ns().filter(|_| world.console.is_busy()) else { break };
            world.console.advance(next_ns);
        }
        prop_assert!(!world.console.is_busy());
    }

    /// Any 160 bytes that claim to be a reply.
    #[test]
    fn any_bytes_are_a_reply_or_an_error(tail in proptest::collection::vec(any::<u8>(), 136), kind in 0u32..20) {
        let mut world = World::with_groups(&[("c", &[1]), ("s", &[2])]);
        let mut bytes = Reply {
            features: lnet_proto::lst::Features(1), status: 0, sid: SessionId::NONE, body: ReplyBody::Test,
        }.emit().to_vec();
        bytes[8..12].copy_from_slice(&kind.to_le_bytes());
        bytes[24..].copy_from_slice(&tail);
        for number in [1, 2] {
            let bytes = bytes.clone();
            world.script(number, move |_| Reaction::Raw(bytes.clone()));
        }
        for number in 3..OPERATIONS {
            if world.begin(operation(number)).is_ok() {
                let _ = world.finish();
            }
        }
        prop_assert_eq!(world.console.session(), None);
    }
}
