//! The start of a node: its configuration, from a file and from options, and the descriptors of its
//! process.

use lnet_nid::{NetType, Nid};
use lnet_node::{AcceptPolicy, Node, NodeConfig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::args::SetupArgs;
use crate::failure::Failure;
use crate::output;

/// Applies the file, then the options, to the program's own configuration. Without any network:
/// `tcp`, which uses the first interface that can be used.
pub(crate) fn config(own: NodeConfig, args: &SetupArgs) -> Result<NodeConfig, Failure> {
    let mut config = match &args.config {
        Some(path) => own.and_load(path).map_err(|error| Failure::of_node(&error, 0))?,
        None => own,
    };
    for warning in config.warnings() {
        output::print_error(format_args!("nlx: {warning}"));
    }
    if let Some(port) = args.accept_port {
        config = config.accept_port(port);
    }
    if let Some(service) = args.service {
        config.o2ib().service = service;
    }
    if let Some(accept) = args.accept {
        config = config.accept(accept.into());
    }
    config = args.cpus.apply(config);
    let named: Vec<&str> = args.net.iter().map(String::as_str).collect();
    let nets = match named.is_empty() {
        false => named,
        true if config.nets().is_empty() => vec!["tcp"],
        true => return Ok(config),
    };
    let refused = |error| Failure::of_node(&error, 0);
    nets.into_iter().try_fold(config.without_nets(), |config, net| config.net(net).map_err(refused))
}

/// Raises the limit of descriptors that a shell sets (mostly 1024) to the hard limit: a node has a
/// descriptor for each connection. Must be called before the node starts, which divides the limit.
/// If it fails, the node starts with room for fewer peers.
pub(crate) fn use_all_descriptors() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(errno) = raised {
        tracing::warn!(%errno, "cannot raise the limit of open files");
    }
}

/// Makes the node accept the probes of `nlx ping --size --to-nlx`. A failure only affects the
/// probes.
pub(crate) fn offer_probes(node: &Node) {
    if let Err(error) = node.offer_probes() {
        tracing::warn!(%error, "'nlx ping --to-nlx' will get no acknowledgement from this node");
    }
}

/// The ports on which a node listens: over RDMA the connection manager's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) tcp: u16,
    pub(crate) o2ib: u16,
}

impl Ports {
    pub(crate) fn of(config: &mut NodeConfig) -> Ports {
        Ports { tcp: config.tcp().accept_port, o2ib: config.o2ib().service }
    }

    /// Returns the port of an NI.
    pub(crate) fn of_nid(self, nid: Nid) -> u16 {
        if nid.net().net_type() == NetType::O2IB { self.o2ib } else { self.tcp }
    }
}

/// Returns LNet's name of a policy.
pub(crate) fn policy_name(policy: AcceptPolicy) -> &'static str {
    match policy {
        AcceptPolicy::Secure => "secure",
        AcceptPolicy::All => "all",
        AcceptPolicy::None => "none",
        AcceptPolicy::Hello => "hello",
    }
}
