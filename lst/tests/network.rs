//! Whole sessions between a console and test nodes, each on an LNet node of its own, over TCP.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lnet_cpt::CptTable;
use lnet_nid::{NidList, NidRange};
use lnet_node::{Node, NodeConfig};
use lnet_proto::lst::LnetCounters;
use nix::errno::Errno;
use nlx_lst::Ids;
use nlx_lst::command::{Command, Defaults, parse};
use nlx_lst::console::{ConsoleOperation, Event, NodeFailure, Report, Warning};
use nlx_lst::net::{ConsoleRunner, NodeHandles, TestNode, TestNodeOptions};
use nlx_lst::node::Count;
use nlx_service::{ServiceError, ServiceStatistics};
use nlx_testkit::addresses::unused;
use nlx_testkit::until;

fn node(partitions: usize) -> Node {
    let config = NodeConfig::new().net(&format!("tcp({})", unused())).unwrap();
    Node::start(&config.partitions(Arc::new(CptTable::virtual_parts(partitions).unwrap()))).unwrap()
}

fn network(node: &Node) -> NodeHandles {
    NodeHandles { lnet: node.lnet(), drive: node.drive(), partitions: node.partitions().clone() }
}

/// Each program of a real site has ids of its own; so do these.
fn ids() -> Arc<Ids> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Arc::new(Ids::new(NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// A test node. The services are dropped before the node that they run on.
struct Tested {
    test: TestNode,
    node: Node,
}

impl Tested {
    fn start(partitions: usize) -> Tested {
        Tested::with(partitions, TestNodeOptions::default())
    }

    fn with(partitions: usize, options: TestNodeOptions) -> Tested {
        let node = node(partitions);
        let counters = Box::new(LnetCounters::default);
        let test = TestNode::start(&network(&node), options, ids(), counters).unwrap();
        Tested { test, node }
    }

    fn nid(&self) -> String {
        self.node.nids()[0].to_string()
    }
}

struct Bed {
    console: ConsoleRunner,
    node: Node,
    nodes: Vec<Tested>,
}

impl Bed {
    fn new(nodes: usize, partitions: usize) -> Bed {
        let nodes = (0..nodes).map(|_| Tested::start(partitions)).collect();
        let node = node(1);
        let console = ConsoleRunner::start(&network(&node), node.nids()[0], ids()).unwrap();
        Bed { console, node, nodes }
    }

    fn run(&self, operation: ConsoleOperation) -> Report {
        let text = format!("{operation:?}");
        // The only warning: a forced session may leave zombies at kernel nodes.
        let seen = |event: &Event| {
            assert!(!matches!(event, Event::Warning(warning) if *warning != Warning::Forced), "{event:?}")
        };
        self.console.run(operation, &|| false, seen).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Runs a line of `lst`; `{0}` is replaced by the NID of the first node.
    fn command(&self, line: &str) -> Report {
        let mut line = line.to_string();
        for (index, node) in self.nodes.iter().enumerate() {
            line = line.replace(&format!("{{{index}}}"), &node.nid());
        }
        match parse(&line, &Defaults::default()).unwrap().unwrap() {
            Command::Operation { operation, .. } => self.run(operation),
            other => panic!("{other:?}"),
        }
    }

    fn count(&self, index: usize, count: Count) -> u64 {
        self.nodes[index].test.counters().total(count)
    }
}

/// Clients and servers with one or several partitions do a number of RPCs of each kind, all of them
/// right, and end by themselves.
#[test]
fn tests_of_every_kind_run_to_their_end() {
    for partitions in [1, 4] {
        let bed = Bed::new(3, partitions);
        bed.command("new_session main");
        bed.command("add_group clients {0} {1}");
        bed.command("add_group servers {2}");
        for (index, test) in [
            "ping",
            "brw read size=64k check=full",
            "brw write size=1M check=simple",
            "brw write size=8 check=full",
        ]
        .iter()
        .enumerate()
        {
            let batch = format!("b{index}");
            bed.command(&format!("add_batch {batch}"));
            let options = format!("--batch {batch} --loop 5 --concurrency 3 --from clients --to servers");
            let added = bed.command(&format!("add_test {options} {test}"));
            assert!(matches!(added, Report::Test { number: Some(1), .. }), "{test}: {added:?}");
            bed.command(&format!("run {batch}"));
            until("the units have ended", || {
                bed.nodes[..2]
                    .iter()
                    .all(|node| node.test.clients().iter().all(|client| client.instance.running() == 0))
            });
            bed.command(&format!("stop {batch}"));
        }
        for node in &bed.nodes[..2] {
            let clients = node.test.clients();
            assert_eq!(clients.len(), 4);
            for client in clients {
                let done = (client.instance.results().latency().len(), client.instance.results().errors());
                assert_eq!(done, (15, 0), "{:?}", client.instance.work());
            }
        }
        assert_eq!(bed.count(2, Count::BulkPut), 2 * 15 * 65_536);
        assert_eq!(bed.count(2, Count::BulkGot), 2 * 15 * ((1 << 20) + 8));
        let Report::Errors(errors) = bed.command("show_error clients servers") else { panic!() };
        for node in errors.iter().flat_map(|target| &target.nodes) {
            let counters = node.answer.unwrap();
            assert_eq!((counters.ping_errors, counters.brw_errors, counters.rpcs_expired), (0, 0, 0));
        }
        let Report::End { nodes } = bed.command("end_session") else { panic!() };
        assert!(nodes.len() == 3 && nodes.iter().all(|node| node.answer.is_ok()));
        assert!(bed.nodes.iter().all(|node| node.test.session().is_none()));
    }
}

/// A node obeys the consoles of its list alone, and works on the partitions of its list alone, with the
/// limits that it has.
// Covers: S-313
#[test]
fn a_node_works_for_whom_and_where_its_options_say() {
    let mut bed = Bed::new(0, 1);
    let console = NidList::from(NidRange::from_str(&bed.node.nids()[0].to_string()).unwrap());
    let stranger: NidList = "192.0.2.1@tcp".parse().unwrap();
    let limits = TestNodeOptions { threads_min: Some(2), threads_max: Some(3), ..TestNodeOptions::default() };
    let few = TestNodeOptions { buffers_max: 2, bulk_max: 16, cpts: vec![2, 0], ..limits };
    for requests_wait in [true, false] {
        let options = TestNodeOptions { requests_wait, consoles: Some(console.clone()), ..few.clone() };
        bed.nodes.push(Tested::with(4, options));
    }
    bed.nodes
        .push(Tested::with(1, TestNodeOptions { consoles: Some(stranger), ..TestNodeOptions::default() }));
    bed.command("new_session main");
    let Report::Group { nodes, .. } = bed.command("add_group all {0} {1} {2}") else { panic!() };
    let answers: Vec<_> = nodes.iter().map(|node| node.answer).collect();
    assert_eq!(answers, [Ok(()), Ok(()), Err(NodeFailure::Refused(Errno::EACCES))]);
    assert_eq!((bed.count(2, Count::Strangers), bed.nodes[2].test.session()), (1, None));
    bed.command("add_group c {0}");
    bed.command("add_group s {1}");
    bed.command("add_test --concurrency 8 --loop 20 --from c --to s brw read size=64k check=full");
    bed.command("run batch");
    until("the units have ended", || bed.nodes[0].test.clients()[0].instance.running() == 0);
    bed.command("stop batch");
    let client = &bed.nodes[0].test.clients()[0].instance;
    let results = client.results();
    assert_eq!((results.latency().len(), results.errors()), (160, 0));
    for node in &bed.nodes[..2] {
        let [control, data] = node.test.services();
        let cpts = |service: &ServiceStatistics| service.partitions.iter().map(|p| p.cpt).collect::<Vec<_>>();
        assert_eq!((cpts(&control), cpts(&data)), (vec![2], vec![2, 0]));
        assert!(data.partitions.iter().all(|partition| (2..=4).contains(&partition.pool.threads)));
    }
    let served = &bed.nodes[1].test.services()[1];
    assert_eq!(served.partitions.iter().map(|partition| partition.counters.requests).sum::<u64>(), 160);
}

/// Options outside their range are refused by name.
#[test]
fn invalid_options_of_a_node_are_refused() {
    let node = node(2);
    let none = TestNodeOptions::default;
    for (options, name) in [
        (TestNodeOptions { cpts: vec![0, 2], ..none() }, "cpts"),
        (TestNodeOptions { threads_min: Some(3), threads_max: Some(2), ..none() }, "threads_min"),
        (TestNodeOptions { threads_max: Some(513), ..none() }, "threads_max"),
        (TestNodeOptions { buffers_max: 1, ..none() }, "buffers_min"),
    ] {
        let refused = TestNode::start(&network(&node), options, ids(), Box::new(LnetCounters::default)).err();
        let refused = refused.unwrap();
        assert!(matches!(refused, ServiceError::Option { name: of, .. } if of == name), "{refused}");
    }
}

/// A test without end is stopped, with and without force; a second console is refused, and takes the
/// node by force.
#[test]
fn endless_tests_stop_and_sessions_are_taken_by_force() {
    let bed = Bed::new(2, 2);
    for force in ["", "--force"] {
        bed.command("new_session main");
        bed.command("add_group c {0}");
        bed.command("add_group s {1}");
        bed.command("add_test --concurrency 4 --from c --to s brw read size=1M");
        bed.command("run batch");
        until("data move", || bed.count(1, Count::BulkPut) > 4 << 20);
        let Report::Query(query) = bed.command("query batch") else { panic!() };
        assert!(query.is_running());
        let Report::Stop { running, .. } = bed.command(&format!("stop {force} batch")) else { panic!() };
        assert_eq!(running, 0);
        bed.command("end_session");
    }
    bed.command("new_session main");
    bed.command("add_group c {0}");
    let other = Bed::new(0, 1);
    other.command("new_session other");
    let nid = bed.nodes[0].nid();
    let refused = other.command(&format!("add_group c {nid}"));
    assert!(matches!(refused, Report::Group { ref nodes, .. } if nodes[0].answer.is_err()), "{refused:?}");
    other.command("end_session");
    other.command("new_session --force other");
    let taken = other.command(&format!("add_group c {nid}"));
    assert!(matches!(taken, Report::Group { ref nodes, .. } if nodes[0].answer.is_ok()), "{taken:?}");
    assert_eq!(bed.nodes[0].test.session().unwrap().name.to_string(), "other");
}

/// A node that has gone is reported, and the others go on.
#[test]
fn a_node_that_dies_fails_its_own_part_only() {
    let mut bed = Bed::new(2, 1);
    bed.command("new_session main");
    bed.command("add_group c {0} {1}");
    let gone = bed.nodes.pop().unwrap();
    drop(gone);
    let Report::Ping(report) = bed.command("ping --group c --timeout 3") else { panic!() };
    let outcomes: Vec<bool> = report.nodes.iter().map(|node| node.answer.is_ok()).collect();
    assert_eq!(outcomes, [true, false]);
    bed.console.idle(Duration::from_millis(5), &|| false, |_| {});
}
