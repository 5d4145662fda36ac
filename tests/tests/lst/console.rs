//! The console of nlx against raw nodes that misbehave: it reports each fault as what it is, and
//! ends its session.

use std::cell::Cell;

use lnet_api::Errno;
use lnet_node::Node;
use nlx_lst::command::{Command, Defaults, parse};
use nlx_lst::console::{ConsoleError, ConsoleOperation, NodeAnswer, NodeFailure, NodeState, Report};
use nlx_lst::net::ConsoleRunner;
use nlx_testkit::addresses::unused;
use nlx_tests::judge::lst::message::{service, status};
use nlx_tests::judge::lst::node::Fault;

use crate::place::{Server, free_port, ids, network, start};

/// A console and raw nodes.
struct Bed {
    console: ConsoleRunner,
    _node: Node,
    servers: Vec<Server>,
}

impl Bed {
    fn new(servers: usize) -> Bed {
        let address = unused();
        let port = free_port(address);
        let node = start(address, port, 1);
        let console = ConsoleRunner::start(&network(&node), node.nids()[0], ids()).unwrap();
        let servers = (0..servers).map(|_| Server::start(port)).collect();
        Bed { console, _node: node, servers }
    }

    /// Returns the operation of a line of `lst`; `{0}` is replaced by the NID of the first node.
    fn operation(&self, line: &str) -> ConsoleOperation {
        let fill = |line: String, (index, server): (usize, &Server)| {
            line.replace(&format!("{{{index}}}"), &server.nid.to_string())
        };
        let line = self.servers.iter().enumerate().fold(line.to_string(), fill);
        match parse(&line, &Defaults::default()).unwrap().unwrap() {
            Command::Operation { operation, .. } => operation,
            other => panic!("{other:?}"),
        }
    }

    fn command(&self, line: &str) -> Report {
        let done = self.console.run(self.operation(line), &|| false, |_| {});
        done.unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Runs a line that ends the node's silence: it is cancelled when a node has received so many
    /// requests.
    fn cancelled(&self, line: &str, index: usize, received: u32) -> Result<Report, ConsoleError> {
        let is_over = || self.servers[index].received() >= received;
        self.console.run(self.operation(line), &is_over, |_| {})
    }

    /// Opens a session with all nodes in the group g.
    fn begin(&self) {
        self.command("new_session main");
        let nodes: Vec<_> = (0..self.servers.len()).map(|index| format!("{{{index}}}")).collect();
        let Report::Group { nodes, .. } = self.command(&format!("add_group g {}", nodes.join(" "))) else {
            panic!("no group")
        };
        assert!(nodes.iter().all(|node| node.answer.is_ok()), "{nodes:?}");
    }

    /// Ends the session; returns how many nodes have answered.
    fn end(&self) -> usize {
        let Report::End { nodes } = self.command("end_session") else { panic!("no end") };
        nodes.iter().filter(|node| node.answer.is_ok()).count()
    }
}

/// Returns the states and answers of nodes.
fn answers<T: Copy>(nodes: &[NodeAnswer<T>]) -> Vec<(NodeState, Result<(), NodeFailure>)> {
    nodes.iter().map(|node| (node.state, node.answer.map(drop))).collect()
}

/// Nodes that refuse a session, or whose replies contradict it; the other node is not touched by it.
#[test]
fn a_node_that_does_not_fit_is_left_out_of_its_group() {
    let cases = [
        (Fault::Status(status::ENOMEM), Errno::ENOMEM),
        (Fault::Status(status::EBUSY), Errno::EBUSY),
        (Fault::Features(6), Errno::EPROTO),
    ];
    for (fault, errno) in cases {
        let bed = Bed::new(2);
        bed.servers[1].raw.misbehave(service::MKSN, fault);
        bed.command("new_session main");
        bed.command("add_group first {0}");
        let Report::Group { nodes, .. } = bed.command("add_group second {1}") else { panic!("{fault:?}") };
        assert_eq!(nodes[0].answer, Err(NodeFailure::Refused(errno)), "{fault:?}");
        let Report::Ping(ping) = bed.command("ping --group first") else { panic!("{fault:?}") };
        assert_eq!(answers(&ping.nodes), [(NodeState::Active, Ok(()))]);
        assert!(bed.end() >= 1);
    }
}

/// Every reply says which session a node holds, and with it its state.
#[test]
fn a_node_with_a_foreign_session_is_busy() {
    let bed = Bed::new(2);
    bed.begin();
    bed.servers[0].raw.misbehave(service::STAT, Fault::Session((0x2_0000_0a4d_0009, 1)));
    let Report::Errors(errors) = bed.command("show_error g") else { panic!("no errors") };
    let states: Vec<_> = errors[0].nodes.iter().map(|node| node.state).collect();
    assert_eq!(states, [NodeState::Busy, NodeState::Active]);
    // A busy node takes no test.
    let refused = bed.console.run(bed.operation("add_test --from g --to g ping"), &|| false, |_| {});
    assert!(matches!(refused, Err(ConsoleError::NotActive { .. })), "{refused:?}");
    assert_eq!(bed.end(), 1, "RMSN goes to active nodes only");
}

/// A node that does not answer: the console waits for its timeout, and reports the others.
// Covers: S-313
#[test]
fn a_node_that_does_not_answer_is_given_up() {
    for fault in [Fault::NoReply, Fault::Dies] {
        let bed = Bed::new(2);
        bed.begin();
        bed.servers[0].raw.misbehave(service::DEBUG, fault);
        let Report::Ping(ping) = bed.command("ping --group g --timeout 3") else { panic!("{fault:?}") };
        let silent = ping.nodes[0].answer;
        assert!(matches!(silent, Err(NodeFailure::Rpc(_))), "{fault:?}: {silent:?}");
        assert!(ping.nodes[1].answer.is_ok());
        // It is back: a dead node's connections are made anew.
        let Report::Ping(ping) = bed.command("ping --group g --timeout 3") else { panic!("{fault:?}") };
        assert_eq!(answers(&ping.nodes), [(NodeState::Active, Ok(())); 2], "{fault:?}");
        assert_eq!(bed.end(), 2);
    }
}

/// A reply that comes after its RPC was given up is not taken for that of another.
#[test]
fn a_late_reply_is_dropped() {
    let bed = Bed::new(1);
    bed.begin();
    bed.servers[0].raw.misbehave(service::DEBUG, Fault::Late);
    let late = bed.cancelled("ping --group g", 0, bed.servers[0].received() + 1);
    assert!(!matches!(&late, Ok(Report::Ping(ping)) if ping.nodes[0].answer.is_ok()), "{late:?}");
    for _ in 0..2 {
        let Report::Ping(ping) = bed.command("ping --group g --timeout 3") else { panic!("no ping") };
        assert_eq!(answers(&ping.nodes), [(NodeState::Active, Ok(()))]);
    }
    assert_eq!(bed.end(), 1);
}

/// Each step of a test may be refused, or get no answer; the session goes on, and ends.
#[test]
fn a_test_that_a_node_refuses_is_not_added() {
    let bed = Bed::new(2);
    bed.command("new_session main");
    bed.command("add_group c {0}");
    bed.command("add_group s {1}");
    let line = "add_test --loop 2 --from c --to s brw write size=4k check=full";
    // The server's TEST, then the client's.
    for index in [1, 0] {
        bed.servers[index].raw.misbehave(service::TEST, Fault::Status(status::ENOMEM));
        let Report::Test { number, nodes, .. } = bed.command(line) else { panic!("no test") };
        assert_eq!(number, None);
        assert_eq!(nodes.last().unwrap().answer, Err(NodeFailure::Refused(Errno::ENOMEM)), "node {index}");
        bed.servers[index].raw.misbehave(service::TEST, Fault::NoReply);
        let silent = bed.cancelled(line, index, bed.servers[index].received() + 1);
        assert!(!matches!(silent, Ok(Report::Test { number: Some(_), .. })), "{silent:?}");
    }
    let Report::Test { number, .. } = bed.command(line) else { panic!("no test") };
    assert!(number.is_some());
    // Only the last one was added: an endless RUN is answered, and the raw client has its list.
    bed.command("run batch");
    bed.command("stop batch");
    let lists = bed.servers[0].raw.destinations();
    assert_eq!(
        lists.last().unwrap(),
        &crate::place::list(nlx_tests::judge::wire::Order::Little, &[bed.servers[1].nid])
    );
    assert_eq!(bed.end(), 2);
}

/// An operation can be cancelled while no node answers it; the next one begins at once.
#[test]
fn silence_in_every_operation_can_be_cancelled() {
    let bed = Bed::new(1);
    bed.begin();
    bed.command("add_test --from g --to g ping");
    let steps = [
        (service::BATCH, "run batch"),
        (service::BATCH, "query batch"),
        (service::STAT, "stat g"),
        (service::STAT, "show_error g"),
        (service::BATCH, "stop batch"),
    ];
    for (to, line) in steps {
        let begun = Cell::new(0);
        bed.servers[0].raw.misbehave(to, Fault::NoReply);
        let from = bed.servers[0].received();
        let is_over = || {
            begun.set(begun.get() + 1);
            bed.servers[0].received() > from
        };
        let done = bed.console.run(bed.operation(line), &is_over, |_| {});
        assert!(begun.get() > 0, "{line}: {done:?}");
        let Report::Ping(ping) = bed.command("ping --group g") else { panic!("{line}") };
        assert_eq!(answers(&ping.nodes), [(NodeState::Active, Ok(()))], "{line}");
    }
    assert_eq!(bed.end(), 1);
}
