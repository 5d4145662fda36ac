//! The commands that a node refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nlx::request::{RequestOptions, Requester, Responder, ResponderOptions};
use nlx::{Errno, Op};

use super::super::command::{Answer, COMMAND_BYTES, Command, LATENCIES_MAX, Refusal};
use super::super::console::Console;
use super::super::faults::Faults;
use super::super::node::Node;
use super::super::protocol::{Head, Kind, Stamp};
use super::*;

/// A node and a console that gives it commands, in one thread.
struct Pair {
    node: Node,
    console: Requester,
    domain: Domain,
}

impl Pair {
    fn new(serves_only: bool) -> Pair {
        let domain = Domain::in_process(&NodeConfig::new()).unwrap();
        let faults = Arc::new(Faults::new(&domain));
        let node = Node::start(&domain, "0@lo:12345:43:1", &faults, serves_only).unwrap();
        Pair { node, console: console(&domain), domain }
    }

    fn ask(&mut self, command: Command) -> Result<Answer, Errno> {
        ask(&mut self.node, &mut self.console, command)
    }
}

fn console(domain: &Domain) -> Requester {
    let options = RequestOptions { message_max: COMMAND_BYTES, ..RequestOptions::default() };
    Requester::new(domain.transfer_machine("0@lo:12345:43:*", Default::default()).unwrap(), options).unwrap()
}

/// Sends a command to a node, and runs the node until it has answered.
fn ask(node: &mut Node, console: &mut Requester, command: Command) -> Result<Answer, Errno> {
    ask_bytes(node, console, &serde_json::to_vec(&command).unwrap())
}

fn ask_bytes(node: &mut Node, console: &mut Requester, command: &[u8]) -> Result<Answer, Errno> {
    let place = console.machine().end_point(&node.address()).unwrap();
    console.start(&place, command).unwrap();
    let hung = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < hung, "no answer");
        node.run_step().unwrap();
        if let Some(finished) = console.wait(Some(Duration::ZERO)).unwrap() {
            let answer =
                serde_json::from_slice::<Result<Answer, Refusal>>(&finished.outcome.unwrap()).unwrap();
            return answer.map_err(|refusal| refusal.errno());
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
    assert!(matches!(pair.ask(Command::Init(server())), Ok(Answer::Address(_))));
}

/// A node that is open to the network cannot be made a client.
#[test]
fn a_server_is_never_a_client() {
    let mut pair = Pair::new(true);
    let client = Plan { role: Role::Client, peers: vec!["0@lo:12345:42:7".into()], ..server() };
    assert_eq!(pair.ask(Command::Init(client)), Err(Errno::EPERM));
    assert!(matches!(pair.ask(Command::Init(server())), Ok(Answer::Address(_))));
}

/// A request that is no command is refused, and the next one is carried out.
#[test]
fn what_is_no_command_is_refused() {
    let mut pair = Pair::new(false);
    let whole = serde_json::to_vec(&Command::Init(server())).unwrap();
    for invalid in [&[][..], &[0xff; 100], b"{}", &whole[..whole.len() - 1], &[&whole[..], b"1"].concat()] {
        assert_eq!(ask_bytes(&mut pair.node, &mut pair.console, invalid), Err(Errno::EPROTO), "{invalid:?}");
    }
    assert!(matches!(pair.ask(Command::Init(server())), Ok(Answer::Address(_))));
}

#[test]
fn a_node_has_one_console_at_a_time() {
    let mut pair = Pair::new(false);
    assert_eq!(pair.ask(Command::Start), Err(Errno::EPERM));
    assert!(matches!(pair.ask(Command::Init(server())), Ok(Answer::Address(_))));
    let mut other = console(&pair.domain);
    for command in [Command::Start, Command::Status(0), Command::Stop] {
        assert_eq!(ask(&mut pair.node, &mut other, command), Err(Errno::EPERM));
    }
    assert_eq!(ask(&mut pair.node, &mut other, Command::Init(server())), Err(Errno::EBUSY));
    assert_eq!(pair.ask(Command::Init(server())), Err(Errno::EBUSY));
    assert_eq!(pair.ask(Command::Start), Ok(Answer::Done));
    assert_eq!(pair.ask(Command::Stop), Ok(Answer::Done));
    // Now the other console can begin a test.
    assert!(matches!(ask(&mut pair.node, &mut other, Command::Init(server())), Ok(Answer::Address(_))));
}

/// Unexpected messages to a server's transfer machine for data do not end it.
#[test]
fn nonsense_is_counted_and_no_more() {
    let mut pair = Pair::new(false);
    let Ok(Answer::Address(address)) = pair.ask(Command::Init(server())) else { panic!("INIT is refused") };
    assert_eq!(pair.ask(Command::Start), Ok(Answer::Done));
    let stranger = pair.domain.transfer_machine("0@lo:12345:42:*", Default::default()).unwrap();
    let to = stranger.end_point(&address).unwrap();
    for length in 1..=100 {
        let mut buffer = pair.domain.allocate(length).unwrap();
        buffer.write().unwrap().fill(length as u8);
        stranger.start(Op::send(buffer, &to).length(length)).unwrap();
    }
    loop {
        match pair.ask(Command::Status(0)) {
            Ok(Answer::Status(status)) if status.errors == 100 => break,
            Ok(Answer::Status(status)) => assert!(status.errors < 100),
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
    let Ok(Answer::Address(address)) = pair.ask(Command::Init(plan)) else { panic!("INIT is refused") };
    assert_eq!(pair.ask(Command::Start), Ok(Answer::Done));
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
            Ok(Answer::Status(status)) if status.errors == ASKED - most => break,
            Ok(Answer::Status(status)) => assert!(status.errors < ASKED - most, "{}", status.errors),
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
    let options = ResponderOptions { message_max: COMMAND_BYTES, ..ResponderOptions::default() };
    let machine = domain.transfer_machine(client, Default::default()).unwrap();
    let mut node = Responder::new(machine, options).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let Some(request) = node.next(Some(Duration::from_millis(20))).unwrap() else { continue };
                let answer = match serde_json::from_slice(&request).unwrap() {
                    Command::Init(_) => Answer::Address(client.into()),
                    Command::Status(_) => Answer::Status(Box::new(Status {
                        finished: true,
                        latencies: vec![(1, 1); LATENCIES_MAX],
                        ..Status::default()
                    })),
                    Command::Start | Command::Stop => Answer::Done,
                };
                node.answer(&request, &serde_json::to_vec(&Ok::<_, Refusal>(answer)).unwrap()).unwrap();
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
