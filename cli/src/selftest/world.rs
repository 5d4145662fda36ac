//! The nodes of a test: those in this process, each on a thread, and perhaps a second process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nlx::{Domain, NodeConfig};

use super::console::Console;
use super::faults::Faults;
use super::node::Node;
use super::process::{self, Peer};
use super::{COMMAND_PORTAL, serve};
use crate::args::SelftestArgs;
use crate::failure::{Context, Failure};

/// All that takes part in a test. What ends first stands first.
pub(super) struct World {
    pub(super) console: Console,
    pub(super) nodes: Nodes,
}

/// The nodes, apart from the console.
pub(super) struct Nodes {
    threads: Vec<NodeThread>,
    peer: Option<Peer>,
}

impl World {
    /// What the options ask for.
    pub(super) fn of(args: &SelftestArgs) -> Result<World, Failure> {
        if !args.client.is_empty() {
            let domain = Domain::in_process(&serve::config(&args.net, args)?)?;
            let servers: Vec<String> = args.client.iter().map(|text| full_address(text)).collect();
            return World::new(&domain, servers, 0, args.clients, None);
        }
        match args.net.as_str() {
            "lo" => {
                let domain =
                    Domain::in_process(&NodeConfig::new().cpt(args.partitions.config()).status(true))?;
                World::new(&domain, Vec::new(), 1, args.clients, None)
            }
            "tcp" => {
                let port = if args.accept_port == 0 { process::free_port()? } else { args.accept_port };
                let peer = Peer::start(port, &args.partitions)?;
                let config = NodeConfig::new()
                    .net(&format!("tcp({})", process::CLIENT))?
                    .accept_port(port)
                    .cpt(args.partitions.config())
                    .status(true);
                let node = lnet_node::Node::start(&config).map_err(|error| Failure::of_node(&error, port))?;
                let domain = Domain::on(Arc::new(node));
                World::new(&domain, vec![peer.address.clone()], 0, args.clients, Some(peer))
            }
            other => Err(Failure::new(format!("--net {other} needs --server or --client"))
                .hint("--net lo, or --net tcp, for a self-test on this host alone")),
        }
    }

    /// The console and its nodes in one domain; `servers` are elsewhere.
    pub(super) fn new(
        domain: &Domain,
        mut servers: Vec<String>,
        own_servers: u32,
        clients: u32,
        peer: Option<Peer>,
    ) -> Result<World, Failure> {
        let any = command_address(domain, "*")?;
        let own = |count: u32| vec![any.clone(); count as usize];
        let faults = Arc::new(Faults::new(domain));
        let serving = NodeThread::spawn_all(domain, &own(own_servers), &faults)?;
        let asking = NodeThread::spawn_all(domain, &own(clients), &faults)?;
        servers.extend(serving.iter().map(|node| node.address.clone()));
        let clients: Vec<_> = asking.iter().map(|node| node.address.clone()).collect();
        let console = Console::start(domain, &any, &servers, &clients)?;
        let threads = serving.into_iter().chain(asking).collect();
        Ok(World { console, nodes: Nodes { threads, peer } })
    }

    /// All in one domain, with commands at these addresses.
    #[cfg(test)]
    pub(super) fn at(
        domain: &Domain,
        console: &str,
        servers: &[String],
        clients: &[String],
    ) -> Result<World, Failure> {
        let faults = Arc::new(Faults::new(domain));
        let threads = NodeThread::spawn_all(domain, &[servers, clients].concat(), &faults)?;
        let console = Console::start(domain, console, servers, clients)?;
        Ok(World { console, nodes: Nodes { threads, peer: None } })
    }
}

impl Nodes {
    /// Fails if one of them is gone.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        if let Some(thread) = self.threads.iter().find(|node| node.has_ended()) {
            return Err(Failure::new(format!("the node at {} has ended", thread.address)));
        }
        self.peer.as_mut().map_or(Ok(()), Peer::check)
    }
}

/// A node on a thread of this process; both end with this value.
struct NodeThread {
    address: String,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NodeThread {
    /// A node at each address.
    fn spawn_all(
        domain: &Domain,
        addresses: &[String],
        faults: &Arc<Faults>,
    ) -> Result<Vec<NodeThread>, Failure> {
        let spawn = |at: &String| NodeThread::spawn(Node::start(domain, at, faults, false)?);
        addresses.iter().map(spawn).collect()
    }

    fn spawn(mut node: Node) -> Result<NodeThread, Failure> {
        let (address, over) = (node.address(), Arc::new(AtomicBool::new(false)));
        let told = over.clone();
        let run = move || {
            if let Err(failure) = node.run(|| told.load(Ordering::Relaxed)) {
                tracing::error!(%failure, "a node has failed");
            }
        };
        let thread = std::thread::Builder::new()
            .name("nlx-node".into())
            .spawn(run)
            .context("cannot start a node's thread")?;
        Ok(NodeThread { address, over, thread: Some(thread) })
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for NodeThread {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("a node's thread has panicked");
        }
    }
}

/// Where commands of this domain go; the id, or `*` for any.
pub(super) fn command_address(domain: &Domain, tmid: &str) -> Result<String, Failure> {
    let nid = domain.nids().first().copied().ok_or_else(|| Failure::new("the node has no NID"))?;
    Ok(format!("{nid}:12345:{COMMAND_PORTAL}:{tmid}"))
}

/// A server's address, of which the NID alone may have been given.
fn full_address(text: &str) -> String {
    if text.parse::<nlx::Nid>().is_ok() {
        format!("{text}:12345:{COMMAND_PORTAL}:1")
    } else {
        text.to_string()
    }
}
