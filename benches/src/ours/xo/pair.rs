//! The two sides of a measurement, and their paths to the network.

use std::net::Ipv4Addr;
use std::path::Path;

use nix::unistd::Pid;
use nlx::Domain;

use super::party::Party;
use crate::cores::{self, Cores};
use crate::error::{BenchError, Result};
use crate::measure::Round;
use crate::ours::helper::process::{self, Helper};
use crate::ours::nodes::Nodes;
use crate::server::Server;

/// The path of the two sides of a measurement to the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkPath {
    /// Each side has the whole stack inside.
    InProcess,
    /// Each side has a separate helper process, which runs on the same core.
    Helpers,
    /// Each side has a separate helper process, on a core that nothing else of the measurement
    /// uses, so that all can poll.
    HelpersApart,
    /// Both sides are clients of one helper.
    OneHelper,
}

/// The client's side, and the other process of the measurement, which runs the server of this name.
pub(super) struct Pair {
    // Killed before the connections are dropped; the helpers last.
    pub(super) server: Server,
    pub(super) party: Party,
    pub(super) helpers: Vec<Helper>,
}

impl Pair {
    pub(super) fn start(round: &Round, path: NetworkPath, name: &str) -> Result<Pair> {
        Pair::at(Nodes::choose()?, round, path, name)
    }

    /// Starts the pair at these nodes.
    pub(super) fn at(nodes: Nodes, round: &Round, path: NetworkPath, name: &str) -> Result<Pair> {
        let helpers = match path {
            NetworkPath::InProcess => Vec::new(),
            NetworkPath::Helpers => vec![
                Helper::start(round.cores.swapped(), nodes, nodes.client)?,
                Helper::start(round.cores, nodes, nodes.server)?,
            ],
            NetworkPath::HelpersApart => {
                let [first, second] = cores::others(round.cores)?;
                vec![
                    Helper::start(Cores { server: first, ..round.cores }, nodes, nodes.client)?,
                    Helper::start(Cores { server: second, ..round.cores }, nodes, nodes.server)?,
                ]
            }
            NetworkPath::OneHelper => vec![Helper::start(round.cores, nodes, nodes.client)?],
        };
        let client = format!("{}@tcp:12345:{PORTAL}:1", nodes.client);
        let server = match path {
            NetworkPath::OneHelper => format!("{}@tcp:12345:{PORTAL}:2", nodes.client),
            _ => format!("{}@tcp:12345:{PORTAL}:1", nodes.server),
        };
        let domain = match helpers.first() {
            Some(helper) => helper.domain()?,
            None => in_process(nodes, nodes.client)?,
        };
        let party = Party::start(domain, &client, &server)?;
        let path = helpers.last().map_or(String::new(), |helper| helper.path().display().to_string());
        let server = Server::start(name, round.cores, &nodes.args(&[&server, &client, &path]))?;
        Ok(Pair { server, party, helpers })
    }

    /// Returns the client's helper, if it has one.
    pub(super) fn helper(&self) -> Option<&Helper> {
        self.helpers.first()
    }

    /// Returns all processes but this one.
    pub(super) fn pids(&self) -> Vec<Pid> {
        self.helpers.iter().map(Helper::pid).chain([self.server.pid()]).collect()
    }
}

/// Returns the other process's side, with the arguments of [`Pair::start`].
pub(super) fn served(args: &[String]) -> Result<Party> {
    let (nodes, rest) = Nodes::parse(args)?;
    let [own, peer, path] = rest else {
        let problem = format!("was given '{}', not two addresses and a path", rest.join(" "));
        return Err(BenchError::Server { name: "of a transfer machine".to_string(), problem });
    };
    let domain = match path.as_str() {
        "" => in_process(nodes, nodes.server)?,
        path => process::through(Path::new(path))?,
    };
    Party::start(domain, own, peer)
}

/// Opens a domain with the whole stack inside.
pub(super) fn in_process(nodes: Nodes, own: Ipv4Addr) -> Result<Domain> {
    Domain::in_process(&nodes.config(own)?).map_err(BenchError::nlx("open a domain"))
}

/// A portal that helpers permit to clients of other users than root, too.
pub(super) const PORTAL: u32 = 40;
