//! Two transfer machines that reach each other.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lnet_api::{Drive, LNet};
use lnet_cpt::CptTable;
use lnet_fake::FakeDrive;
use lnet_node::{Node, NodeConfig};
use lnet_region::IoVec;
use nlx_core::{
    BufferEvent, BufferHandle, Core, CoreError, CoreTm, Operation, OperationKind, Submitted, TmOptions,
};
use nlx_kcore::Kcore;

use super::engine::{engine, node};
use super::wire::Wire;
use super::{PORTAL, memory, start};

/// Time after which a wait counts as hung.
const HUNG_NS: u64 = 60_000_000_000;

/// A transfer machine and its domain.
pub(crate) struct Side {
    pub(crate) core: Arc<Kcore>,
    pub(crate) tm: Box<dyn CoreTm>,
}

pub(crate) struct Pair {
    pub(crate) a: Side,
    pub(crate) b: Side,
    between: Between,
}

/// The connection of the two. It is dropped after the transfer machines above.
enum Between {
    /// None: both are on one node.
    Loopback,
    Memory(Arc<Wire>),
    Tcp {
        _nodes: Box<[Node; 2]>,
    },
}

impl Side {
    fn on(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>, nid: &str) -> Side {
        Side::of(Kcore::new(lnet, drive), nid)
    }

    fn of(core: Arc<Kcore>, nid: &str) -> Side {
        let tm = core.tm_start(&start(&format!("{nid}:12345:{PORTAL}:*")), &TmOptions::default()).unwrap();
        Side { core, tm }
    }

    /// Registers a buffer of this many bytes.
    pub(crate) fn buffer(&self, bytes: usize) -> (BufferHandle, IoVec) {
        let memory = memory(bytes);
        (self.core.register(&memory).unwrap(), memory)
    }

    pub(crate) fn submit(&self, buffer: BufferHandle, kind: OperationKind) -> Result<Submitted, CoreError> {
        self.tm.submit(&Operation { buffer, cookie: buffer.0, kind })
    }
}

impl Pair {
    /// Two nodes on a network in memory.
    pub(crate) fn over_memory(partitions: usize) -> Pair {
        let wire = Arc::new(Wire::default());
        let side = |nid| Side::on(node(nid, &wire, partitions), FakeDrive::new(), nid);
        let (a, b) = (side("10.77.0.1@tcp"), side("10.77.0.2@tcp"));
        Pair { a, b, between: Between::Memory(wire) }
    }

    /// One node, on `0@lo`.
    pub(crate) fn over_loopback(partitions: usize) -> Pair {
        let core = Kcore::new(engine(partitions, 1), FakeDrive::new());
        let (a, b) = (Side::of(core.clone(), "0@lo"), Side::of(core, "0@lo"));
        Pair { a, b, between: Between::Loopback }
    }

    /// Two complete nodes over TCP.
    pub(crate) fn over_tcp(partitions: usize) -> Pair {
        /// Each pair has separate addresses, so that tests do not interfere.
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let net = NEXT.fetch_add(1, Ordering::Relaxed);
        let [one, two] = [1, 2].map(|host| Ipv4Addr::new(127, 44, net, host));
        let free = TcpListener::bind(SocketAddr::from((one, 0))).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let start = |address| {
            let table = Arc::new(CptTable::virtual_parts(partitions).unwrap());
            let config = NodeConfig::new().net(&format!("tcp({address})")).unwrap();
            Node::start(&config.accept_port(port).partitions(table)).unwrap()
        };
        let nodes = [start(one), start(two)];
        let side = |node: &Node, address| Side::on(node.lnet(), node.drive(), &format!("{address}@tcp"));
        let (a, b) = (side(&nodes[0], one), side(&nodes[1], two));
        Pair { a, b, between: Between::Tcp { _nodes: Box::new(nodes) } }
    }

    /// Returns the next event of a side, and waits for it if needed.
    pub(crate) fn next(&self, side: &Side) -> BufferEvent {
        if let Between::Memory(wire) = &self.between {
            wire.run();
        }
        let deadline_ns = side.core.now_ns() + HUNG_NS;
        assert!(self.comes_by_itself() || side.tm.pending(), "nothing has come");
        assert!(side.tm.event_wait(Some(deadline_ns)), "it hangs");
        side.tm.event_get().unwrap().expect("there is one")
    }

    /// Blocks until this number of messages for a side was lost.
    pub(crate) fn until_dropped(&self, side: &Side, messages: u64) {
        let deadline_ns = side.core.now_ns() + HUNG_NS;
        while side.tm.dropped() < messages {
            assert!(self.comes_by_itself() && side.core.now_ns() < deadline_ns, "nothing was lost");
            side.tm.event_wait(Some(deadline_ns));
        }
        assert_eq!(side.tm.dropped(), messages);
    }

    /// Returns whether events come without the test's help.
    fn comes_by_itself(&self) -> bool {
        matches!(self.between, Between::Tcp { .. })
    }

    /// Checks that nothing is in flight any more, and that both can be stopped.
    pub(crate) fn assert_idle(&self) {
        for side in [&self.a, &self.b] {
            assert_eq!((side.tm.event_get().unwrap(), side.tm.needed()), (None, 0));
            assert_eq!(side.core.faults(), nlx_kcore::Anomalies::default());
            side.tm.stop().unwrap();
        }
    }
}
