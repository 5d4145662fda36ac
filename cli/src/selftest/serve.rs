//! A node that serves: the second process, and the server of clients on other hosts.

use std::sync::Arc;

use nlx::{Domain, NodeConfig};

use super::faults::Faults;
use super::node::Node;
use super::world::command_address;
use crate::args::{SelftestArgs, SelftestPeerArgs};
use crate::failure::{Context, Failure};
use crate::signals::Signals;
use crate::{descriptors, output};

/// The port of a self-test between hosts: one that needs no privileges.
pub(super) const PORT: u16 = 9988;

/// Serves whoever comes, until a signal asks for the end.
pub(super) fn run_server(args: &SelftestArgs, signals: &Signals) -> Result<(), Failure> {
    let mut node = start(config(&args.net, args)?)?;
    if args.json {
        output::json(&serde_json::json!({ "serving": { "address": node.address() } }))?;
    } else {
        output::line(format_args!("serving at {}", node.address()))?;
    }
    node.run(|| signals.stopped())
}

/// The configuration of a node between hosts.
pub(super) fn config(net: &str, args: &SelftestArgs) -> Result<NodeConfig, Failure> {
    let port = if args.accept_port == 0 { PORT } else { args.accept_port };
    let config = NodeConfig::new().status(true).net(net).map_err(|error| Failure::of_node(&error, port))?;
    Ok(config.accept_port(port).cpt(args.partitions.config()))
}

/// Runs the second process of a self-test on one host; prints the address of its commands first.
pub(crate) fn run_peer(args: &SelftestPeerArgs) -> Result<(), Failure> {
    descriptors::use_all();
    // The parent owns this process: when it dies, however it dies, so does this.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).context("cannot tie to the parent")?;
    let config = NodeConfig::new()
        .status(true)
        .net(&args.net)?
        .accept_port(args.accept_port)
        .cpt(args.partitions.config());
    let mut node = start(config)?;
    output::line(node.address())?;
    node.run(|| false)
}

fn start(mut config: NodeConfig) -> Result<Node, Failure> {
    let port = config.tcp().accept_port;
    let node = lnet_node::Node::start(&config).map_err(|error| Failure::of_node(&error, port))?;
    let domain = Domain::on(Arc::new(node));
    let faults = Arc::new(Faults::new(&domain));
    Node::start(&domain, &command_address(&domain, "1")?, &faults, true)
}
