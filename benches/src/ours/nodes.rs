//! The two nodes of a measurement: two addresses of the loopback network.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use lnet_cpt::CptTable;
use lnet_nid::{Net, Nid, ProcessId};
use lnet_node::NodeConfig;

use crate::anchors;
use crate::error::{BenchError, Result};
use crate::ours::lnet::rate::WINDOW;

/// Where the two nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) client: Ipv4Addr,
    pub(crate) server: Ipv4Addr,
    /// Nodes of one network listen on the same port.
    port: u16,
    /// CPU partitions of each node; 0: as many as LNet chooses by the topology.
    partitions: usize,
}

impl Nodes {
    /// Two nodes that nobody else on this host uses. Their addresses follow from the number of this process, because a NID
    /// belongs to one process at a time.
    pub(crate) fn choose() -> Result<Nodes> {
        let process = std::process::id();
        let octets =
            |own: u32| [127, 64 | (process >> 14) & 63, (process >> 6) & 255, (process & 63) * 2 + own];
        let address = |own| Ipv4Addr::from(octets(own).map(|octet| octet as u8));
        let (client, server) = (address(1), address(2));
        Ok(Nodes { client, server, port: free_port(client, server)?, partitions: 0 })
    }

    /// The same nodes with so many CPU partitions each.
    pub(crate) fn partitioned(self, partitions: usize) -> Nodes {
        Nodes { partitions, ..self }
    }

    /// Two more for this process, beside those that it has chosen.
    pub(crate) fn choose_more() -> Result<Nodes> {
        let mut addresses = more_addresses(std::process::id(), 2);
        let missing = || BenchError::Wrong { what: "the number of addresses", value: 0, expected: 2 };
        let [client, server] =
            [addresses.next(), addresses.next()].map(|address| address.ok_or_else(missing));
        let (client, server) = (client?, server?);
        Ok(Nodes { client, server, port: free_port(client, server)?, partitions: 0 })
    }

    /// What a server must be told, and what it needs to know besides.
    pub(crate) fn args(self, more: &[&dyn std::fmt::Display]) -> Vec<String> {
        let own: [&dyn std::fmt::Display; 4] = [&self.client, &self.server, &self.port, &self.partitions];
        own.iter().chain(more).map(|arg| arg.to_string()).collect()
    }

    /// What a server was told, and the rest of its arguments.
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
            what: format!(
                "was told '{}', not two addresses, a port and a number of partitions",
                args.join(" ")
            ),
        })
    }

    /// A node with LNet's defaults but for the port, the partitions, the congestion control, and the messages that may be in
    /// flight to one peer: with the default of 8, no more than 8 small messages ever leave in one system call.
    pub(crate) fn config(self, address: Ipv4Addr) -> Result<NodeConfig> {
        self.config_of(&[address])
    }

    /// The same for a node with a NID at each of these addresses.
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

    /// Addresses of peers, each of which belongs to another of the nodes' partitions.
    pub(crate) fn peers_by_partition(self) -> Result<Vec<Ipv4Addr>> {
        let addresses: Vec<_> = more_addresses(std::process::id(), 250).collect();
        let belongs =
            |address: Ipv4Addr, partition| process(address).nid.cpt_of(self.partitions) == partition;
        let peer = |partition| addresses.iter().copied().find(|&address| belongs(address, partition));
        let missing = BenchError::Wrong { what: "the number of addresses", value: 0, expected: 1 };
        (0..self.partitions).map(peer).collect::<Option<_>>().ok_or(missing)
    }
}

/// So many addresses more for nodes that this process talks to, 250 at the most: those that follow from its number, in
/// the half of the loopback network that [`Nodes::choose`] leaves.
pub(crate) fn more_addresses(process: u32, count: u8) -> impl Iterator<Item = Ipv4Addr> {
    let [high, low] = [128 | (process >> 8) & 127, process & 255].map(|octet| octet as u8);
    (1..=count).map(move |own| Ipv4Addr::new(127, high, low, own))
}

/// The process at an address.
pub(crate) fn process(address: Ipv4Addr) -> ProcessId {
    ProcessId::lnet(Nid::new_v4(Net::TCP, address))
}

/// A port that is free at both addresses.
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
