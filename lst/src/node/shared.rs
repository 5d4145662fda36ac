//! What the framework, the data services and the units of a node share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use lnet_proto::lst::LstService;
use nix::errno::Errno;

use super::{Config, Count, Counters};

/// The part of a node that all its threads use.
#[derive(Debug)]
pub(super) struct NodeShared {
    pub(super) config: Config,
    pub(super) counters: Counters,
    /// Number of the next PING of all units: one counter per node (lst 7.1).
    pub(super) ping_sequence: AtomicU32,
    /// Whether a test of the session has a server of BRW, and of PING.
    brw_server: AtomicBool,
    ping_server: AtomicBool,
    session_ends: AtomicU64,
    aborts: AtomicU64,
    /// Bytes of all [`MemoryCharge`]s.
    memory_used: AtomicU64,
}

impl NodeShared {
    pub(super) fn new(config: Config) -> NodeShared {
        NodeShared {
            config,
            counters: Counters::default(),
            ping_sequence: AtomicU32::new(0),
            brw_server: AtomicBool::new(false),
            ping_server: AtomicBool::new(false),
            session_ends: AtomicU64::new(0),
            aborts: AtomicU64::new(0),
            memory_used: AtomicU64::new(0),
        }
    }

    fn server(&self, service: LstService) -> &AtomicBool {
        if service == LstService::Brw { &self.brw_server } else { &self.ping_server }
    }

    /// Whether requests of this data service are served.
    pub(super) fn has_server(&self, service: LstService) -> bool {
        self.server(service).load(Ordering::Acquire)
    }

    pub(super) fn add_server(&self, service: LstService) {
        self.server(service).store(true, Ordering::Release);
    }

    /// Number of sessions that have ended.
    pub(super) fn session_ends(&self) -> u64 {
        self.session_ends.load(Ordering::Acquire)
    }

    /// The data services stop, and requests that they serve get no reply.
    pub(super) fn end_session(&self) {
        self.brw_server.store(false, Ordering::Release);
        self.ping_server.store(false, Ordering::Release);
        self.session_ends.fetch_add(1, Ordering::Release);
        self.announce_abort();
    }

    /// Number of aborts of units or of data requests.
    pub(super) fn aborts(&self) -> u64 {
        self.aborts.load(Ordering::Acquire)
    }

    /// Counts a failed operation of LNet.
    pub(super) fn count_failure(&self, lane: usize, errno: Errno) {
        if errno != Errno::ECANCELED {
            self.counters.add(lane, Count::Errors, 1);
        }
    }

    /// Bytes that tests use.
    pub(super) fn memory_used(&self) -> u64 {
        self.memory_used.load(Ordering::Relaxed)
    }

    /// Comes after what it announces.
    pub(super) fn announce_abort(&self) {
        self.aborts.fetch_add(1, Ordering::Release);
    }
}

/// Bytes of [`Config::memory_max`], given back on drop.
#[derive(Debug)]
pub(super) struct MemoryCharge {
    node: Arc<NodeShared>,
    bytes: u64,
}

impl MemoryCharge {
    /// Returns `None` if fewer bytes are left.
    pub(super) fn new(node: &Arc<NodeShared>, bytes: u64) -> Option<MemoryCharge> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= node.config.memory_max);
        let charged = node.memory_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        charged.ok().map(|_| MemoryCharge { node: Arc::clone(node), bytes })
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.node.memory_used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
