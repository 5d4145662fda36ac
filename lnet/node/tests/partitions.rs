//! Two nodes over TCP, with their state split by 1, 2 and 4 CPU partitions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use lnet_cpt::{CptTable, Topology};
use lnet_nid::Nid;
use lnet_node::NodeConfig;
use nlx_testkit::TIME_LIMIT;
use nlx_testkit::station::{self, Station};

/// The length of most operations in bytes.
const BYTES: usize = 200_000;

fn exchange(one: &Station, other: &Station) {
    station::exchange(one, other, BYTES);
}

fn free_port(address: Ipv4Addr) -> u16 {
    TcpListener::bind(SocketAddr::from((address, 0))).unwrap().local_addr().unwrap().port()
}

/// Starts two nodes with partitions from `partitions`, each with the networks that `networks`
/// returns for its address.
fn two_nodes(
    subnet: u8,
    partitions: impl Fn(NodeConfig) -> NodeConfig,
    networks: impl Fn(Ipv4Addr) -> String,
) -> (Station, Station) {
    let addresses = [Ipv4Addr::new(127, 45, subnet, 1), Ipv4Addr::new(127, 45, subnet, 2)];
    let port = free_port(addresses[0]);
    let [one, other] = addresses.map(|address| {
        let config = NodeConfig::new().networks(&networks(address)).unwrap().accept_port(port);
        Station::start(&partitions(config))
    });
    (one, other)
}

/// Traffic with 1, 2 and 4 partitions, on three kinds of networks: of all partitions, of the last,
/// and of two that are not neighbours.
// Covers: S-307, S-315
#[test]
fn nodes_of_any_number_of_partitions_exchange_messages() {
    for parts in [1, 2, 4] {
        let table = Arc::new(CptTable::virtual_parts(parts).unwrap());
        let last = parts - 1;
        for networks in [String::new(), format!("[{last}]"), format!("[0-{last}/2]")] {
            let partitions = |config: NodeConfig| config.partitions(table.clone());
            let (one, other) = two_nodes(parts as u8, partitions, |ip| format!("tcp({ip}){networks}"));
            assert_eq!(one.node.partitions().partitions(), parts);
            exchange(&one, &other);
        }
    }
}

/// The number of partitions of this machine's CPUs is the tunable's.
// Covers: S-301, S-303, S-315
#[test]
fn nodes_with_a_partition_for_each_cpu_exchange_messages() {
    let cpus = Topology::machine().unwrap().cpus().len().min(lnet_cpt::MAX_PARTITIONS);
    let tunables = format!("cpu_npartitions={cpus}");
    let partitions = |config: NodeConfig| config.cpt(tunables.parse().unwrap());
    let (one, other) = two_nodes(10, partitions, |ip| format!("tcp({ip}[0])"));
    assert_eq!(one.node.partitions().partitions(), cpus);
    assert!(!one.node.partitions().is_virtual());
    exchange(&one, &other);
}

/// Nodes with different numbers of partitions exchange messages: each node's number is its own
/// matter.
// Covers: S-301, S-315
#[test]
fn nodes_of_different_partitions_exchange_messages() {
    let tables = [1, 4].map(|parts| Arc::new(CptTable::virtual_parts(parts).unwrap()));
    let addresses = [Ipv4Addr::new(127, 45, 20, 1), Ipv4Addr::new(127, 45, 20, 2)];
    let port = free_port(addresses[0]);
    let start = |at: usize| {
        let config = NodeConfig::new().net(&format!("tcp({})", addresses[at])).unwrap();
        Station::start(&config.partitions(tables[at].clone()).accept_port(port))
    };
    let (one, other) = (start(0), start(1));
    exchange(&one, &other);
    exchange(&other, &one);
    let nids: Vec<Nid> = one.node.nids().to_vec();
    assert_eq!(other.node.ping(nids[0], None, TIME_LIMIT).unwrap().nids, nids);
}
