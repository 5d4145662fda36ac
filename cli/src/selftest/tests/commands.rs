//! Commands between a console and up to 64 nodes, each with a separate transfer machine (MT-162:
//! with 1 and with 64).

use std::time::Instant;

use nlx::request::{CallId, RequestError, RequestOptions, Requester, Responder, ResponderOptions};
use nlx::{EndPoint, Errno};

use super::super::command::tests::{plan, status};
use super::super::command::{Answer, COMMAND_BYTES, Command};
use super::*;

const NODES: [usize; 2] = [1, 64];

/// A console at id 299, and nodes from 300 on, in one thread.
struct Stage {
    console: Requester,
    nodes: Vec<Responder>,
    places: Vec<EndPoint>,
    /// The calls in flight, with their nodes.
    calls: Vec<(CallId, usize)>,
}

impl Stage {
    fn new(nodes: usize, deadline: Duration) -> Stage {
        let domain = Domain::in_process(&NodeConfig::new()).unwrap();
        let machine =
            |id: usize| domain.transfer_machine(&format!("0@lo:12345:42:{id}"), Default::default()).unwrap();
        let message_max = COMMAND_BYTES;
        let console = Requester::new(
            machine(299),
            RequestOptions { message_max, deadline, ..RequestOptions::default() },
        );
        let node = |node: usize| {
            Responder::new(
                machine(300 + node),
                ResponderOptions { message_max, ..ResponderOptions::default() },
            )
        };
        let (console, nodes) = (console.unwrap(), (0..nodes).map(|at| node(at).unwrap()).collect::<Vec<_>>());
        let place =
            |node: &Responder| console.machine().end_point(&node.machine().address().to_string()).unwrap();
        let places = nodes.iter().map(place).collect();
        Stage { console, nodes, places, calls: Vec::new() }
    }

    /// Sends a command to each node.
    fn send(&mut self, command: &Command) {
        for (node, place) in self.places.iter().enumerate() {
            let call = self.console.start(place, &serde_json::to_vec(command).unwrap()).unwrap();
            self.calls.push((call, node));
        }
    }

    /// Runs console and nodes until all calls have ended, and returns how, in the order of the nodes.
    /// `listens` says of a node whether it takes its commands, by the number of calls that have ended;
    /// `answer` returns the answer of a node.
    fn run(
        &mut self,
        listens: impl Fn(usize, usize) -> bool,
        mut answer: impl FnMut(usize, Command) -> Answer,
    ) -> Vec<(usize, Result<Answer, RequestError>)> {
        let hung = Instant::now() + Duration::from_secs(60);
        let mut ended = Vec::new();
        while !self.calls.is_empty() {
            assert!(Instant::now() < hung, "{} calls have not ended", self.calls.len());
            for (at, node) in self.nodes.iter_mut().enumerate().filter(|(at, _)| listens(*at, ended.len())) {
                let Some(request) = node.next(Some(Duration::ZERO)).unwrap() else { continue };
                assert_eq!(request.client(), self.console.machine().own_end_point());
                let command = serde_json::from_slice(&request).unwrap();
                node.answer(&request, &serde_json::to_vec(&answer(at, command)).unwrap()).unwrap();
            }
            while let Some(finished) = self.console.wait(Some(Duration::ZERO)).unwrap() {
                let call = self.calls.iter().position(|(call, _)| *call == finished.call).unwrap();
                let (_, node) = self.calls.swap_remove(call);
                ended.push((node, finished.outcome.map(|answer| serde_json::from_slice(&answer).unwrap())));
            }
        }
        ended.sort_by_key(|(node, _)| *node);
        ended
    }
}

/// Far longer than a working loopback needs.
const LONG: Duration = Duration::from_secs(60);

fn is_odd(node: usize) -> bool {
    node % 2 == 1
}

/// Returns an answer that no other node gives.
fn own_answer(node: usize) -> Answer {
    Answer::Address(format!("node {node}"))
}

/// The console sends to every node, and all receive it once; the answer of each node reaches the
/// console once. A second command before the first is taken is not lost, as it was in Motr (X13).
// Covers: MT-156, MT-157, MT-160, MT-162
#[test]
fn a_console_reaches_every_node_and_is_answered_by_each() {
    for count in NODES {
        let mut stage = Stage::new(count, LONG);
        for commands in [1, 2] {
            (0..commands).for_each(|_| stage.send(&Command::Start));
            let mut received = vec![0; count];
            let ended = stage.run(
                |_, _| true,
                |node, command| {
                    assert_eq!(command, Command::Start);
                    received[node] += 1;
                    own_answer(node)
                },
            );
            assert_eq!(received, vec![commands; count]);
            let expected = (0..count).flat_map(|node| vec![(node, Ok(own_answer(node))); commands]);
            assert_eq!(ended, expected.collect::<Vec<_>>());
        }
    }
}

/// Only the odd nodes answer; the console misses exactly the others at its deadline.
// Covers: MT-158, MT-162
#[test]
fn silent_nodes_are_missing_at_the_deadline() {
    for count in NODES {
        let mut stage = Stage::new(count, Duration::from_secs(2));
        stage.send(&Command::Start);
        for (node, outcome) in stage.run(|node, _| is_odd(node), |node, _| own_answer(node)) {
            match outcome {
                Ok(answer) => assert_eq!((is_odd(node), answer), (true, own_answer(node))),
                Err(error) => assert_eq!((is_odd(node), error.errno()), (false, Errno::ETIMEDOUT)),
            }
        }
    }
}

/// Only the odd nodes listen while the console sends to all; the others find their commands later.
// Covers: MT-159, MT-162
#[test]
fn a_node_that_listens_later_finds_its_command() {
    for count in NODES {
        let mut stage = Stage::new(count, LONG);
        stage.send(&Command::Stop);
        let odd = (0..count).filter(|node| is_odd(*node)).count();
        let ended = stage.run(|node, ended| is_odd(node) || ended >= odd, |node, _| own_answer(node));
        assert_eq!(ended, (0..count).map(|node| (node, Ok(own_answer(node)))).collect::<Vec<_>>());
    }
}

/// INIT with all its fields, START, STATUS and STOP to every node, and their answers.
// Covers: MT-161, MT-162
#[test]
fn all_commands_arrive_as_they_were() {
    let pairs = [
        (Command::Init(plan()), own_answer(0)),
        (Command::Start, Answer::Done),
        (Command::Status(512), Answer::Status(Box::new(status()))),
        (Command::Stop, Answer::Done),
    ];
    for count in NODES {
        let mut stage = Stage::new(count, LONG);
        for (command, answer) in &pairs {
            stage.send(command);
            let ended = stage.run(
                |_, _| true,
                |_, received| {
                    assert_eq!(&received, command);
                    answer.clone()
                },
            );
            assert!(ended.iter().all(|(_, outcome)| outcome.as_ref() == Ok(answer)), "{command:?}");
        }
    }
}

/// 64 end points, of which one is the console; 32 commands to each, and an answer to each.
// Covers: MT-163
#[test]
fn commands_go_back_and_forth() {
    let mut stage = Stage::new(63, LONG);
    for number in 0..32 {
        stage.send(&Command::Status(number));
        let ended = stage.run(|_, _| true, |node, command| Answer::Address(format!("{node}: {command:?}")));
        let expected = (0..63).map(|node| (node, Ok(Answer::Address(format!("{node}: Status({number})")))));
        assert_eq!(ended, expected.collect::<Vec<_>>());
    }
    assert_eq!(stage.console.counters().answered, 32 * 63);
}
