//! The networks over which the suite runs, each with its nodes and domains.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lnet::{Engine, EngineConfig};
use lnet_cpt::CptTable;
use lnet_nid::{NetType, ProcessId};
use lnet_sim::{LinkModel, SimDrive, SimNet};
use nlx::{Domain, Nid, Node, NodeConfig, Pid};
use nlx_kcore::Kcore;
use parking_lot::Mutex;

#[cfg(feature = "verbs")]
use super::rdma;
use crate::helper::Helper;

/// The time after which a silent node is given up: a test that waited for it would hang.
const GIVEN_UP_S: u32 = 300;

/// Two places on a network; on the loopback both are the same.
pub(crate) struct World {
    pub(crate) nids: [Nid; 2],
    /// One for each node, if the domains are clients of helpers. They are dropped before their
    /// nodes.
    helpers: Option<Vec<Mutex<Option<Helper>>>>,
    network: Network,
    /// Set if event threads call back.
    called: bool,
}

enum Network {
    Loopback(Arc<Node>),
    Two(Nodes),
    Simulated(Simulated),
}

struct Nodes {
    /// `None` once the node has been taken away.
    at: [Mutex<Option<Arc<Node>>>; 2],
    by: By,
}

/// The network between two nodes.
enum By {
    /// All nodes listen on this port.
    Tcp(u16),
    #[cfg(feature = "verbs")]
    Rdma(rdma::Alone),
}

struct Simulated {
    drive: Arc<SimDrive>,
    engines: [Arc<Engine>; 2],
}

impl World {
    /// Creates the world that a test's first module names.
    pub(crate) fn named(module: &str) -> World {
        let name = module.rsplit("::").next().unwrap();
        let (rest, partitions) = name.rsplit_once('_').unwrap();
        let partitions = partitions.parse().unwrap();
        let called = rest.starts_with("called_");
        let network_name = rest.trim_start_matches("called_");
        let network = network_name.trim_start_matches("helper_");
        let world = match network {
            "lo" => World::loopback(partitions),
            "tcp" => World::tcp(partitions),
            #[cfg(feature = "verbs")]
            "o2ib" => World::rdma(partitions),
            "sim" => World::simulated(partitions),
            _ => panic!("there is no network {rest}"),
        };
        let world = if network == network_name { world } else { world.helped() };
        if called { World { called, ..world }.with_threads() } else { world }
    }

    /// Puts each node behind a helper, whose clients the domains are.
    fn helped(self) -> World {
        let over = |node: &Arc<Node>| Mutex::new(Some(Helper::over(node)));
        let helpers = match &self.network {
            Network::Loopback(node) => vec![over(node)],
            Network::Two(Nodes { at, .. }) => {
                at.iter().map(|node| over(node.lock().as_ref().expect("it is there"))).collect()
            }
            // Its clock advances only in waits, but clients of a helper wait by the system's clock.
            Network::Simulated(_) => panic!("a helper needs a network that goes on by itself"),
        };
        World { helpers: Some(helpers), ..self }
    }

    pub(crate) fn is_called(&self) -> bool {
        self.called
    }

    /// One node, on `0@lo`.
    fn loopback(partitions: usize) -> World {
        let config = NodeConfig::new().partitions(table(partitions));
        World {
            nids: [Nid::LOOPBACK; 2],
            network: Network::Loopback(Arc::new(Node::start(&config).unwrap())),
            helpers: None,
            called: false,
        }
    }

    /// Two nodes over TCP.
    fn tcp(partitions: usize) -> World {
        let addresses = addresses();
        let free = TcpListener::bind(SocketAddr::from((addresses[0], 0))).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let nodes = addresses.map(|address| {
            let config = NodeConfig::new().net(&format!("tcp({address})")).unwrap();
            let mut config = config.accept_port(port).partitions(table(partitions));
            config.tcp().timeout_s = GIVEN_UP_S;
            Arc::new(Node::start(&config).unwrap())
        });
        World::two(addresses.map(|address| nid(&address.to_string())), nodes, By::Tcp(port))
    }

    /// Two nodes over the RDMA devices of the guest.
    #[cfg(feature = "verbs")]
    fn rdma(partitions: usize) -> World {
        let alone = rdma::Alone::new();
        let nids = rdma::nids();
        let nodes = nids.map(|nid| {
            let address = nid.ipv4().unwrap();
            let config = NodeConfig::new().net(&format!("o2ib({address})")).unwrap();
            let mut config = config.partitions(table(partitions));
            config.o2ib().timeout_s = GIVEN_UP_S;
            Arc::new(Node::start(&config).unwrap())
        });
        World::two(nids, nodes, By::Rdma(alone))
    }

    fn two(nids: [Nid; 2], nodes: [Arc<Node>; 2], by: By) -> World {
        let at = nodes.map(|node| Mutex::new(Some(node)));
        World { nids, network: Network::Two(Nodes { at, by }), helpers: None, called: false }
    }

    /// Two engines over a simulated network without errors.
    fn simulated(partitions: usize) -> World {
        let net = SimNet::new(0x5eed, Arc::new(()));
        let link = LinkModel { shards: partitions, ..LinkModel::reliable() };
        let lnd = net.lnd(NetType::TCP, link).unwrap();
        let nids = ["10.0.0.1", "10.0.0.2"].map(nid);
        let engines = nids.map(|nid| {
            let cookie = nid.to_nid4().unwrap();
            let config =
                EngineConfig { partitions: table(partitions), ..EngineConfig::new(Pid::LNET, cookie) };
            let engine = Engine::new(config);
            engine.add_ni(ProcessId::lnet(nid), lnd.clone()).unwrap();
            engine
        });
        let drive = SimDrive::new(net, engines.to_vec()).unwrap();
        let network = Network::Simulated(Simulated { drive, engines });
        World { nids, network, helpers: None, called: false }
    }

    /// Opens a new domain on the node of `place`.
    pub(crate) fn domain(&self, place: usize) -> Domain {
        if let Some(helpers) = &self.helpers {
            return helpers[place.min(helpers.len() - 1)].lock().as_ref().expect("it is there").domain();
        }
        match &self.network {
            Network::Loopback(node) => Domain::on(node.clone()),
            Network::Two(Nodes { at, .. }) => Domain::on(at[place].lock().clone().expect("it is there")),
            Network::Simulated(Simulated { drive, engines }) => {
                Domain::over(Kcore::new(engines[place].clone(), drive.clone()))
            }
        }
    }

    /// Lets virtual time run slowly while threads wait all the time.
    pub(crate) fn with_threads(self) -> World {
        if let Network::Simulated(Simulated { drive, .. }) = &self.network {
            drive.flow();
        }
        self
    }

    /// Returns a node that can be reached but never answers, in place of the second one; `None` on
    /// the loopback.
    pub(crate) fn silent(&self) -> Option<Silent> {
        match &self.network {
            Network::Loopback(_) => None,
            Network::Two(Nodes { by: By::Tcp(port), .. }) => {
                let [a, b, c, _] = self.nids[0].ipv4().unwrap().octets();
                let address = Ipv4Addr::new(a, b, c, 3);
                // The system accepts connections into the listener's queue.
                let listener = TcpListener::bind(SocketAddr::from((address, *port))).unwrap();
                Some(Silent { nid: nid(&address.to_string()), _listener: Some(listener) })
            }
            #[cfg(feature = "verbs")]
            Network::Two(Nodes { by: By::Rdma(alone), .. }) => {
                Some(Silent { nid: alone.silent(), _listener: None })
            }
            Network::Simulated(Simulated { drive, .. }) => {
                let link = LinkModel { vanish: 10_000, ..LinkModel::reliable() };
                drive.net().lnd(NetType::TCP, link).unwrap();
                Some(Silent { nid: self.nids[1], _listener: None })
            }
        }
    }

    /// Ends the node at one of the places; its domains must have ended before.
    pub(crate) fn take_away(&self, place: usize) {
        drop(self.helpers.as_ref().map(|helpers| helpers[place].lock().take()));
        match &self.network {
            Network::Loopback(_) => panic!("there is only one"),
            Network::Two(Nodes { at, .. }) => {
                let node = at[place].lock().take();
                assert_eq!(node.map(|node| Arc::strong_count(&node)), Some(1), "it is in use");
            }
            Network::Simulated(Simulated { drive, .. }) => drive.net().crash(self.nids[place]),
        }
    }
}

/// A node that never answers, until this value is dropped.
pub(crate) struct Silent {
    pub(crate) nid: Nid,
    _listener: Option<TcpListener>,
}

impl Drop for Simulated {
    /// Engines and their network refer to each other, which is undone here.
    fn drop(&mut self) {
        for engine in &self.engines {
            assert_eq!(engine.audit(), Ok(()));
        }
        self.drive.net().crash_all();
    }
}

fn table(partitions: usize) -> Arc<CptTable> {
    Arc::new(CptTable::virtual_parts(partitions).unwrap())
}

fn nid(address: &str) -> Nid {
    format!("{address}@tcp").parse().unwrap()
}

/// Two addresses that no other test uses, and hardly another process: a NID belongs to one process
/// at a time.
fn addresses() -> [Ipv4Addr; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = 64 + (std::process::id() % 128) as u8;
    [1, 2].map(|host| Ipv4Addr::new(127, process, number, host))
}
