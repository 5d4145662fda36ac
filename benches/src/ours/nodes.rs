//! The nodes of a measurement: their addresses on the loopback network, their port and their
//! configuration.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use lnet_cpt::CptTable;
use lnet_nid::{Net, Nid, ProcessId};
use lnet_node::NodeConfig;

use crate::anchors;
use crate::error::{BenchError, Result};
use crate::ours::lnet::rate::WINDOW;

/// The addresses of the two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) client: Ipv4Addr,
    pub(crate) server: Ipv4Addr,
    /// Port of both nodes: nodes of one network use the same.
    port: u16,
    /// CPU partitions of each node; with 0 LNet chooses by the topology.
    partitions: usize,
}

impl Nodes {
    /// Chooses two nodes that no other process on this host uses. Their addresses are derived from
    /// the id of this process, because a NID belongs to one process at a time.
    pub(crate) fn choose() -> Result<Nodes> {
        let process = std::process::id();
        let octets =
            |own: u32| [127, 64 | (process >> 14) & 63, (process >> 6) & 255, (process & 63) * 2 + own];
        let address = |own| Ipv4Addr::from(octets(own).map(|octet| octet as u8));
        let (client, server) = (address(1), address(2));
        Ok(Nodes { client, server, port: free_port(client, server)?, partitions: 0 })
    }

    /// Returns the same nodes with this number of CPU partitions each.
    pub(crate) fn partitioned(self, partitions: usize) -> Nodes {
        Nodes { partitions, ..self }
    }

    /// Chooses two further nodes for this process, beside those of [`Nodes::choose`].
    pub(crate) fn choose_more() -> Result<Nodes> {
        let mut addresses = more_addresses(std::process::id(), 2);
        let missing = || BenchError::Wrong { subject: "the number of addresses", value: 0, expected: 2 };
        let [client, server] =
            [addresses.next(), addresses.next()].map(|address| address.ok_or_else(missing));
        let (client, server) = (client?, server?);
        Ok(Nodes { client, server, port: free_port(client, server)?, partitions: 0 })
    }

    /// Returns the arguments of a server: the nodes, and `more`.
    pub(crate) fn args(self, more: &[&dyn std::fmt::Display]) -> Vec<String> {
        let own: [&dyn std::fmt::Display; 4] = [&self.client, &self.server, &self.port, &self.partitions];
        own.iter().chain(more).map(|arg| arg.to_string()).collect()
    }

    /// Parses a server's arguments; returns the nodes and the other arguments.
    pub(crate) fn parse(args: &[String]) -> Result<(Nodes, &[String])> {
        let parse = |(own, more)| {
            let [client, server, port, partitions]: &[String; 4] = own;
            let nodes = Nodes {
                client: client.parse().ok()?,
                server: server.parse().ok()?,
                port: port.parse().ok()?,
                partitions: partitions.parse().ok()?,
            };
            Some((nodes, more))
        };
        args.split_first_chunk().and_then(parse).ok_or_else(|| BenchError::Server {
            name: "of a node".to_string(),
            problem: format!(
                "was given '{}', not two addresses, a port and a number of partitions",
                args.join(" ")
            ),
        })
    }

    /// Returns a configuration with LNet's defaults except for the port, the partitions, the
    /// congestion control, and the messages that may be in flight to one peer: with the default of
    /// 8, a system call never sends more than 8 small messages.
    pub(crate) fn config(self, address: Ipv4Addr) -> Result<NodeConfig> {
        self.config_of(&[address])
    }

    /// Returns the configuration of [`Nodes::config`] for a node with a NID at each of these
    /// addresses.
    pub(crate) fn config_of(self, addresses: &[Ipv4Addr]) -> Result<NodeConfig> {
        let interfaces = addresses.iter().map(Ipv4Addr::to_string).collect::<Vec<_>>().join(",");
        let config = NodeConfig::new().net(&format!("tcp({interfaces})"));
        let mut config = config.map_err(BenchError::nlx("configure a node"))?.accept_port(self.port);
        config.tcp().peer_credits = WINDOW as u32;
        config.tcp().congestion_control = Some(anchors::CONGESTION.to_string());
        if self.partitions == 0 {
            return Ok(config);
        }
        let table = CptTable::virtual_parts(self.partitions).map_err(BenchError::nlx("make partitions"))?;
        Ok(config.partitions(Arc::new(table)))
    }

    /// Returns one peer address for each of the nodes' partitions, in their order.
    pub(crate) fn peers_by_partition(self) -> Result<Vec<Ipv4Addr>> {
        let addresses: Vec<_> = more_addresses(std::process::id(), 250).collect();
        let belongs =
            |address: Ipv4Addr, partition| process(address).nid.cpt_of(self.partitions) == partition;
        let peer = |partition| addresses.iter().copied().find(|&address| belongs(address, partition));
        let missing = BenchError::Wrong { subject: "the number of addresses", value: 0, expected: 1 };
        (0..self.partitions).map(peer).collect::<Option<_>>().ok_or(missing)
    }
}

/// Returns `count` further addresses, at most 250, for nodes that communicate with this process:
/// derived from its id, in the half of the loopback network that [`Nodes::choose`] does not use.
pub(crate) fn more_addresses(process: u32, count: u8) -> impl Iterator<Item = Ipv4Addr> {
    let [high, low] = [128 | (process >> 8) & 127, process & 255].map(|octet| octet as u8);
    (1..=count).map(move |own| Ipv4Addr::new(127, high, low, own))
}

/// Returns the process at an address.
pub(crate) fn process(address: Ipv4Addr) -> ProcessId {
    ProcessId::lnet(Nid::new_v4(Net::TCP, address))
}

/// Returns a port that is free at both addresses.
fn free_port(client: Ipv4Addr, server: Ipv4Addr) -> Result<u16> {
    const ATTEMPTS: usize = 100;
    let attempt = || {
        let port = TcpListener::bind((client, 0))?.local_addr()?.port();
        TcpListener::bind((server, port)).map(|_| port)
    };
    let mut outcome = attempt();
    for _ in 1..ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        outcome = attempt();
    }
    outcome.map_err(BenchError::system("find a port that is free at both addresses"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_learns_what_its_client_chose() {
        let nodes = Nodes::choose().unwrap().partitioned(3);
        let args = nodes.args(&[&8, &"poll"]);
        assert_eq!(Nodes::parse(&args).unwrap(), (nodes, &["8".to_string(), "poll".to_string()][..]));
        assert!(
            more_addresses(std::process::id(), 250).all(|more| ![nodes.client, nodes.server].contains(&more))
        );
        assert!(nodes.client.is_loopback() && nodes.server.is_loopback() && nodes.client != nodes.server);
    }
}
