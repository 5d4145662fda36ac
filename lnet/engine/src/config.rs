use std::sync::Arc;

use lnet_cpt::CptTable;
use lnet_nid::Pid;

/// LNet's `lnet_transaction_timeout` (lnet-semantics 27), in nanoseconds.
const TRANSACTION_TIMEOUT_NS: u64 = 150_000_000_000;

/// [`crate::Engine::advance`] is to be called at least this often while there are NIs, in nanoseconds: LNet's monitor thread
/// wakes once a second too (lnet-semantics 16).
pub const ADVANCE_INTERVAL_NS: u64 = 1_000_000_000;

/// How an [`crate::Engine`] is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The process id this node sends under; [`Pid::LNET`] for whoever talks to kernel nodes.
    pub pid: Pid,
    /// Names this life of the node in wire handles (lnet-wire 5): differs from that of any earlier life. Its three
    /// highest bits are left out: [`lnet_proto::WireHandle::unmarked`].
    pub interface_cookie: u64,
    /// The CPU partitions that the node's state is split by (S-307); at most [`crate::PARTITIONS_MAX`].
    pub partitions: Arc<CptTable>,
    /// How long an ACK or a REPLY may take, in nanoseconds (`lnet_transaction_timeout`, 150 s).
    pub transaction_timeout_ns: u64,
    /// In which partition a message begins to look for a buffer of a wildcard portal (`portal_rotor`).
    pub portal_rotor: Rotor,
    /// Which messages look in other partitions as well.
    pub stealing: Stealing,
    /// Which entries of a wildcard portal come first.
    pub match_order: MatchOrder,
    /// Whether this node is at distance 0 from itself (`local_nid_dist_zero`, yes); else at 1.
    pub local_nid_dist_zero: bool,
    /// NUMA distances up to this one count as equally near when an NI is chosen (`lnet_numa_range`, 0).
    pub numa_range: u32,
    /// Sizes of the tables.
    pub limits: Limits,
}

impl EngineConfig {
    /// LNet's defaults for everything but the two values that have none, and one partition.
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

/// LNet's tunable `portal_rotor` (lnet-semantics 10). *Here* is the partition that the message arrived on. A message is
/// *routed* if its source and its destination are on different networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rotor {
    /// Each message begins here.
    Off,
    /// Each message begins in the next partition.
    On,
    /// Routed messages begin in the next partition, others here.
    RrRt,
    /// Routed messages begin in the partition of their source, others here.
    #[default]
    HashRt,
}

/// Which messages look for a buffer in other partitions, if there is none where they begin (S-309).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stealing {
    /// All of them.
    #[default]
    All,
    /// PUTs on lazy portals only, as in today's LNet; others look in one partition that has buffers, and are dropped if
    /// none of these fits.
    LazyPuts,
}

/// Which of two entries of a wildcard portal takes a message that both would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatchOrder {
    /// The one that stands first in the portal's list.
    #[default]
    List,
    /// One with ignore bits before one without, as in today's LNet; else the one that stands first.
    IgnoreBitsFirst,
}

/// The most there can be of each kind of object. The tables grow as they are filled; the limits keep a runaway program
/// or a hostile peer from filling the memory. Where nothing else is said, they hold for each CPU partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Event queues of the node. One per transfer machine, and two of the engine's own; 65,536.
    pub event_queues: usize,
    /// Match entries; 4 Mi, which are 1 GiB with an MD each.
    pub match_entries: usize,
    /// Memory descriptors, those bound and those attached each; 4 Mi. Those beside a match entry need no memory of
    /// their own.
    pub descriptors: usize,
    /// Messages being sent, and messages being received; 1 Mi.
    pub messages: usize,
    /// Peers with which messages are exchanged; 131,072, more than the largest clusters have nodes. Idle ones make
    /// room for new ones.
    pub peers: usize,
    /// Messages waiting on one lazy portal; 32,768, as many as LNDs of two kinds take into memory by default. Those beyond are dropped.
    pub delayed: usize,
    /// Messages that fault rules delay at a time, by all partitions together; 4,096. Each of them stops a connection.
    pub held: usize,
    /// Nodes with several NIDs that are remembered, by all partitions together; 16,384. The oldest makes room for a new
    /// one.
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
