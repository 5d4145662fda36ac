//! The memory of shards, on a machine of two NUMA nodes of four CPUs each, which `./test verbs`
//! creates.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

/// One partition per NUMA node of the machine.
const PARTITIONS: usize = 2;

#[path = "common/mod.rs"]
mod common;

use std::sync::Arc;

use common::raw::{self, CONTROL, Wire};
use common::{Node, address_on, config, drive};
use lnet_cpt::{CptConfig, PartitionMemory, Topology, bind_thread};
use lnet_socklnd::SockConfig;
use nlx_testkit::numa::mappings;

/// The number of nodes, each with its own buffers.
const NODES: usize = 8;

/// The messages of one burst: they fill most of a buffer.
const MESSAGES: usize = 400;

/// A shard reads into buffers on the NUMA node of its partition, whichever thread drives it.
// Covers: S-305
#[test]
#[ignore = "needs 2 NUMA nodes: ./test verbs"]
fn receive_buffers_lie_on_the_node_of_their_shard() {
    let tunables: CptConfig = r#"cpu_pattern="N""#.parse().unwrap();
    let table = Arc::new(tunables.create(Topology::machine().unwrap()).unwrap());
    assert_eq!(table.partitions(), PARTITIONS);
    let memory = PartitionMemory::of(&table);
    let placed = |shard| {
        let policy = format!("prefer:{shard}");
        mappings().into_iter().filter(move |mapping| mapping.policy == policy)
    };
    for (shard, driver) in [(0, 1), (1, 0)] {
        let receive = || {
            bind_thread(&table, driver).unwrap();
            let nodes = (0..NODES).map(|_| Node::with(SockConfig { memory: memory.clone(), ..config() }));
            let nodes: Vec<Node> = nodes.collect();
            let connect = |node: &Node| {
                let (peer, ours) = (address_on(shard), node.nid.ipv4().unwrap());
                let (mut wire, _) = Wire::shake_hands(peer, node, 7, CONTROL);
                wire.send(&raw::put(peer, ours, 0, 0, b"x").repeat(MESSAGES));
                drive(&[node], || node.received() == MESSAGES);
                wire
            };
            let wires: Vec<Wire> = nodes.iter().map(connect).collect();
            let pages = placed(shard).filter_map(|mapping| mapping.pages.get(&shard).copied()).sum::<usize>();
            assert!(pages >= NODES, "{:?}", mappings());
            for mapping in placed(shard) {
                assert!(mapping.pages.keys().eq([&shard]), "{mapping:?}");
            }
            drop(wires);
        };
        std::thread::scope(|scope| scope.spawn(receive).join().unwrap());
    }
}
