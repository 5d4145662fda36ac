//! The choice among several NIs for a message (S-209, lnet-semantics 14, lnet-routing 17).

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use lnet::{Engine, EngineConfig, Limits};
use lnet_api::{AckRequest, LNet, MdOptions, Put, Threshold, Unlink, Upcalls};
use lnet_cpt::{CptTable, CpuSet, Topology, with_partition};
use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use proptest::prelude::*;

use super::PARTITIONS;
use super::common::*;
use super::ping::asleep;

/// The distances from each NUMA node of the machine to each.
const DISTANCES: [[u32; 2]; 2] = [[10, 21], [21, 10]];

/// The number of CPUs of each node.
const CPUS: usize = 2;

/// Returns the table of a machine with two nodes, as its kernel would describe it, in `PARTITIONS`
/// partitions.
fn table() -> Arc<CptTable> {
    let root = tempfile::tempdir().unwrap();
    let put = |name: &str, content: &str| {
        let path = root.path().join("devices/system").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    put("node/online", "0-1");
    for (node, row) in DISTANCES.iter().enumerate() {
        put(&format!("node/node{node}/cpulist"), &format!("{}-{}", node * CPUS, (node + 1) * CPUS - 1));
        put(&format!("node/node{node}/distance"), &format!("{} {}", row[0], row[1]));
    }
    let all = CpuSet::of(0..2 * CPUS).unwrap();
    Arc::new(CptTable::create(Topology::of_root(root.path(), &all).unwrap(), PARTITIONS).unwrap())
}

/// Returns the nodes of a partition: half of the partitions are of either node, and a single one is
/// of both.
fn nodes_of(partition: usize) -> impl Iterator<Item = usize> {
    (0..2).filter(move |node| PARTITIONS == 1 || partition * 2 / PARTITIONS == *node)
}

/// A node whose NIs are on devices of these NUMA nodes.
struct Sender {
    network: Arc<Network>,
    engine: Arc<Engine>,
}

impl Sender {
    /// Creates the node. `peers` is the room for peers in each partition.
    fn new(devices: &[Option<usize>], numa_range: u32, peers: usize) -> Sender {
        let (network, partitions) = (Network::new(), table());
        let config = EngineConfig::new(Pid::LNET, cookie(1));
        let limits = Limits { peers, ..config.limits };
        let engine = Engine::new(EngineConfig { partitions, numa_range, limits, ..config });
        for (number, device) in devices.iter().enumerate() {
            engine.add_ni_at(ProcessId::lnet(nid(own(number))), network.clone(), &[], *device).unwrap();
        }
        Sender { network, engine }
    }

    /// Returns the NI over which a message from this partition leaves.
    fn sends_over(&self, partition: usize, target: Nid, source: Option<Nid>) -> Nid {
        let (threshold, memory) = (Threshold::Limited(1), memory(1));
        let options = MdOptions::empty();
        let md = lnet_api::Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq: None };
        let md = with_partition(partition, || self.engine.md_bind(md, Unlink::Auto)).unwrap();
        let put = Put {
            source,
            md,
            target: ProcessId::lnet(target),
            portal: portal(),
            match_bits: MatchBits(1),
            offset: 0,
            hdr_data: 0,
            ack: AckRequest::NoAck,
        };
        self.engine.put(&put).unwrap();
        self.left_over()
    }

    /// Returns the NI over which a ping from this partition leaves.
    fn pings_over(&self, partition: usize, target: Nid) -> Nid {
        let target = ProcessId::lnet(target);
        let _ping = with_partition(partition, || self.engine.ping(None, target, asleep())).unwrap();
        self.left_over()
    }

    fn left_over(&self) -> Nid {
        let from = self.network.queue.lock()[0].from;
        self.network.lose(0);
        from
    }

    /// Delivers a message that needs no answer from a NID, over an NI.
    fn hears(&self, from: Nid, ni: Nid) {
        let (dest, src) = (ProcessId::lnet(ni), ProcessId::lnet(from));
        let (ack_wmd, match_bits, portal) = (WireHandle::NONE, MatchBits(1), portal().get());
        let body = Body::Put { ack_wmd, match_bits, hdr_data: 0, portal, offset: 0 };
        let header = Header { dest, src, payload_length: 0, body };
        let discarded = self.network.verdicts().discarded;
        self.network.arrive(Packet { from, to: dest, header, payload: Vec::new(), tx: None });
        assert_eq!(self.network.verdicts().discarded, discarded + 1, "no entry takes it");
    }
}

/// Returns the last byte of the NID of one of the node's NIs.
fn own(number: usize) -> u8 {
    100 + number as u8
}

/// A model of the rules for the choice of NIs.
struct Model {
    devices: Vec<Option<usize>>,
    numa_range: u32,
    links: Vec<bool>,
    /// The room for peers in each partition.
    peers: usize,
    preferred: HashMap<u8, usize>,
}

impl Model {
    fn distance(&self, ni: usize, partition: usize) -> u32 {
        let far = |device: usize| nodes_of(partition).map(move |node| DISTANCES[node][device]).max().unwrap();
        self.devices[ni].map_or(10, far).max(self.numa_range)
    }

    fn usable(&self) -> Vec<usize> {
        let all = 0..self.devices.len();
        let up: Vec<usize> = all.clone().filter(|&ni| self.links[ni]).collect();
        if up.is_empty() { all.collect() } else { up }
    }

    fn nearest(&self, partition: usize) -> usize {
        let usable = self.usable();
        let mut nearest = usable[0];
        for &ni in &usable {
            if self.distance(ni, partition) < self.distance(nearest, partition) {
                nearest = ni;
            }
        }
        nearest
    }

    fn remembers(&mut self, peer: u8, ni: usize) -> bool {
        let home = |peer: u8| nid(peer).cpt_of(PARTITIONS);
        let known = self.preferred.keys().filter(|&&known| home(known) == home(peer)).count();
        let room = self.preferred.contains_key(&peer) || known < self.peers;
        if room {
            self.preferred.insert(peer, ni);
        }
        room
    }

    fn sends_over(&mut self, partition: usize, peer: u8) -> usize {
        if peer == MULTI_RAIL || self.devices.len() == 1 {
            return self.nearest(partition);
        }
        if let Some(&preferred) = self.preferred.get(&peer)
            && self.usable().contains(&preferred)
        {
            return preferred;
        }
        let nearest = self.nearest(partition);
        match self.remembers(peer, nearest) {
            true => nearest,
            false => self.nearest(nid(peer).cpt_of(PARTITIONS)),
        }
    }

    fn hears(&mut self, peer: u8, ni: usize) {
        if !self.preferred.contains_key(&peer) && self.devices.len() > 1 {
            self.remembers(peer, ni);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send { partition: usize, peer: u8 },
    Ping { partition: usize, peer: u8 },
    Hear { peer: u8, ni: usize },
    Link { ni: usize, up: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..PARTITIONS, 10..14_u8).prop_map(|(partition, peer)| Step::Send { partition, peer }),
        1 => (0..PARTITIONS, 10..14_u8).prop_map(|(partition, peer)| Step::Ping { partition, peer }),
        2 => (10..14_u8, 0..4_usize).prop_map(|(peer, ni)| Step::Hear { peer, ni }),
        1 => (0..4_usize, any::<bool>()).prop_map(|(ni, up)| Step::Link { ni, up }),
    ]
}

/// A peer that has announced two NIDs; the others have one.
const MULTI_RAIL: u8 = 13;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Covers: S-209
    #[test]
    fn the_nearest_ni_is_chosen_as_a_plain_model_says(
        devices in prop::collection::vec(prop_oneof![Just(None), (0..2_usize).prop_map(Some)], 1..5),
        numa_range in prop_oneof![Just(0), Just(15), Just(40)],
        peers in prop_oneof![Just(2), Just(100)],
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let sender = Sender::new(&devices, numa_range, peers);
        let rails = Node::new(&sender.network, MULTI_RAIL);
        rails.engine.add_ni(ProcessId::lnet(nid(200)), sender.network.clone()).unwrap();
        let _push = rails.engine.push(Some(rails.nid), ProcessId::lnet(nid(own(0))), asleep()).unwrap();
        sender.network.run();
        prop_assert_eq!(sender.engine.primary_nid(nid(200)), rails.nid);
        let links = vec![true; devices.len()];
        let mut model = Model { devices, numa_range, links, peers, preferred: HashMap::new() };
        // The push of the multi-rail peer arrived over this NI.
        model.hears(MULTI_RAIL, 0);
        for step in steps {
            match step {
                Step::Send { partition, peer } => {
                    let expected = model.sends_over(partition, peer);
                    prop_assert_eq!(sender.sends_over(partition, nid(peer), None), nid(own(expected)));
                }
                Step::Ping { partition, peer } => {
                    let expected = model.nearest(partition);
                    prop_assert_eq!(sender.pings_over(partition, nid(peer)), nid(own(expected)));
                }
                Step::Hear { peer, ni } => {
                    let ni = ni % model.links.len();
                    sender.hears(nid(peer), nid(own(ni)));
                    model.hears(peer, ni);
                }
                Step::Link { ni, up } => {
                    let ni = ni % model.links.len();
                    model.links[ni] = up;
                    sender.engine.link_changed(nid(own(ni)), up);
                }
            }
        }
    }
}

/// Messages to a multi-rail node leave by the card beside their MD; those to another node by one
/// NI, which is that of the node's first message if that came first; a message with a given source
/// uses that NI.
// Covers: S-209
#[test]
fn each_partition_sends_over_the_card_beside_it() {
    let sender = Sender::new(&[Some(0), Some(1)], 0, 100);
    let rails = Node::new(&sender.network, MULTI_RAIL);
    rails.engine.add_ni(ProcessId::lnet(nid(200)), sender.network.clone()).unwrap();
    let _push = rails.engine.push(Some(rails.nid), ProcessId::lnet(nid(own(0))), asleep()).unwrap();
    sender.network.run();
    let last = PARTITIONS - 1;
    // A partition with CPUs of both nodes is equally far from both cards.
    let beside_last = nid(own(usize::from(PARTITIONS > 1)));
    assert_eq!(sender.sends_over(0, rails.nid, None), nid(own(0)));
    assert_eq!(sender.sends_over(last, rails.nid, None), beside_last);
    assert_eq!(sender.sends_over(last, nid(10), None), beside_last);
    assert_eq!(sender.sends_over(0, nid(10), None), beside_last, "it would take another NI for another node");
    for ni in [0, 1].map(own).map(nid) {
        assert_eq!(sender.sends_over(0, nid(10), Some(ni)), ni);
    }
    for (peer, ni) in [(11, 0), (12, 1)] {
        sender.hears(nid(peer), nid(own(ni)));
        for partition in [0, last] {
            assert_eq!(sender.sends_over(partition, nid(peer), None), nid(own(ni)), "it knows this node so");
        }
    }
    // The card over which the peer sent is removed.
    sender.engine.remove_ni(beside_last).unwrap();
    let other = if PARTITIONS > 1 { own(0) } else { own(1) };
    assert_eq!(sender.sends_over(last, nid(10), None), nid(other));
}
