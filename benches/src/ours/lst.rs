//! Two test nodes of lst over TCP, one in each process: a test without checks from the client's to the
//! server's (the rows `lst/…`). A console starts it, on a node of its own in the client's process.

use std::sync::Arc;
use std::time::Duration;

use lnet_node::Node;
use lnet_proto::lst::LnetCounters;
use nlx_lst::Ids;
use nlx_lst::command::{Command, Defaults, parse};
use nlx_lst::net::{ConsoleRunner, NodeHandles, TestNode, TestNodeOptions};

use super::lnet::exchange::{BULK, IN_FLIGHT};
use super::lnet::rate::WINDOW;
use super::nodes::{self, Nodes};
use crate::cores::Cores;
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::meter::{self, Sample};
use crate::server::{self, Server};

pub(crate) const NODE: &str = "lst-node";

/// Interval at which the measuring thread reads the number of RPCs.
const LOOK: Duration = Duration::from_millis(5);

/// PINGs, 64 in flight: millions per second.
pub(crate) fn ping(round: &Round) -> Result<Sample> {
    let test = format!("--concurrency {WINDOW} --from c --to s ping");
    run(round, &test, |time, server, batch| meter::rate(time, server, batch))
}

/// BRW reads of 1 MiB, 8 in flight: GB/s.
pub(crate) fn read(round: &Round) -> Result<Sample> {
    brw(round, "read")
}

/// BRW writes of 1 MiB, 8 in flight: GB/s.
pub(crate) fn write(round: &Round) -> Result<Sample> {
    brw(round, "write")
}

fn brw(round: &Round, direction: &str) -> Result<Sample> {
    let test = format!("--concurrency {IN_FLIGHT} --from c --to s brw {direction} size=1M check=none");
    run(round, &test, |time, server, batch| meter::bulk(time, server, BULK, batch))
}

/// A test node, which is dropped before the LNet node that it runs on.
struct Tested {
    test: TestNode,
    node: Node,
}

impl Tested {
    fn start(node: Node, ids: u64) -> Result<Tested> {
        let (options, counters) = (TestNodeOptions::default(), Box::new(LnetCounters::default));
        let test = TestNode::start(&network(&node), options, Arc::new(Ids::new(ids)), counters);
        Ok(Tested { test: test.map_err(BenchError::nlx("start a test node"))?, node })
    }

    /// Returns the numbers of RPCs that have succeeded and failed.
    fn count(&self) -> (u64, u64) {
        let clients = self.test.clients();
        let results = clients.iter().map(|client| client.instance.results());
        let counts = results.map(|results| (results.latency().len(), results.errors()));
        counts.fold((0, 0), |(done, failed), (more, errors)| (done + more, failed + errors))
    }
}

fn network(node: &Node) -> NodeHandles {
    NodeHandles { lnet: node.lnet(), drive: node.drive(), partitions: node.partitions().clone() }
}

/// Measures a test that runs without an end.
fn run(
    round: &Round,
    test: &str,
    measure: impl FnOnce(Duration, &Server, &mut dyn FnMut() -> Result<u64>) -> Result<Sample>,
) -> Result<Sample> {
    let nodes = Nodes::choose()?;
    let start = |own| {
        nodes.config(own).and_then(|config| Node::start(&config).map_err(BenchError::nlx("start a node")))
    };
    let client = Tested::start(start(nodes.client)?, 1)?;
    let missing = BenchError::Wrong { subject: "the number of addresses", value: 0, expected: 1 };
    let own = nodes::more_addresses(std::process::id(), 1).next().ok_or(missing)?;
    let node = start(own)?;
    let console = ConsoleRunner::start(&network(&node), node.nids()[0], Arc::new(Ids::new(2)));
    let console = console.map_err(BenchError::nlx("start a console"))?;
    let server = Server::start(NODE, round.cores, &nodes.args(&[]))?;
    let commands = [
        "new_session bench".to_string(),
        format!("add_group c {}", client.node.nids()[0]),
        format!("add_group s {}", nodes::process(nodes.server).nid),
        format!("add_test {test}"),
        "run batch".to_string(),
    ];
    for command in commands {
        let parsed = parse(&command, &Defaults::default()).map_err(BenchError::nlx("parse a command"))?;
        if let Some(Command::Operation { operation, .. }) = parsed {
            let done = console.run(operation, &|| false, |_| {});
            done.map_err(BenchError::nlx("run a command of lst"))?;
        }
    }
    let mut seen = 0;
    let sample = measure(round.time, &server, &mut || {
        std::thread::sleep(LOOK);
        let before = std::mem::replace(&mut seen, client.count().0);
        Ok(seen - before)
    })?;
    match client.count() {
        (0, _) => Err(BenchError::Wrong { subject: "the number of RPCs", value: 0, expected: 1 }),
        (_, 0) => Ok(sample),
        (_, value) => Err(BenchError::Wrong { subject: "the number of failed RPCs", value, expected: 0 }),
    }
}

pub(crate) fn serve(_: Cores, args: &[String]) -> Result<()> {
    let nodes = Nodes::parse(args)?.0;
    let node = Node::start(&nodes.config(nodes.server)?).map_err(BenchError::nlx("start a node"))?;
    let _tested = Tested::start(node, 3)?;
    server::ready("")?;
    loop {
        std::thread::park();
    }
}
