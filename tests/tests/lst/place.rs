//! The nodes of a test, on addresses of their own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_cpt::CptTable;
use lnet_node::{AcceptPolicy, Node, NodeConfig};
use lnet_proto::lst::LnetCounters;
use nlx_lst::Ids;
use nlx_lst::net::{NodeHandles, TestNode, TestNodeOptions};
use nlx_lst::node::Client;
use nlx_testkit::addresses::unused;
use nlx_tests::judge::lst::message::service;
use nlx_tests::judge::lst::{self, Console, Sender, TestFields};
use nlx_tests::judge::wire::{Nid, Order};
use nlx_tests::judge::{Policy, Target};

/// The TEST that adds a server of PING to batch 1.
pub(crate) const SERVER: TestFields =
    TestFields { batch: 1, service: 12, repeats: 1, concurrency: 1, is_client: 0, destinations: 0 };

/// A test node, and the way to it.
pub(crate) struct Place {
    pub(crate) node: Tested,
    pub(crate) target: Target,
}

/// The node of a place.
pub(crate) enum Tested {
    /// The judge's.
    Raw(lst::TestNode),
    /// That of nlx, which is dropped before what it runs on.
    Nlx { test: TestNode, _node: Box<Node> },
}

impl Place {
    /// Starts the judge's node.
    pub(crate) fn raw() -> Place {
        let nid = Nid::new(unused(), 0);
        let node = lst::TestNode::start(SocketAddr::new(nid.address(), 0), nid).unwrap();
        let to = node.address();
        Place { node: Tested::Raw(node), target: target(to, nid) }
    }

    /// Starts a node of nlx with a number of CPU partitions.
    pub(crate) fn nlx(partitions: usize) -> Place {
        let address = unused();
        let port = free_port(address);
        let node = start(address, port, partitions);
        let counters = Box::new(LnetCounters::default);
        let test = TestNode::start(&network(&node), TestNodeOptions::default(), ids(), counters).unwrap();
        let to = SocketAddr::from((address, port));
        Place { node: Tested::Nlx { test, _node: Box::new(node) }, target: target(to, Nid::new(address, 0)) }
    }

    /// Starts a node of each kind.
    pub(crate) fn each() -> [Place; 3] {
        [Place::raw(), Place::nlx(1), Place::nlx(2)]
    }

    /// Returns the node's name, for messages.
    pub(crate) fn name(&self) -> &'static str {
        match self.node {
            Tested::Raw(_) => "the raw node",
            Tested::Nlx { .. } => "a node of nlx",
        }
    }

    /// Connects a console with features 1.
    pub(crate) fn console(&self, order: Order) -> Console<'_> {
        let sender = Sender { order, features: 1, sid: (self.target.own.small(), 344_984) };
        Console::connect(&self.target, sender).unwrap()
    }

    /// Starts a raw node that the node can send to.
    pub(crate) fn server(&self) -> Server {
        Server::start(self.target.to.port())
    }

    /// Calls `test` with a number of such nodes.
    pub(crate) fn with_servers(&self, number: usize, test: impl FnOnce(&Place, &[Server])) {
        let servers: Vec<Server> = (0..number).map(|_| self.server()).collect();
        test(self, &servers);
    }

    /// Returns the test clients of a node of nlx.
    pub(crate) fn clients(&self) -> Vec<Client> {
        match &self.node {
            Tested::Raw(_) => vec![],
            Tested::Nlx { test, .. } => test.clients(),
        }
    }
}

/// A raw node that others send to.
pub(crate) struct Server {
    pub(crate) raw: lst::TestNode,
    pub(crate) nid: Nid,
}

impl Server {
    /// Starts it on an address of its own.
    pub(crate) fn start(port: u16) -> Server {
        let nid = Nid::new(unused(), 0);
        Server { raw: lst::TestNode::start(SocketAddr::new(nid.address(), port), nid).unwrap(), nid }
    }

    /// Returns the number of requests that it has received.
    pub(crate) fn received(&self) -> u32 {
        self.raw.counters().received
    }
}

/// Returns a list of destinations.
pub(crate) fn list(order: Order, nids: &[Nid]) -> Vec<u8> {
    nids.iter().flat_map(|nid| [&order.u64(nid.small())[..], &order.u32(12345)].concat()).collect()
}

/// Makes a session, and adds servers of PING and BRW: three requests.
pub(crate) fn begin(console: &mut Console<'_>) {
    let made = console.call(service::MKSN, console.sender.mksn(0, "judge")).unwrap();
    assert_eq!((made.status(), made.session(), made.at(44)), (0, console.sender.sid, 100));
    for service in [11, 12] {
        let added = console.call(service::TEST, console.sender.test(&TestFields { service, ..SERVER }));
        assert_eq!(added.unwrap().status(), 0);
    }
}

/// Repeats a QUERY until it says that this number runs.
pub(crate) fn wait_for(console: &mut Console<'_>, batch: u64, index: u32, active: u32) {
    let query = console.sender.batch(batch, 3, index, 0);
    loop {
        let reply = console.call(service::BATCH, query.clone()).unwrap();
        assert_eq!(reply.status(), 0);
        if reply.at(44) == active {
            return;
        }
    }
}

/// Returns a port that is free on an address at this moment.
pub(crate) fn free_port(address: Ipv4Addr) -> u16 {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

/// Starts an LNet node of nlx.
pub(crate) fn start(address: Ipv4Addr, port: u16, partitions: usize) -> Node {
    let config = NodeConfig::new().net(&format!("tcp({address})")).unwrap();
    let config = config.accept_port(port).accept(AcceptPolicy::Hello);
    Node::start(&config.partitions(Arc::new(CptTable::virtual_parts(partitions).unwrap()))).unwrap()
}

/// Returns what lst uses of a node.
pub(crate) fn network(node: &Node) -> NodeHandles {
    NodeHandles { lnet: node.lnet(), drive: node.drive(), partitions: node.partitions().clone() }
}

/// Returns ids that no other node here uses, as each program of a real site has its own.
pub(crate) fn ids() -> Arc<Ids> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Arc::new(Ids::new(NEXT.fetch_add(1, Ordering::Relaxed)))
}

fn target(to: SocketAddr, nid: Nid) -> Target {
    let target = Target::new(to, nid, Nid::new(unused(), 0));
    Target { privileged: false, policy: Policy::Hello, ..target }
}
