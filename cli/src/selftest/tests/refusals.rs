//! The commands that a node refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nlx::{Errno, Op};

use super::super::command::{Command, LATENCIES_MAX, Refusal};
use super::super::commands::{Commands, ReceivedCommand};
use super::super::console::Console;
use super::super::faults::Faults;
use super::super::node::Node;
use super::super::protocol::{Head, Kind};
use super::super::stamp::Stamp;
use super::*;

/// A node and a console that gives it commands, in one thread.
struct Pair {
    node: Node,
    console: Commands,
    domain: Domain,
}

impl Pair {
    fn new(serves_only: bool) -> Pair {
        let domain = Domain::in_process(&NodeConfig::new()).unwrap();
        let faults = Arc::new(Faults::new(&domain));
        let node = Node::start(&domain, "0@lo:12345:43:1", &faults, serves_only).unwrap();
        let console = Commands::start(&domain, "0@lo:12345:43:*", 4).unwrap();
        Pair { node, console, domain }
    }

    fn ask(&mut self, command: Command) -> Result<Command, Errno> {
        ask(&mut self.node, &mut self.console, command)
    }
}

/// Sends a command to a node, and runs the node until it has answered.
fn ask(node: &mut Node, console: &mut Commands, command: Command) -> Result<Command, Errno> {
    let place = console.end_point(&node.address()).unwrap();
    console.send(&place, 1, command).unwrap();
    let hung = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < hung, "no answer");
        node.run_step().unwrap();
        match console.take_received().unwrap().map(|received| received.command) {
            None => {}
            Some(Command::Refused(Refusal { errno, .. })) => return Err(errno),
            Some(answer) => return Ok(answer),
        }
    }
}

fn server() -> Plan {
    Plan { role: Role::Server, address: "0@lo:12345:42:*".into(), ..plan(Load::Echo, 64) }
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let mut pair = Pair::new(false);
    let invalid = [
        (Plan { size: 0, ..server() }, Errno::EINVAL),
        (Plan { size: (64 << 10) + 1, ..server() }, Errno::EINVAL),
        (Plan { load: Load::Read, size: (1 << 20) + 1, ..server() }, Errno::EINVAL),
        (Plan { in_flight: 0, ..server() }, Errno::EINVAL),
        (Plan { in_flight: u32::MAX, ..server() }, Errno::EINVAL),
        (Plan { load: Load::Read, size: 1 << 20, in_flight: 1025, ..server() }, Errno::EFBIG),
        (Plan { timeout: Duration::ZERO, ..server() }, Errno::EINVAL),
        (Plan { duration: Duration::MAX, ..server() }, Errno::EINVAL),
        (Plan { tries: 0, ..server() }, Errno::EINVAL),
        (Plan { messages: 0, ..server() }, Errno::EINVAL),
        (Plan { address: "nowhere".into(), ..server() }, Errno::EIO),
        (Plan { role: Role::Client, ..server() }, Errno::EINVAL),
        (Plan { peers: vec!["0@lo:12345:42:1".into(); 2], ..server() }, Errno::EINVAL),
        (Plan { faults: "lose everything".into(), ..server() }, Errno::EINVAL),
        (Plan { role: Role::Client, peers: vec!["nobody".into()], ..server() }, Errno::EIO),
    ];
    for (plan, errno) in invalid {
        assert_eq!(pair.ask(Command::Init(plan.clone())), Err(errno), "{plan:?}");
    }
    assert!(matches!(pair.ask(Command::Init(server())), Ok(Command::InitDone(_))));
}

/// A node that is open to the network cannot be made a client.
#[test]
fn a_server_is_never_a_client() {
    let mut pair = Pair::new(true);
    let client = Plan { role: Role::Client, peers: vec!["0@lo:12345:42:7".into()], ..server() };
    assert_eq!(pair.ask(Command::Init(client)), Err(Errno::EPERM));
    assert!(matches!(pair.ask(Command::Init(server())), Ok(Command::InitDone(_))));
}

#[test]
fn a_node_has_one_console_at_a_time() {
    let mut pair = Pair::new(false);
    assert_eq!(pair.ask(Command::Start), Err(Errno::EPERM));
    assert!(matches!(pair.ask(Command::Init(server())), Ok(Command::InitDone(_))));
    let mut other = Commands::start(&pair.domain, "0@lo:12345:43:*", 1).unwrap();
    for command in [Command::Start, Command::Status(0), Command::Stop] {
        assert_eq!(ask(&mut pair.node, &mut other, command), Err(Errno::EPERM));
    }
    assert_eq!(ask(&mut pair.node, &mut other, Command::Init(server())), Err(Errno::EBUSY));
    assert_eq!(pair.ask(Command::Init(server())), Err(Errno::EBUSY));
    assert_eq!(pair.ask(Command::StopDone), Err(Errno::ENOENT));
    assert_eq!(pair.ask(Command::Start), Ok(Command::StartDone));
    assert_eq!(pair.ask(Command::Stop), Ok(Command::StopDone));
    // Now the other console can begin a test.
    assert!(matches!(ask(&mut pair.node, &mut other, Command::Init(server())), Ok(Command::InitDone(_))));
}

/// Unexpected messages to a server's transfer machine for data do not end it.
#[test]
fn nonsense_is_counted_and_no_more() {
    let mut pair = Pair::new(false);
    let Ok(Command::InitDone(address)) = pair.ask(Command::Init(server())) else { panic!("INIT is refused") };
    assert_eq!(pair.ask(Command::Start), Ok(Command::StartDone));
    let stranger = pair.domain.transfer_machine("0@lo:12345:42:*", Default::default()).unwrap();
    let to = stranger.end_point(&address).unwrap();
    for length in 1..=100 {
        let mut buffer = pair.domain.allocate(length).unwrap();
        buffer.write().unwrap().fill(length as u8);
        stranger.start(Op::send(buffer, &to).length(length)).unwrap();
    }
    loop {
        match pair.ask(Command::Status(0)) {
            Ok(Command::StatusData(status)) if status.errors == 100 => break,
            Ok(Command::StatusData(status)) => assert!(status.errors < 100),
            other => panic!("{other:?}"),
        }
    }
}

/// Requests without end for bulk that never comes take a limited amount of memory.
#[test]
fn more_than_was_agreed_on_is_dropped() {
    const ASKED: u64 = 500;
    let mut pair = Pair::new(false);
    let plan = Plan { load: Load::Write, ..server() };
    let most = u64::from(4 * plan.in_flight + 256);
    let Ok(Command::InitDone(address)) = pair.ask(Command::Init(plan)) else { panic!("INIT is refused") };
    assert_eq!(pair.ask(Command::Start), Ok(Command::StartDone));
    let stranger = pair.domain.transfer_machine("0@lo:12345:42:*", Default::default()).unwrap();
    let to = stranger.end_point(&address).unwrap();
    // A buffer whose node never answers.
    pair.domain.node().unwrap().add_fault("drop get".parse().unwrap()).unwrap();
    let nothing = stranger.start(Op::passive_send(pair.domain.allocate(64).unwrap())).unwrap();
    let nothing = nothing.offer.descriptor(0);
    for sequence in 0..ASKED {
        let mut buffer = pair.domain.allocate(256).unwrap();
        let stamp = Stamp { sequence, time: Duration::ZERO };
        let head = Head { stamp, kind: Kind::Write, lane: 0, length: 64 };
        let length = head.put_offer(&[nothing], &mut buffer.write().unwrap()).unwrap();
        stranger.start(Op::send(buffer, &to).length(length)).unwrap();
        pair.node.run_step().unwrap();
    }
    loop {
        match pair.ask(Command::Status(0)) {
            Ok(Command::StatusData(status)) if status.errors == ASKED - most => break,
            Ok(Command::StatusData(status)) => assert!(status.errors < ASKED - most, "{}", status.errors),
            other => panic!("{other:?}"),
        }
    }
}

/// A node that reports latencies without end fails the test.
#[test]
fn a_node_without_end_is_given_up() {
    let domain = Domain::in_process(&NodeConfig::new()).unwrap();
    let (console, client) = ("0@lo:12345:43:1", "0@lo:12345:43:2");
    let mut console = Console::start(&domain, console, &[], &[client.to_string()]).unwrap();
    let mut node = Commands::start(&domain, client, 4).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let Some(ReceivedCommand { from, number, command }) = node.poll().unwrap() else { continue };
                let latencies = vec![(1, 1); LATENCIES_MAX];
                let answer = match command {
                    Command::Init(_) => Command::InitDone(client.into()),
                    Command::Start => Command::StartDone,
                    Command::Status(_) => Command::StatusData(Box::new(Status {
                        finished: true,
                        latencies,
                        ..Status::default()
                    })),
                    _ => Command::StopDone,
                };
                node.send(&from, number, answer).unwrap();
            }
        });
        let found = console.test(&plan(Load::Echo, 64), &mut Nobody).map(drop);
        over.store(true, Ordering::Relaxed);
        assert!(found.unwrap_err().to_string().contains("latencies"));
    });
}

struct Nobody;

impl TestObserver for Nobody {
    fn check(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn round(&mut self, _: &[Status]) {}
}
