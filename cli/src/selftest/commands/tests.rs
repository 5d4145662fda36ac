//! Commands between a console and up to 64 nodes, each with a separate transfer machine (MT-162:
//! with 1 and with 64).

use nlx::{NodeConfig, Op, Queue};

use super::super::command::{Delivery, Load, Plan, RuleStatus, Status};
use super::*;

const NODES: [usize; 2] = [1, 64];

/// Far longer than a working loopback needs.
const HUNG: Duration = Duration::from_secs(60);

/// A console at id 299, and nodes from 300 on.
struct Stage {
    console: Commands,
    nodes: Vec<Commands>,
    places: Vec<EndPoint>,
}

impl Stage {
    fn new(nodes: usize) -> Stage {
        let domain = Domain::in_process(&NodeConfig::new()).unwrap();
        let start =
            |id: usize, peers| Commands::start(&domain, &format!("0@lo:12345:42:{id}"), peers).unwrap();
        let console = start(299, nodes);
        let nodes: Vec<_> = (0..nodes).map(|node| start(300 + node, 1)).collect();
        let places = nodes.iter().map(|node| console.end_point(&node.address()).unwrap()).collect();
        Stage { console, nodes, places }
    }

    /// Sends a command from each of these nodes to the console.
    fn nodes_send(&mut self, nodes: impl Iterator<Item = usize>, number: u32, command: &Command) {
        for node in nodes {
            let to = self.nodes[node].end_point(&self.console.address()).unwrap();
            self.nodes[node].send(&to, number, command.clone()).unwrap();
        }
    }

    /// Sends a command from the console to each node.
    fn command(&mut self, number: u32, command: &Command) {
        for place in self.places.clone() {
            self.console.send(&place, number, command.clone()).unwrap();
        }
    }

    /// Returns what the console receives until nothing arrives for a while: node and number.
    fn received(&mut self, most: usize, wait: Duration) -> Vec<(usize, u32)> {
        let mut all = Vec::new();
        while all.len() < most
            && let Some(received) = self.console.wait(Instant::now() + wait).unwrap()
        {
            let node = self.places.iter().position(|place| *place == received.from).unwrap();
            all.push((node, received.number));
        }
        all.sort_unstable();
        all
    }
}

fn next(commands: &mut Commands) -> ReceivedCommand {
    commands.wait(Instant::now() + HUNG).unwrap().expect("a command comes")
}

fn odd(nodes: usize) -> impl Iterator<Item = usize> {
    (0..nodes).filter(|node| node % 2 == 1)
}

/// The console sends to every node, and all receive.
// Covers: MT-156, MT-162
#[test]
fn a_console_reaches_every_node() {
    for count in NODES {
        let mut stage = Stage::new(count);
        stage.command(7, &Command::Start);
        let console = stage.console.address();
        for node in &mut stage.nodes {
            let received = next(node);
            assert_eq!((received.number, received.command), (7, Command::Start));
            assert_eq!(received.from.address().to_string(), console);
        }
    }
}

/// Every node sends, and the console receives each message once, with its sender.
// Covers: MT-157, MT-162
#[test]
fn every_node_reaches_the_console() {
    for count in NODES {
        let mut stage = Stage::new(count);
        stage.nodes_send(0..count, 1, &Command::StartDone);
        let expected: Vec<_> = (0..count).map(|node| (node, 1)).collect();
        assert_eq!(stage.received(count, HUNG), expected);
    }
}

/// Only the odd nodes send; the console has exactly those at its deadline.
// Covers: MT-158, MT-162
#[test]
fn silent_nodes_are_missing_at_the_deadline() {
    for count in NODES {
        let mut stage = Stage::new(count);
        stage.nodes_send(odd(count), 1, &Command::StartDone);
        let expected: Vec<_> = odd(count).map(|node| (node, 1)).collect();
        assert_eq!(stage.received(count, Duration::from_secs(1)), expected);
    }
}

/// Only the odd nodes listen while the console sends to all; the others find their commands later.
// Covers: MT-159, MT-162
#[test]
fn a_node_that_listens_later_finds_its_command() {
    for count in NODES {
        let mut stage = Stage::new(count);
        stage.command(3, &Command::Stop);
        for node in odd(count).chain((0..count).step_by(2)) {
            assert_eq!(next(&mut stage.nodes[node]).command, Command::Stop);
        }
    }
}

/// Every node sends two before the console listens: there is one receive buffer for each peer, so
/// the second of each is lost. Unlike in Motr the console's machine counts them (X13).
// Covers: MT-160, MT-162
#[test]
fn a_second_command_before_the_first_is_taken_is_lost() {
    for count in NODES {
        let mut stage = Stage::new(count);
        stage.nodes_send(0..count, 1, &Command::StartDone);
        stage.nodes_send(0..count, 2, &Command::StartDone);
        let expected: Vec<_> = (0..count).map(|node| (node, 1)).collect();
        assert_eq!(stage.received(2 * count, Duration::from_millis(200)), expected);
        assert_eq!(stage.console.machine.dropped_messages(), count as u64);
        // The buffers are posted again.
        stage.nodes_send(0..count, 3, &Command::StartDone);
        assert_eq!(stage.received(count, HUNG).len(), count);
    }
}

fn plan() -> Plan {
    Plan {
        role: super::super::command::Role::Client,
        load: Load::Mixed,
        delivery: Delivery::Callback,
        address: "0@lo:12345:42:*".into(),
        peers: (0..64).map(|server| format!("192.168.100.{server}@tcp:12345:42:{server}")).collect(),
        run: 5,
        size: 1 << 20,
        in_flight: 17,
        duration: Duration::from_millis(1500),
        count: u64::MAX,
        timeout: Duration::from_secs(3),
        tries: 3,
        messages: 64,
        delay: Duration::from_nanos(1),
        seed: 0x0123_4567_89ab_cdef,
        faults: "drop 1/100 put".into(),
        spoil: true,
    }
}

fn status() -> Status {
    Status {
        finished: true,
        elapsed: Duration::from_secs(9),
        operations: 1,
        bytes: 2,
        errors: 3,
        first_error: "a byte was wrong".into(),
        lost: 4,
        retries: 5,
        late: 6,
        verified_bytes: 7,
        messages_sent: 8,
        messages_received: 9,
        bulk_sent: 10,
        bulk_received: 11,
        nid: "0@lo".into(),
        rules: vec![RuleStatus { rule: "drop 1/2".into(), matched: 12, dropped: 13, delayed: 14 }],
        latencies: (0..512).map(|value| (value, u64::MAX - value)).collect(),
    }
}

/// INIT with all its fields, START, STATUS and STOP to every node, and their answers.
// Covers: MT-161, MT-162
#[test]
fn all_commands_arrive_as_they_were() {
    let pairs = [
        (Command::Init(plan()), Command::InitDone("0@lo:12345:42:4095".into())),
        (Command::Start, Command::StartDone),
        (Command::Status(512), Command::StatusData(Box::new(status()))),
        (Command::Stop, Command::StopDone),
    ];
    for count in NODES {
        let mut stage = Stage::new(count);
        for (number, (command, answer)) in (1..).zip(&pairs) {
            stage.command(number, command);
            for node in &mut stage.nodes {
                let received = next(node);
                assert_eq!((received.number, &received.command), (number, command));
                node.send(&received.from, number, answer.clone()).unwrap();
            }
            for _ in 0..count {
                let received = next(&mut stage.console);
                assert_eq!((received.number, &received.command), (number, answer));
            }
        }
    }
}

/// 64 end points, of which one is the console; 32 commands to each, echoed back.
// Covers: MT-163
#[test]
fn commands_go_back_and_forth() {
    let mut stage = Stage::new(63);
    for number in 0..32 {
        stage.command(number, &Command::Status(number));
        for node in &mut stage.nodes {
            let ReceivedCommand { from, number, command } = next(node);
            node.send(&from, number, command).unwrap();
        }
        let expected: Vec<_> = (0..63).map(|node| (node, number)).collect();
        assert_eq!(stage.received(63, HUNG), expected);
    }
    let sent = stage.console.machine.statistics()[Queue::MessageSend.index()];
    assert_eq!((sent.adds, sent.failures), (32 * 63, 0));
}

/// Invalid messages are counted, and the next command still arrives.
#[test]
fn what_is_no_command_is_passed_over() {
    let mut stage = Stage::new(1);
    let length = Numbered { number: 1, command: Command::Init(plan()) }.length().unwrap();
    let mut whole = vec![0; length];
    Numbered { number: 1, command: Command::Init(plan()) }.encode(&mut whole).unwrap();
    let domain = stage.console.domain.clone();
    let stranger = domain.transfer_machine("0@lo:12345:42:*", Default::default()).unwrap();
    let node = stranger.end_point(&stage.nodes[0].address()).unwrap();
    let mut invalid: Vec<Vec<u8>> = (1..length).step_by(97).map(|cut| whole[..cut].to_vec()).collect();
    invalid.push([&whole[..], &[0]].concat());
    invalid.push(vec![0xff; COMMAND_BYTES]);
    for bytes in &invalid {
        let mut buffer = domain.allocate(bytes.len()).unwrap();
        buffer.write().unwrap().copy_from_slice(bytes);
        stranger.start(Op::send(buffer, &node).length(bytes.len())).unwrap();
        assert!(stage.nodes[0].take_received().unwrap().is_none());
    }
    assert_eq!(stage.nodes[0].invalid, invalid.len() as u64);
    stage.command(2, &Command::Start);
    assert_eq!(next(&mut stage.nodes[0]).command, Command::Start);
}

/// A plan for more servers than a command can name is refused before it is sent.
#[test]
fn a_command_that_is_too_long_is_refused() {
    let mut stage = Stage::new(1);
    let place = stage.places[0].clone();
    let many = Plan { peers: vec!["x".repeat(1000); 20], ..plan() };
    let failure = stage.console.send(&place, 1, Command::Init(many)).unwrap_err();
    assert!(failure.to_string().contains("at most 16384 are allowed"), "{failure}");
}

/// A peer that takes no answers gets a limited number of them, and costs no more memory.
#[test]
fn answers_that_do_not_leave_are_limited() {
    let mut stage = Stage::new(1);
    let to = stage.places[0].clone();
    // Events of sends are not taken meanwhile, as if none had completed.
    for number in 0..SENDS_MAX as u32 {
        stage.console.send(&to, number, Command::Start).unwrap();
    }
    stage.console.send(&to, 0, Command::Start).unwrap_err();
    while stage.console.sending > 0 {
        assert!(stage.console.wait(Instant::now()).unwrap().is_none());
    }
    stage.console.send(&to, 0, Command::Start).unwrap();
}
