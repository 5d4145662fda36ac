//! A node that serves: the second process, and the server of clients on other hosts.

use std::sync::Arc;

use nlx::{Domain, NodeConfig};

use super::faults::Faults;
use super::helper::{self, Helper};
use super::node::Node;
use super::participants::command_address;
use super::process;
use crate::args::{Helped, SelftestArgs, SelftestPeerArgs};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::{output, setup};

/// Default port of a self-test between hosts, which needs no privileges.
pub(super) const PORT: u16 = 9988;

/// Serves all clients, until a signal requests the end.
pub(super) fn run_server(args: &SelftestArgs, signals: &Signals) -> Result<(), Failure> {
    // The helper is dropped after the node.
    let (domain, _helper) = match args.helped()? {
        Helped::No => {
            let node = start(config(&args.net, args)?)?;
            setup::offer_probes(&node);
            (Domain::on(node), None)
        }
        Helped::Own => {
            let helper = Helper::start(&args.net, Some(port(args)), &args.cpus)?;
            (helper.domain()?, Some(helper))
        }
        Helped::Behind([socket]) => (helper::domain(socket, args.cpus.spin)?, None),
        Helped::Behind(_) => return Err(one_socket()),
    };
    let mut node = serving(&domain)?;
    if args.json {
        output::json(&serde_json::json!({ "serving": { "address": node.address() } }))?;
    } else {
        output::line(format_args!("serving at {}", node.address()))?;
    }
    node.run(|| signals.stopped())
}

/// Returns the configuration of a node between hosts.
pub(super) fn config(net: &str, args: &SelftestArgs) -> Result<NodeConfig, Failure> {
    let port = port(args);
    let config = NodeConfig::new().status(true).net(net).map_err(|error| Failure::of_node(&error, port))?;
    Ok(on_port(args.cpus.apply(config), port))
}

/// Sets one port for all networks.
pub(super) fn on_port(config: NodeConfig, port: u16) -> NodeConfig {
    let mut config = config.accept_port(port);
    config.o2ib().service = port;
    config
}

/// Returns the port of a node between hosts.
pub(super) fn port(args: &SelftestArgs) -> u16 {
    if args.accept_port == 0 { PORT } else { args.accept_port }
}

/// Returns the error for several sockets: a node between hosts has one helper.
pub(super) fn one_socket() -> Failure {
    Failure::new("--server and --client take one --socket: that of this host's helper")
}

/// Runs the second process of a self-test on one host; prints the address of its commands first.
pub(crate) fn run_peer(args: &SelftestPeerArgs) -> Result<(), Failure> {
    setup::use_all_descriptors();
    process::tie_to_parent()?;
    let domain = match &args.socket {
        Some(socket) => helper::domain(socket, args.cpus.spin)?,
        None => {
            let config = NodeConfig::new().status(true).net(&args.net)?;
            in_process(on_port(args.cpus.apply(config), args.accept_port))?
        }
    };
    let mut node = serving(&domain)?;
    output::line(node.address())?;
    node.run(|| false)
}

/// Starts a node in this process and returns its domain.
pub(super) fn in_process(config: NodeConfig) -> Result<Domain, Failure> {
    Ok(Domain::on(start(config)?))
}

/// Starts a node in this process, for other uses than its domain.
pub(super) fn start(mut config: NodeConfig) -> Result<Arc<lnet_node::Node>, Failure> {
    let port = config.tcp().accept_port;
    Ok(Arc::new(lnet_node::Node::start(&config).map_err(|error| Failure::of_node(&error, port))?))
}

fn serving(domain: &Domain) -> Result<Node, Failure> {
    let faults = Arc::new(Faults::new(domain));
    Node::start(domain, &command_address(domain, "1")?, &faults, true)
}
