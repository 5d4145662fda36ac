//! The engine's configuration: LNet's tunables, and the limits of a node's tables.

use std::sync::Arc;

use lnet_cpt::CptTable;
use lnet_nid::Pid;

/// LNet's `lnet_transaction_timeout` (lnet-semantics 27), in nanoseconds.
const TRANSACTION_TIMEOUT_NS: u64 = 150_000_000_000;

/// Longest time between two calls of [`crate::Engine::advance`] while the node has NIs, in
/// nanoseconds. LNet's monitor thread also wakes once a second (lnet-semantics 16).
pub const ADVANCE_INTERVAL_NS: u64 = 1_000_000_000;

/// Configuration of an [`crate::Engine`].
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Process id under which this node sends; [`Pid::LNET`] if it talks to kernel nodes.
    pub pid: Pid,
    /// Identifies this run of the node in wire handles (lnet-wire 5); it differs from that of every
    /// earlier run. Its three highest bits are left out: [`lnet_proto::WireHandle::unmarked`].
    pub interface_cookie: u64,
    /// CPU partitions into which the node's state is divided (S-307); at most
    /// [`crate::PARTITIONS_MAX`].
    pub partitions: Arc<CptTable>,
    /// Time limit for an ACK or a REPLY, in nanoseconds (`lnet_transaction_timeout`, 150 s).
    pub transaction_timeout_ns: u64,
    /// Partition in which a message starts its search for a buffer of a wildcard portal
    /// (`portal_rotor`).
    pub portal_rotor: Rotor,
    /// The messages that also search other partitions for a buffer.
    pub stealing: Stealing,
    /// Order of the entries of a wildcard portal.
    pub match_order: MatchOrder,
    /// True if this node is at distance 0 from itself (`local_nid_dist_zero`, default true) or at
    /// 1.
    pub local_nid_dist_zero: bool,
    /// NUMA distances up to this one count as equal in the choice of an NI (`lnet_numa_range`, 0).
    pub numa_range: u32,
    /// Limits of the tables.
    pub limits: Limits,
}

impl EngineConfig {
    /// Creates a configuration with LNet's defaults and one partition; the two arguments have no
    /// default.
    #[must_use]
    pub fn new(pid: Pid, interface_cookie: u64) -> EngineConfig {
        EngineConfig {
            pid,
            interface_cookie,
            partitions: Arc::new(CptTable::single()),
            transaction_timeout_ns: TRANSACTION_TIMEOUT_NS,
            portal_rotor: Rotor::default(),
            stealing: Stealing::default(),
            match_order: MatchOrder::default(),
            local_nid_dist_zero: true,
            numa_range: 0,
            limits: Limits::default(),
        }
    }
}

/// LNet's tunable `portal_rotor` (lnet-semantics 10). *Here* is the partition on which the message
/// arrived. A message is *routed* if its source and its destination are on different networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rotor {
    /// Each message starts here.
    Off,
    /// Each message starts in the next partition.
    On,
    /// Routed messages start in the next partition, others here.
    RrRt,
    /// Routed messages start in the partition of their source, others here.
    #[default]
    HashRt,
}

/// Messages that search other partitions if the one in which they start has no buffer (S-309).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stealing {
    /// All messages.
    #[default]
    All,
    /// PUTs on lazy portals only, as in current LNet. Any other message searches one partition that
    /// has buffers, and is dropped if none of these matches.
    LazyPuts,
}

/// The rule by which one of two matching entries of a wildcard portal takes a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatchOrder {
    /// The first one in the portal's list.
    #[default]
    List,
    /// An entry with ignore bits before one without, as in current LNet; otherwise the first in the
    /// list.
    IgnoreBitsFirst,
}

/// Maximum number of objects of each kind. The tables grow as they fill; the limits prevent a
/// runaway program or a hostile peer from exhausting the memory. A limit applies per CPU partition
/// unless its field says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Event queues of the node: one per transfer machine, and two for the engine. 65,536.
    pub event_queues: usize,
    /// Match entries; 4 Mi, which take 1 GiB with an MD each.
    pub match_entries: usize,
    /// Memory descriptors, for bound and for attached ones each; 4 Mi. An attached MD is stored
    /// inside its match entry and takes no further memory.
    pub descriptors: usize,
    /// Messages being sent, and messages being received, each; 1 Mi.
    pub messages: usize,
    /// Peers with which messages are exchanged; 131,072, more than the largest clusters have nodes.
    /// Idle peers are evicted for new ones.
    pub peers: usize,
    /// Messages waiting on one lazy portal; 32,768, which two kinds of LNDs together take into
    /// memory by default. Further messages are dropped.
    pub delayed: usize,
    /// Messages that fault rules delay at a time, all partitions together; 4,096. Each blocks a
    /// connection.
    pub held: usize,
    /// Remembered nodes with several NIDs, all partitions together; 16,384. A new one replaces the
    /// oldest.
    pub known_nodes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            event_queues: 1 << 16,
            match_entries: 1 << 22,
            descriptors: 1 << 22,
            messages: 1 << 20,
            peers: 1 << 17,
            delayed: 1 << 15,
            held: 1 << 12,
            known_nodes: 1 << 14,
        }
    }
}
