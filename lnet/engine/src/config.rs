use lnet_nid::Pid;

/// LNet's `lnet_transaction_timeout` (lnet-semantics 27), in nanoseconds.
const TRANSACTION_TIMEOUT_NS: u64 = 150_000_000_000;

/// How an [`crate::Engine`] is set up.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// The process id this node sends under; [`Pid::LNET`] for whoever talks to kernel nodes.
    pub pid: Pid,
    /// Names this life of the node in wire handles (lnet-wire 5): differs from that of any earlier life.
    pub interface_cookie: u64,
    /// How long an ACK or a REPLY may take, in nanoseconds (`lnet_transaction_timeout`, 150 s).
    pub transaction_timeout_ns: u64,
    /// Sizes of the tables.
    pub limits: Limits,
}

impl EngineConfig {
    /// LNet's defaults for everything but the two values that have none.
    #[must_use]
    pub fn new(pid: Pid, interface_cookie: u64) -> EngineConfig {
        let limits = Limits::default();
        EngineConfig { pid, interface_cookie, transaction_timeout_ns: TRANSACTION_TIMEOUT_NS, limits }
    }
}

/// The most there can be of each kind of object. The tables grow as they are filled; the limits keep a runaway program
/// or a hostile peer from filling the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Event queues. One per transfer machine, and two of the engine's own; 65,536.
    pub event_queues: usize,
    /// Match entries; 4 Mi, which are 768 MiB with an MD each.
    pub match_entries: usize,
    /// Memory descriptors; 4 Mi. Those beside a match entry need no memory of their own, the others 192 bytes each.
    pub descriptors: usize,
    /// Messages in flight or queued, both directions; 1 Mi, which are 256 MiB in flight and 512 MiB queued.
    pub messages: usize,
    /// Peers with which messages are exchanged; 131,072, more than the largest clusters have nodes. Idle ones make
    /// room for new ones.
    pub peers: usize,
    /// Messages waiting on lazy portals; 4,096. Each of them stops a connection, so more of them mean that nobody will
    /// ever take them.
    pub delayed: usize,
    /// Nodes with several NIDs that are remembered; 16,384. The oldest makes room for a new one.
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
            delayed: 1 << 12,
            known_nodes: 1 << 14,
        }
    }
}
