//! The nodes of a test: those in this process, each on a thread, and possibly a second process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use lnet_nid::NetType;
use lnet_node::Interrupt;
use nlx::{Domain, NodeConfig};

use super::console::Console;
use super::ends::Ends;
use super::faults::Faults;
use super::helper::Helper;
use super::node::Node;
use super::process::Peer;
use super::{COMMAND_PORTAL, reach, serve};
use crate::args::{Helped, SelftestArgs};
use crate::failure::{Context, Failure};

/// All participants of a test, in the order in which they are dropped.
pub(super) struct Participants {
    pub(super) console: Console,
    pub(super) nodes: Nodes,
    /// `lo`, `tcp` or `o2ib`.
    pub(super) net: &'static str,
}

/// The nodes, apart from the console.
pub(super) struct Nodes {
    threads: Vec<NodeThread>,
    peers: Vec<Peer>,
    helpers: Vec<Helper>,
}

impl Participants {
    /// Starts the participants that the options require.
    pub(super) fn of(args: &SelftestArgs, interrupt: &Interrupt) -> Result<Participants, Failure> {
        let helped = args.helped()?;
        let net = args.net.as_str();
        if !args.client.is_empty() {
            let servers: Vec<String> = args.client.iter().map(|text| full_address(text)).collect();
            let (domain, helpers) = match helped {
                Helped::No => {
                    let node = serve::start(serve::config(net, args)?)?;
                    reach::check(&node, &servers, args.size, interrupt)?;
                    (Domain::on(node), Vec::new())
                }
                Helped::Own => behind(Helper::start(net, Some(serve::port(args)), &args.cpus)?)?,
                Helped::Behind([socket]) => behind(Helper::running(socket, args.cpus.spin))?,
                Helped::Behind(_) => return Err(serve::one_socket()),
            };
            return Ok(Participants::new(&domain, servers, 0, args.clients)?.with(Vec::new(), helpers));
        }
        match (helped, net) {
            (Helped::Behind(sockets), _) => Participants::through(
                sockets.iter().map(|socket| Helper::running(socket, args.cpus.spin)).collect(),
                args.clients,
            ),
            (Helped::No, "lo") => {
                let config = args.cpus.apply(NodeConfig::new()).status(true);
                Participants::new(&Domain::in_process(&config)?, Vec::new(), 1, args.clients)
            }
            (Helped::Own, "lo") => {
                Participants::through(vec![Helper::start(net, None, &args.cpus)?], args.clients)
            }
            (Helped::No, _) => {
                let Ends { client, server, port } = Ends::of(args)?;
                let peer = Peer::start(&server, port, &args.cpus)?;
                let config = args.cpus.apply(NodeConfig::new().net(&client)?.status(true));
                let domain = serve::in_process(serve::on_port(config, port))?;
                let participants = Participants::new(&domain, vec![peer.address.clone()], 0, args.clients)?;
                Ok(participants.with(vec![peer], Vec::new()))
            }
            (Helped::Own, _) => {
                let Ends { client, server, port } = Ends::of(args)?;
                let start = |net: &str| Helper::start(net, Some(port), &args.cpus);
                Participants::through(vec![start(&client)?, start(&server)?], args.clients)
            }
        }
    }

    /// Starts the console and its clients behind the first helper, and behind each of the others a
    /// server in a separate process; behind a single helper also the server.
    fn through(helpers: Vec<Helper>, clients: u32) -> Result<Participants, Failure> {
        let Some(first) = helpers.first() else { return Err(Failure::new("there is no helper")) };
        let serving = helpers.get(1..).filter(|others| !others.is_empty()).unwrap_or(&helpers);
        let start = Helper::peer;
        let peers = serving.iter().map(start).collect::<Result<Vec<_>, _>>()?;
        let servers = peers.iter().map(|peer| peer.address.clone()).collect();
        Ok(Participants::new(&first.domain()?, servers, 0, clients)?.with(peers, helpers))
    }

    /// Adds processes that end with these participants.
    fn with(mut self, peers: Vec<Peer>, helpers: Vec<Helper>) -> Participants {
        self.nodes.peers = peers;
        self.nodes.helpers = helpers;
        self
    }

    /// Creates the console and its nodes in one domain; `servers` are elsewhere.
    pub(super) fn new(
        domain: &Domain,
        mut servers: Vec<String>,
        own_servers: u32,
        clients: u32,
    ) -> Result<Participants, Failure> {
        let any = command_address(domain, "*")?;
        let own = |count: u32| vec![any.clone(); count as usize];
        let faults = Arc::new(Faults::new(domain));
        let serving = NodeThread::spawn_all(domain, &own(own_servers), &faults)?;
        let asking = NodeThread::spawn_all(domain, &own(clients), &faults)?;
        servers.extend(serving.iter().map(|node| node.address.clone()));
        let clients: Vec<_> = asking.iter().map(|node| node.address.clone()).collect();
        let console = Console::start(domain, &any, &servers, &clients)?;
        let threads = serving.into_iter().chain(asking).collect();
        Ok(Participants::whole(domain, console, threads))
    }

    fn whole(domain: &Domain, console: Console, threads: Vec<NodeThread>) -> Participants {
        let net = match domain.nids().first().map(|nid| nid.net().net_type()) {
            None | Some(NetType::LO) => "lo",
            Some(NetType::O2IB) => "o2ib",
            Some(_) => "tcp",
        };
        let nodes = Nodes { threads, peers: Vec::new(), helpers: Vec::new() };
        Participants { console, nodes, net }
    }

    /// Creates all in one domain, with commands at these addresses.
    #[cfg(test)]
    pub(super) fn at(
        domain: &Domain,
        console: &str,
        servers: &[String],
        clients: &[String],
    ) -> Result<Participants, Failure> {
        let faults = Arc::new(Faults::new(domain));
        let threads = NodeThread::spawn_all(domain, &[servers, clients].concat(), &faults)?;
        let console = Console::start(domain, console, servers, clients)?;
        Ok(Participants::whole(domain, console, threads))
    }
}

impl Nodes {
    /// Fails if a node or process has ended.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        if let Some(thread) = self.threads.iter().find(|node| node.has_ended()) {
            return Err(Failure::new(format!("the node at {} has ended", thread.address)));
        }
        self.helpers.iter_mut().try_for_each(Helper::check)?;
        self.peers.iter_mut().try_for_each(Peer::check)
    }
}

/// A node on a thread of this process; dropping this ends both.
struct NodeThread {
    address: String,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NodeThread {
    /// Starts a node at each address.
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

/// Returns a domain behind a helper, which must be dropped after it.
fn behind(helper: Helper) -> Result<(Domain, Vec<Helper>), Failure> {
    Ok((helper.domain()?, vec![helper]))
}

/// Returns the address for commands of this domain; `tmid` is the id, or `*` for any.
pub(super) fn command_address(domain: &Domain, tmid: &str) -> Result<String, Failure> {
    let nid = domain.nids().first().copied().ok_or_else(|| Failure::new("the node has no NID"))?;
    Ok(format!("{nid}:12345:{COMMAND_PORTAL}:{tmid}"))
}

/// Returns a server's address, of which only the NID may have been given.
fn full_address(text: &str) -> String {
    if text.parse::<nlx::Nid>().is_ok() {
        format!("{text}:12345:{COMMAND_PORTAL}:1")
    } else {
        text.to_string()
    }
}
