//! Recorded sessions of kernel consoles: this console emits the same requests and takes the
//! recorded replies (lst 16, step C).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use lnet_proto::lst::{Check, Direction, Statistics};
use nlx_lst::Ids;
use nlx_lst::console::{
    AddTest, BrwTest, Console, ConsoleOperation, ConsoleRpc, GroupOutcome, GroupUpdate, NewSession,
    NodeFailure, NodeState, Query, Rates, Report, Stat, Target, TestKind,
};
use serde_json::Value;

use crate::world::{Reaction, World, name, new_session, node, ping_test};

/// What a console and a node said to each other, as far as it is the console's business.
struct Recording {
    requests: Vec<Vec<u8>>,
    /// The replies, in the order of the requests. One may be missing at the end.
    replies: Vec<Vec<u8>>,
    /// The lists of destinations that the node fetched.
    lists: Vec<Vec<u8>>,
}

const REQUEST_PORTAL: u32 = 51;

/// Reads what went between two hosts of a recording.
fn recording(file: &str, console: &str, host: &str) -> Recording {
    let path = format!("{}/../tests/vectors/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let (mut requests, mut replies, mut lists) = (Vec::new(), HashMap::new(), Vec::new());
    for stream in json["streams"].as_array().unwrap() {
        let is_from = |ip: &str, end: &str| stream[end].as_str().unwrap().starts_with(&format!("[{ip}]"));
        let to_node = is_from(console, "from") && is_from(host, "to");
        let to_console = is_from(host, "from") && is_from(console, "to");
        if !to_node && !to_console {
            continue;
        }
        for item in stream["items"].as_array().unwrap() {
            let (Some(header), Some(payload)) = (item["header_hex"].as_str(), item["payload_hex"].as_str())
            else {
                continue;
            };
            let (header, payload) = (bytes(header), bytes(payload));
            let (bits, portal) = (u64_at(&header, 48), u64_at(&header, 64) as u32);
            match (item["type"].as_str().unwrap(), to_node) {
                ("PUT", true) if portal == REQUEST_PORTAL => requests.push(payload),
                ("PUT", false) if payload.len() == 160 => drop(replies.insert(bits, payload)),
                ("REPLY", true) if payload.len() == 12 => lists.push(payload),
                _ => {}
            }
        }
    }
    let replies = requests.iter().filter_map(|request| replies.remove(&u64_at(request, 24))).collect();
    Recording { requests, replies, lists }
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The request with its reply id and bulk id set to 0.
fn without_ids(request: &[u8]) -> Vec<u8> {
    let mut request = request.to_vec();
    request[24..32].fill(0);
    let is_client_test = request[8] == 8 && request[76] == 1;
    if is_client_test {
        request[32..40].fill(0);
    }
    request
}

/// A world with this console, in which the recorded node answers as it did.
fn replay(console: u32, hosts: &[u32], recorded: u32, recording: &Recording) -> World {
    let mut world = World::empty(hosts.iter().copied());
    world.console = Console::new(node(console).nid, Arc::new(Ids::new(1))).unwrap();
    let replies = Rc::new(RefCell::new(recording.replies.clone().into_iter()));
    world.script(recorded, move |_| match replies.borrow_mut().next() {
        Some(reply) => Reaction::Raw(reply),
        None => Reaction::Silent,
    });
    world
}

/// The requests to the recorded node are the recorded ones, and so are the lists of destinations.
fn assert_replayed(world: &World, recorded: u32, recording: &Recording) {
    let rpcs: Vec<&ConsoleRpc> = world.sent.iter().filter(|rpc| rpc.to == node(recorded)).collect();
    let emitted: Vec<_> = rpcs.iter().map(|rpc| without_ids(&rpc.request)).collect();
    let expected: Vec<_> = recording.requests.iter().map(|request| without_ids(request)).collect();
    assert_eq!(emitted.len(), expected.len());
    for (at, (emitted, expected)) in emitted.iter().zip(&expected).enumerate() {
        assert_eq!(emitted, expected, "request {at}, {}", rpcs[at].service);
    }
    let lists: Vec<_> = rpcs.iter().filter_map(|rpc| rpc.destinations.as_ref()).collect();
    assert!(lists.iter().map(|list| &list.bytes).eq(&recording.lists));
    for rpc in rpcs {
        // A bulk RPC takes the reply id first (lst 2).
        let bulk_id = rpc.destinations.as_ref().map(|list| list.bulk_id);
        assert!(bulk_id.is_none_or(|id| id == rpc.reply_id + 1 && u64_at(&rpc.request, 32) == id));
    }
}

/// The session id of a recording is in its first request.
fn session_of(recording: &Recording, text: &str) -> NewSession {
    NewSession { stamp: u64_at(&recording.requests[0], 40) as i64, ..new_session(text) }
}

const A: u32 = 77 << 16;

fn group(group: &str, number: u32) -> ConsoleOperation {
    ConsoleOperation::AddGroup { name: name(group), nodes: vec![node(A + number)] }
}

fn targets(group: &str) -> Vec<Target> {
    vec![Target::Group(name(group))]
}

fn query(batch: &str, test: u32) -> ConsoleOperation {
    let batch = name(batch);
    ConsoleOperation::Query(Query { batch, test, servers: false, timeout_s: 5, count: Some(1), delay_s: 5 })
}

fn succeeds(report: Report) {
    let nodes = match report {
        Report::Group { nodes, .. }
        | Report::Test { nodes, .. }
        | Report::Run { nodes, .. }
        | Report::Stop { nodes, running: 0, .. }
        | Report::End { nodes } => nodes,
        Report::Session(_) | Report::Batch { .. } | Report::Errors(_) => Vec::new(),
        other => panic!("{other:?}"),
    };
    assert!(nodes.iter().all(|node| node.answer.is_ok()), "{nodes:?}");
}

/// The three sessions in which console and client are one machine, which has recorded only what
/// went to the server.
#[test]
fn recorded_servers_see_what_a_kernel_console_sent_them() {
    let brw = |direction| BrwTest { direction, check: Check::SIMPLE, length: 1 << 20, offset: 0 };
    let files = [
        ("tcp-lst-ping", "t391", TestKind::Ping),
        ("tcp-lst-read", "t349", TestKind::Brw(brw(Direction::READ))),
        ("tcp-lst-write", "t306", TestKind::Brw(brw(Direction::WRITE))),
    ];
    for (file, session, kind) in files {
        let recording = recording(file, "10.77.0.2", "10.77.0.3");
        let mut world = replay(A + 2, &[A + 2, A + 3], A + 3, &recording);
        let test = AddTest { batch: name("b"), kind, repeats: Some(2), ..ping_test("c", "s") };
        for operation in [
            ConsoleOperation::NewSession(session_of(&recording, session)),
            group("c", 2),
            group("s", 3),
            ConsoleOperation::AddBatch { name: name("b") },
            ConsoleOperation::AddTest(test),
            ConsoleOperation::Run { batch: name("b"), timeout_s: 0 },
            ConsoleOperation::ShowError { targets: targets("s") },
            ConsoleOperation::EndSession,
        ] {
            succeeds(world.run(operation).unwrap());
        }
        assert_replayed(&world, A + 3, &recording);
    }
}

/// Three kernel nodes: the recording has all that the console and the client said to each other.
#[test]
fn a_recorded_client_sees_what_a_kernel_console_sent_it() {
    let recording = recording("tcp-lst-console", "10.77.0.9", "10.77.0.10");
    let mut world = replay(A + 9, &[A + 10, A + 11], A + 10, &recording);
    let brw = BrwTest { direction: Direction::READ, check: Check::SIMPLE, length: 4096, offset: 0 };
    let ping = AddTest { batch: name("b1"), ..ping_test("c", "s") };
    let read = AddTest { kind: TestKind::Brw(brw), repeats: Some(1), ..ping };
    let run =
        |world: &mut World| world.run(ConsoleOperation::Run { batch: name("b1"), timeout_s: 0 }).unwrap();
    let stop =
        |world: &mut World, force| world.run(ConsoleOperation::Stop { batch: name("b1"), force }).unwrap();
    let running = |world: &mut World, test| match world.run(query("b1", test)).unwrap() {
        Report::Query(query) => query.is_running(),
        other => panic!("{other:?}"),
    };
    for operation in [
        ConsoleOperation::NewSession(session_of(&recording, "con")),
        group("c", 10),
        group("s", 11),
        ConsoleOperation::AddBatch { name: name("b1") },
        ConsoleOperation::AddTest(ping),
    ] {
        succeeds(world.run(operation).unwrap());
    }
    succeeds(run(&mut world));
    assert!(running(&mut world, 0));
    succeeds(stop(&mut world, false));
    succeeds(world.run(ConsoleOperation::AddTest(read)).unwrap());
    succeeds(run(&mut world));
    assert!(running(&mut world, 0));
    assert!(!running(&mut world, 2));
    succeeds(stop(&mut world, true));
    let target = Target::Group(name("c"));
    let Report::Ping(ping) = world.run(ConsoleOperation::Ping { target, timeout_s: 5 }).unwrap() else {
        panic!()
    };
    let held = ping.nodes[0].answer.unwrap();
    assert_eq!(
        (held.name, held.timeout_s, held.sid),
        (name("con"), 100, world.console.session().unwrap().sid)
    );
    let stat = Stat { targets: targets("c"), timeout_s: 5, delay_s: 5, count: Some(1) };
    let Report::Stat(stats) = world.run(ConsoleOperation::Stat(stat)).unwrap() else { panic!() };
    assert_rates(&stats[0].nodes[0].answer.unwrap(), &recording);
    succeeds(world.run(ConsoleOperation::ShowError { targets: targets("c") }).unwrap());
    succeeds(world.run(ConsoleOperation::EndSession).unwrap());
    assert_replayed(&world, A + 10, &recording);
}

/// The rates, from the bytes of the two recorded replies by the offsets of lst 8.
fn assert_rates(rates: &Rates, recording: &Recording) {
    let stats: Vec<_> = recording.replies.iter().filter(|reply| reply[8] == 7).collect();
    let u32_at = |bytes: &[u8], at| u64_at(&[bytes, &[0; 4]].concat(), at) as u32;
    let ms = f64::from(u32_at(stats[1], 44) - u32_at(stats[0], 44));
    let messages = |at| f64::from(u32_at(stats[1], at) - u32_at(stats[0], at)) * 1000.0 / ms;
    let bytes = |at| (u64_at(stats[1], at) - u64_at(stats[0], at)) as f64 * 1000.0 / ms;
    assert_eq!(f64::from(rates.interval_ms), ms);
    assert_eq!((rates.sent, rates.received), (messages(112), messages(116)));
    assert_eq!((rates.bytes_sent, rates.bytes_received), (bytes(128), bytes(136)));
    assert!(rates.sent > 0.0 && rates.last != Statistics::default());
}

/// A node that another console has taken, from the side of the console that lost it.
#[test]
fn a_recorded_node_is_lost_to_a_forced_session() {
    let recording = recording("tcp-lst-busy", "10.77.0.9", "10.77.0.11");
    let mut world = replay(A + 9, &[A + 11], A + 11, &recording);
    world.run(ConsoleOperation::NewSession(session_of(&recording, "first"))).unwrap();
    succeeds(world.run(group("n", 11)).unwrap());
    let stat = Stat { targets: targets("n"), timeout_s: 5, delay_s: 5, count: Some(1) };
    let Report::Stat(stats) = world.run(ConsoleOperation::Stat(stat)).unwrap() else { panic!() };
    assert_eq!(stats[0].nodes[0].answer, Err(NodeFailure::Refused(nix::errno::Errno::ESRCH)));
    assert_eq!(stats[0].nodes[0].state, NodeState::Busy);
    let Report::Errors(errors) = world.run(ConsoleOperation::ShowError { targets: targets("n") }).unwrap()
    else {
        panic!()
    };
    assert_eq!(errors[0].nodes[0].answer, Err(NodeFailure::Refused(nix::errno::Errno::ESRCH)));
    for _ in 0..2 {
        let update = ConsoleOperation::UpdateGroup { name: name("n"), update: GroupUpdate::Refresh };
        let Report::Group { nodes, .. } = world.run(update).unwrap() else { panic!() };
        assert_eq!(nodes[0].answer, Err(NodeFailure::Refused(nix::errno::Errno::EBUSY)));
    }
    // Nothing is sent to a node that is not ACTIVE.
    succeeds(world.run(ConsoleOperation::EndSession).unwrap());
    assert_replayed(&world, A + 11, &recording);
}

/// The same from the side of the console that took it.
#[test]
fn a_recorded_node_is_taken_by_force() {
    let recording = recording("tcp-lst-busy", "10.77.0.10", "10.77.0.11");
    let mut world = replay(A + 10, &[A + 11], A + 11, &recording);
    world.run(ConsoleOperation::NewSession(session_of(&recording, "second"))).unwrap();
    let Report::Group { outcome, nodes, .. } = world.run(group("n", 11)).unwrap() else { panic!() };
    assert_eq!(outcome, GroupOutcome::AddedWithoutNodes);
    assert_eq!(nodes[0].answer, Err(NodeFailure::Refused(nix::errno::Errno::EBUSY)));
    assert_eq!(world.console.groups(), []);
    world.run(ConsoleOperation::EndSession).unwrap();
    let stamp = u64_at(&recording.requests[1], 40) as i64;
    world
        .run(ConsoleOperation::NewSession(NewSession { stamp, force: true, ..new_session("third") }))
        .unwrap();
    succeeds(world.run(group("n", 11)).unwrap());
    succeeds(world.run(ConsoleOperation::EndSession).unwrap());
    assert_replayed(&world, A + 11, &recording);
}

/// A session that is kept alive by DEBUG and ends by the console's timeout.
#[test]
fn a_recorded_session_expires() {
    let (client, server) = ("10.77.0.10", "10.77.0.11");
    let to_client = recording("tcp-lst-expiry", "10.77.0.9", client);
    let to_server = recording("tcp-lst-expiry", "10.77.0.9", server);
    let mut world = replay(A + 9, &[A + 10, A + 11], A + 10, &to_client);
    let replies = RefCell::new(to_server.replies.clone().into_iter());
    world.script(A + 11, move |_| Reaction::Raw(replies.borrow_mut().next().unwrap()));
    // The recorded batch has the number 7: this console has had sessions before.
    for _ in 0..5 {
        world.run(ConsoleOperation::NewSession(new_session("before"))).unwrap();
        world.run(ConsoleOperation::EndSession).unwrap();
    }
    let session = NewSession { timeout_s: 140, ..session_of(&to_client, "expi") };
    let test = AddTest { batch: name("b"), ..ping_test("c", "s") };
    for operation in [
        ConsoleOperation::NewSession(session),
        group("c", 10),
        group("s", 11),
        ConsoleOperation::AddBatch { name: name("b") },
        ConsoleOperation::AddTest(test),
        ConsoleOperation::Run { batch: name("b"), timeout_s: 0 },
    ] {
        succeeds(world.run(operation).unwrap());
    }
    world.pass(200_000_000_000);
    assert_replayed(&world, A + 11, &to_server);
    let sent = world.requests_to(A + 10).len();
    assert_eq!(sent - to_client.requests.len(), 3, "two DEBUGs and the RMSN that were lost on the way");
    assert!(world.console.session().unwrap().expired);
    // It goes on being shown; the node that did not answer counts as ACTIVE.
    assert_eq!((world.state(A + 10), world.state(A + 11)), (NodeState::Active, NodeState::Unknown));
}
