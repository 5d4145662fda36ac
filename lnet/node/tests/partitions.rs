//! Two nodes over TCP, with their state split by 1, 2 and 4 CPU partitions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lnet_api::{
    AckRequest, EqHandle, Event, EventFd, EventHandler, EventKind, Get, LNet, Md, MdHandle, MdOptions,
    MeSpec, Position, Put, Sleeper, Threshold, Unlink, wait_until,
};
use lnet_cpt::{CptTable, Topology};
use lnet_nid::{MatchBits, Nid, Pid, Portal, ProcessId};
use lnet_node::{Node, NodeConfig};
use lnet_region::{IoVec, Region};

/// Longer than anything here takes; only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(20);
const BYTES: usize = 200_000;
/// More than partitions, so that each has some.
const ROUNDS: u64 = 12;

/// Keeps events and wakes whoever waits for them.
struct Inbox {
    events: Mutex<Vec<Event>>,
    sleeper: Arc<dyn Sleeper>,
}

impl EventHandler for Inbox {
    fn event(&self, event: &Event) {
        self.events.lock().unwrap().push(*event);
    }

    fn wake(&self) {
        self.sleeper.wake();
    }
}

/// A node with an event queue.
struct Station {
    node: Node,
    lnet: Arc<dyn LNet>,
    inbox: Arc<Inbox>,
    eq: EqHandle,
}

impl Station {
    fn start(config: &NodeConfig) -> Station {
        let node = Node::start(config).unwrap();
        let sleeper: Arc<dyn Sleeper> = Arc::new(EventFd::new().unwrap());
        let inbox = Arc::new(Inbox { events: Mutex::default(), sleeper });
        let lnet = node.lnet();
        let eq = lnet.eq_alloc(inbox.clone()).unwrap();
        Station { node, lnet, inbox, eq }
    }

    fn id(&self) -> ProcessId {
        ProcessId { nid: self.node.nids()[0], pid: Pid::LNET }
    }

    fn md(&self, memory: IoVec, threshold: u32, options: MdOptions) -> Md {
        let threshold = Threshold::Limited(threshold);
        Md { memory, threshold, max_size: 0, options, user_ptr: 0, eq: Some(self.eq) }
    }

    /// Posts a buffer for one operation of a peer.
    fn post(&self, portal: Portal, from: ProcessId, bits: MatchBits, memory: IoVec, options: MdOptions) {
        let me = MeSpec {
            portal,
            match_id: from,
            match_bits: bits,
            ignore_bits: MatchBits(0),
            unlink: Unlink::Auto,
            position: Position::After,
        };
        let me = self.lnet.me_attach(&me).unwrap();
        self.lnet.md_attach(me, self.md(memory, 1, options), Unlink::Auto).unwrap();
    }

    fn bind(&self, memory: IoVec, operations: u32) -> MdHandle {
        self.lnet.md_bind(self.md(memory, operations, MdOptions::empty()), Unlink::Auto).unwrap()
    }

    /// Drives the node until it has had an event of this kind, and gives it.
    fn expect(&self, kind: EventKind) -> Event {
        let drive = self.node.drive();
        let deadline_ns = drive.now_ns() + PATIENCE.as_nanos() as u64;
        let mut found = None;
        wait_until(&*drive, &self.inbox.sleeper, Some(deadline_ns), || {
            let mut events = self.inbox.events.lock().unwrap();
            if let Some(at) = events.iter().position(|event| event.kind == kind) {
                found = Some(events.remove(at));
            }
            found.is_some()
        });
        let event = found.unwrap_or_else(|| panic!("no {kind:?} event"));
        assert_eq!(event.status, Ok(()), "{event:?}");
        event
    }
}

fn bytes(seed: u64) -> Vec<u8> {
    (0..BYTES as u64).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed) as u8).collect()
}

fn memory(content: &[u8]) -> IoVec {
    let memory = IoVec::whole(Region::heap(content.len()).unwrap());
    memory.write(0..content.len()).unwrap().copy_from(0, content);
    memory
}

fn content(memory: &IoVec) -> Vec<u8> {
    memory.read(0..BYTES).unwrap().to_vec()
}

/// PUTs with ACK, GETs and pings both ways, with entries for one peer and for all.
fn exchange(one: &Station, other: &Station) {
    let portals = [(Portal::new(50).unwrap(), one.id()), (Portal::new(51).unwrap(), ProcessId::ANY)];
    for round in 0..ROUNDS {
        let bits = MatchBits(round);
        for (portal, from) in portals {
            let (sink, source) = (memory(&vec![0; BYTES]), memory(&bytes(round)));
            other.post(portal, from, bits, sink.clone(), MdOptions::OP_PUT);
            let put = Put {
                source: None,
                md: one.bind(source, 2),
                ack: AckRequest::Ack,
                target: other.id(),
                portal,
                match_bits: bits,
                offset: 0,
                hdr_data: round,
            };
            one.lnet.put(&put).unwrap();
            one.expect(EventKind::Send);
            assert_eq!(one.expect(EventKind::Ack).mlength as usize, BYTES);
            let arrived = other.expect(EventKind::Put);
            assert_eq!((arrived.hdr_data, arrived.initiator.nid), (round, one.id().nid));
            assert_eq!(content(&sink), bytes(round));

            let (sink, source) = (memory(&vec![0; BYTES]), memory(&bytes(!round)));
            other.post(portal, from, bits, source, MdOptions::OP_GET);
            let get = Get {
                source: None,
                md: one.bind(sink.clone(), 2),
                target: other.id(),
                portal,
                match_bits: bits,
                offset: 0,
            };
            one.lnet.get(&get).unwrap();
            one.expect(EventKind::Reply);
            other.expect(EventKind::Get);
            assert_eq!(content(&sink), bytes(!round));
        }
    }
    for (asking, asked) in [(one, other), (other, one)] {
        let answer = asking.node.ping(asked.id().nid, None, PATIENCE).unwrap();
        assert_eq!(answer.nids, asked.node.nids());
    }
}

fn free_port(address: Ipv4Addr) -> u16 {
    TcpListener::bind(SocketAddr::from((address, 0))).unwrap().local_addr().unwrap().port()
}

/// Two nodes whose partitions come from `partitions`, each with the networks that `networks` makes of its address.
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

/// S-307, S-315: traffic with 1, 2 and 4 partitions, on networks of all of them, of the last, and of two that are not
/// neighbours.
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

/// S-301, S-303, S-315: as many partitions of this machine's CPUs as the tunable says.
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

/// S-315, S-301: nodes with different numbers of partitions understand each other: the number is nobody else's matter.
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
    assert_eq!(other.node.ping(nids[0], None, PATIENCE).unwrap().nids, nids);
}
