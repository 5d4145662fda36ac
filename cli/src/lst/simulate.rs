//! `nlx lst simulate`: many test nodes in one process, some of which misbehave.

use std::sync::Arc;
use std::time::Duration;

use lnet_nid::{Nid, NidList};
use lnet_node::{CptTable, FaultAction, FaultRule, Node, NodeConfig, VirtualNode};
use lnet_proto::lst::{Name, SessionId};
use nlx_lst::net::{NodeHandles, TestNode, TestNodeOptions, Workers};
use nlx_lst::node::{Config, Counters, MEMORY_MAX};
use serde_json::json;

use super::node::print_counters;
use super::{counters, network, new_ids, of_service};
use crate::args::{LstArgs, SimulateArgs};
use crate::failure::Failure;
use crate::output;
use crate::random::Random;
use crate::setup::{self, Ports};
use crate::signals::Signals;

/// Maximum number of simulated nodes: the workers have room for two services of each.
const NODES_MAX: usize = 2000;

/// Requests that one buffer takes: most nodes are idle.
const REQUESTS_PER_BUFFER: u32 = 4;

/// Connections of a console to a node: one of each type, and as many again while they are replaced.
const CONNS_OF_NODE: usize = 6;

/// Interval at which the nodes' time advances. A delayed message waits this much longer at most.
const TICK: Duration = Duration::from_millis(50);

/// Number of messages that a node receives before it dies: the first ends during the setup of the
/// session, the last during a test.
const LAST_MESSAGE: std::ops::Range<u32> = 3..30;

/// How a simulated node behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// It answers and tests like any test node.
    Normal,
    /// There is no node at this address.
    Dead,
    /// It is in a session of another console.
    Busy,
    /// Each message to it is delayed.
    Slow,
    /// It ends after this number of messages.
    Dies(u32),
}

/// A simulated node.
struct Simulated {
    nid: Nid,
    behaviour: Behaviour,
    /// Its test node, which ends before the LNet node that it runs on; none if it is dead.
    test: Option<TestNode>,
    lnet: Option<VirtualNode>,
}

pub(super) fn run(args: &LstArgs, simulate: &SimulateArgs) -> Result<(), Failure> {
    let signals = Signals::take(true)?;
    setup::use_all_descriptors();
    let nids = members(&simulate.nodes)?;
    let mut config = setup::config(NodeConfig::new().status(true), &args.setup)?.without_nets();
    // A single partition saves memory: each partition has state for each of the nodes.
    config = config.partitions(Arc::new(CptTable::single()));
    // All connections of a console come from its address.
    config.tcp().conns_of_address = CONNS_OF_NODE * nids.len();
    let ports = Ports::of(&mut config);
    let node = Node::start(&config).map_err(|error| Failure::of_node(&error, ports.tcp))?;
    let network = network(&node);
    // All nodes together use as much memory for their tests as one node in a process of its own.
    let config = Config { memory_max: MEMORY_MAX / nids.len().max(1) as u64, ..Config::default() };
    let requests_per_buffer = REQUESTS_PER_BUFFER;
    let options = TestNodeOptions { config, requests_per_buffer, ..TestNodeOptions::default() };
    let workers = Workers::start(&network, &options).map_err(of_service)?;
    let ids = new_ids();
    let mut simulated = Vec::new();
    for (nid, behaviour) in nids.iter().zip(behaviours(simulate, nids.len())) {
        let mut made = Simulated { nid: *nid, behaviour, test: None, lnet: None };
        if behaviour != Behaviour::Dead {
            let lnet = node.virtual_node(*nid).map_err(|error| Failure::of_node(&error, ports.tcp))?;
            let network = NodeHandles { lnet: lnet.lnet(), ..network.clone() };
            let mut options = options.clone();
            if behaviour == Behaviour::Busy {
                options.config.session_timeout_ns = 0;
            }
            let read = lnet.counters();
            let counters = Box::new(move || counters(&read()));
            let test =
                TestNode::on(&workers, &network, options, ids.clone(), counters).map_err(of_service)?;
            match behaviour {
                Behaviour::Busy => occupy(&test, *nid)?,
                Behaviour::Slow => delay(&lnet, simulate)?,
                _ => {}
            }
            (made.test, made.lnet) = (Some(test), Some(lnet));
        }
        simulated.push(made);
    }
    print_start(&simulated, ports.tcp, args.json)?;
    while !signals.stopped() {
        node.wait(&signals.interrupt, Some(TICK));
        signals.interrupt.take();
        simulated.iter_mut().for_each(Simulated::advance);
        if signals.report() {
            print_total(&simulated, args.json)?;
        }
    }
    print_total(&simulated, args.json)
}

impl Simulated {
    /// Advances the node's time, and ends it when it is due.
    fn advance(&mut self) {
        let Some(lnet) = &self.lnet else { return };
        lnet.advance();
        let dies = |last: u32| lnet.counters()().recv_count >= u64::from(last);
        if matches!(self.behaviour, Behaviour::Dies(last) if dies(last)) {
            self.lnet = None;
        }
    }
}

/// Returns the NIDs of lists.
fn members(lists: &[String]) -> Result<Vec<Nid>, Failure> {
    let list: NidList = lists.join(" ").parse().map_err(|error| Failure::new(format!("{error}")))?;
    list.members(NODES_MAX).map_err(|error| Failure::new(error.to_string()))
}

/// Decides how each of the nodes behaves. The shares are exact; the seed decides which nodes they are.
fn behaviours(simulate: &SimulateArgs, count: usize) -> Vec<Behaviour> {
    let mut random = Random::new(simulate.seed);
    let mut all = vec![Behaviour::Normal; count];
    // The nodes in an order that the seed gives.
    let mut order: Vec<usize> = (0..count).collect();
    for end in (1..count).rev() {
        order.swap(end, random.below(end as u32 + 1) as usize);
    }
    let mut order = order.into_iter();
    for (percent, behaviour) in [
        (simulate.dead, Behaviour::Dead),
        (simulate.busy, Behaviour::Busy),
        (simulate.slow, Behaviour::Slow),
        (simulate.dying, Behaviour::Dies(0)),
    ] {
        let share = (count as f64 * percent / 100.0).round() as usize;
        for index in order.by_ref().take(share) {
            let last = LAST_MESSAGE.start + random.below(LAST_MESSAGE.end - LAST_MESSAGE.start);
            let dies = matches!(behaviour, Behaviour::Dies(_));
            all[index] = if dies { Behaviour::Dies(last) } else { behaviour };
        }
    }
    all
}

/// Puts a node into a session of a console that has the node's own NID.
fn occupy(test: &TestNode, nid: Nid) -> Result<(), Failure> {
    let sid = SessionId::new(nid, 1).map_err(|error| Failure::new(error.to_string()))?;
    test.occupy(sid, Name::new("another").unwrap_or(Name::EMPTY));
    Ok(())
}

fn delay(lnet: &VirtualNode, simulate: &SimulateArgs) -> Result<(), Failure> {
    let rule: FaultRule = "delay 1ms".parse().map_err(|error| Failure::new(format!("{error}")))?;
    let action = FaultAction::Delay { at_least: simulate.delay / 2, at_most: simulate.delay };
    let added = lnet.add_fault(FaultRule { action, seed: simulate.seed, ..rule });
    added.map(drop).map_err(|error| Failure::new(error.to_string()))
}

fn print_start(simulated: &[Simulated], port: u16, json: bool) -> Result<(), Failure> {
    let with = |is_such: fn(&Behaviour) -> bool| -> Vec<String> {
        let found = simulated.iter().filter(|node| is_such(&node.behaviour));
        found.map(|node| node.nid.to_string()).collect()
    };
    let kinds: [(&str, Vec<String>); 4] = [
        ("dead", with(|behaviour| *behaviour == Behaviour::Dead)),
        ("busy", with(|behaviour| *behaviour == Behaviour::Busy)),
        ("slow", with(|behaviour| *behaviour == Behaviour::Slow)),
        ("dying", with(|behaviour| matches!(behaviour, Behaviour::Dies(_)))),
    ];
    if json {
        let kinds = kinds.map(|(kind, nids)| (kind.to_string(), json!(nids)));
        let kinds = serde_json::Map::from_iter(kinds);
        return output::json(&json!({ "lst_simulation": {
            "nodes": simulated.len(), "port": port, "pid": std::process::id(), "misbehave": kinds,
        } }));
    }
    output::line(format_args!("{} simulated test nodes on port {port}", simulated.len()))?;
    for (kind, nids) in kinds.iter().filter(|(_, nids)| !nids.is_empty()) {
        output::line(format_args!("{kind}: {}", nids.join(" ")))?;
    }
    Ok(())
}

/// Prints the sums of the counters of all nodes.
fn print_total(simulated: &[Simulated], json: bool) -> Result<(), Failure> {
    let sum = Counters::default();
    let tests = simulated.iter().filter_map(|node| node.test.as_ref());
    tests.for_each(|test| sum.add_node(test.counters()));
    print_counters(&sum, json)
}
