//! `nlx lst`: LNet's self-test, its console and its test node.

mod commands;
mod html;
mod latency;
mod node;
mod outcome;
mod plan;
mod script;
mod session;
mod simulate;
mod status;
mod usage;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lnet_node::{Counters, Node, NodeConfig};
use lnet_proto::lst::{Features, LnetCounters, Name};
use nlx_lst::Ids;
use nlx_lst::command::{Command, Defaults, parse_words};
use nlx_lst::net::{ConsoleRunner, NodeHandles, TestNode, TestNodeOptions};
use nlx_service::ServiceError;

use crate::args::{LstArgs, LstCommand};
use crate::failure::Failure;
use crate::output;
use crate::setup;
use crate::setup::Ports;

pub(crate) fn run(args: &LstArgs) -> Result<(), Failure> {
    match &args.command {
        LstCommand::Node(options) => node::run(args, options),
        LstCommand::Simulate(simulate) => simulate::run(args, simulate),
        LstCommand::Script { file } => script::run(args, file),
        LstCommand::Words(words) => {
            if let Some(help) = usage::asked(words) {
                return output::line(help);
            }
            match read(words)? {
                Command::Plan(plan) => plan::run(args, &plan),
                _ => session::run(args, words),
            }
        }
        LstCommand::Background { session } => session::run_background(args, *session),
    }
}

/// Reads the words of a command.
fn read(words: &[String]) -> Result<Command, Failure> {
    let read = parse_words(words, &defaults()).map_err(|error| Failure::new(error.to_string()))?;
    read.ok_or_else(|| Failure::new("a command of lst has no words").hint("see 'nlx lst --help'"))
}

/// Returns the defaults of a new session: `user@host`, the current time, the features in
/// `LST_FEATURES`.
fn defaults() -> Defaults {
    let name = |text: String| Name::new(&text).ok();
    let own = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(own).ok().flatten().map_or(own.to_string(), |user| user.name);
    let host = nix::sys::utsname::uname().map(|system| system.nodename().to_string_lossy().into_owned());
    let name = name(format!("{user}@{}", host.unwrap_or_default())).or_else(|| name("nlx".to_string()));
    let features = std::env::var("LST_FEATURES").ok();
    let features = features.and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    Defaults {
        name: name.unwrap_or(Name::EMPTY),
        stamp: since_1970().as_millis() as i64,
        features: features.map_or(Features::BULK_LENGTH, Features),
    }
}

fn since_1970() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The LNet node on which a console, a test node, or both run.
struct Host {
    node: Arc<Node>,
    ids: Arc<Ids>,
    ports: Ports,
}

impl Host {
    fn start(args: &LstArgs) -> Result<Host, Failure> {
        setup::use_all_descriptors();
        let mut config = setup::config(NodeConfig::new().status(true), &args.setup)?;
        let ports = Ports::of(&mut config);
        let node = Node::start(&config).map_err(|error| Failure::of_node(&error, ports.tcp))?;
        let ids = new_ids();
        Ok(Host { node: Arc::new(node), ids, ports })
    }

    /// Starts a test node on it, which shares the ids of its console.
    fn test_node(&self, options: TestNodeOptions) -> Result<Arc<TestNode>, Failure> {
        start(&self.node, options, self.ids.clone())
    }

    /// Starts a console on the LNet node, with its first NID in session ids.
    fn console(&self) -> Result<ConsoleRunner, Failure> {
        let own = self.node.nids().first().copied();
        let own =
            own.ok_or_else(|| Failure::new("the node has no NID").hint("give it a network with --net"))?;
        ConsoleRunner::start(&network(&self.node), own, self.ids.clone()).map_err(of_service)
    }
}

/// Starts a test node beside the other work of an LNet node.
pub(crate) fn test_node(node: &Arc<Node>, options: TestNodeOptions) -> Result<Arc<TestNode>, Failure> {
    start(node, options, new_ids())
}

fn start(node: &Arc<Node>, options: TestNodeOptions, ids: Arc<Ids>) -> Result<Arc<TestNode>, Failure> {
    let own = node.clone();
    let counters = Box::new(move || counters(&own.counters()));
    let test = Arc::new(TestNode::start(&network(node), options, ids, counters).map_err(of_service)?);
    status::add(node, &test);
    Ok(test)
}

fn network(node: &Node) -> NodeHandles {
    NodeHandles { lnet: node.lnet(), drive: node.drive(), partitions: node.partitions().clone() }
}

fn new_ids() -> Arc<Ids> {
    Arc::new(Ids::new(since_1970().as_secs()))
}

fn of_service(error: ServiceError) -> Failure {
    Failure::at("start", error.errno(), error.to_string())
}

/// Returns the counters of a node in the form of a STAT reply, whose numbers wrap around.
fn counters(counters: &Counters) -> LnetCounters {
    LnetCounters {
        messages: counters.msgs_alloc as u32,
        messages_max: counters.msgs_max as u32,
        errors: counters.errors as u32,
        sent: counters.send_count as u32,
        received: counters.recv_count as u32,
        routed: 0,
        dropped: counters.drop_count as u32,
        bytes_sent: counters.send_length,
        bytes_received: counters.recv_length,
        bytes_routed: 0,
        bytes_dropped: counters.drop_length,
    }
}
