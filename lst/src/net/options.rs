//! Options of a test node on an LNet node: the consoles that may use it, and its share of the host.

use std::sync::Arc;

use lnet_cpt::CptTable;
use lnet_nid::{Nid, NidList};
use lnet_proto::lst::BULK_MAX;
use nlx_service::{BufferOptions, PoolOptions, ServiceError};

use crate::node::Config;

/// Default of [`TestNodeOptions::buffers_max`]: for 8,192 requests, eight times the most that one
/// client has in flight to one server (concurrency 1,024).
pub const DATA_BUFFERS_MAX: u32 = 128;

/// Default of [`TestNodeOptions::bulk_max`]: 512 MiB, more than the transfers that keep any network
/// busy.
pub const BULK_BUFFERS_MAX: usize = 512;

/// Data requests that one buffer takes.
const DATA_PER_BUFFER: u32 = 64;

/// Request buffers that are always posted if requests do not wait for one: for 1,024 requests, the
/// most that one client sends to one server at once.
const READY_BUFFERS: u32 = 1024 / DATA_PER_BUFFER;

/// Options of a [`TestNode`](super::TestNode).
#[derive(Clone, Debug)]
pub struct TestNodeOptions {
    /// Limits of its sessions and tests.
    pub config: Config,
    /// Nodes whose framework requests are obeyed, by the NID that sends them; `None` obeys all. Others
    /// get EACCES: lst has no authentication, and a console makes a node send any amount of traffic.
    pub consoles: Option<NidList>,
    /// CPU partitions on which it works; empty for all.
    pub cpts: Vec<usize>,
    /// Threads that each of these partitions keeps for data requests and test clients; `None` for 1.
    pub threads_min: Option<u32>,
    /// Most handlers that run there at a time; `None` for two for each core ([`PoolOptions::of`]).
    pub threads_max: Option<u32>,
    /// Most request buffers of PING, and of BRW, in each partition.
    pub buffers_max: u32,
    /// Data requests that one of these takes: 64. Fewer, if a process has many test nodes, most of
    /// which are idle.
    pub requests_per_buffer: u32,
    /// Most bulk buffers of 1 MiB in each partition. A BRW request beyond them gets no reply, as on a
    /// node without memory: peers that offer data and never send them could take all of it.
    pub bulk_max: usize,
    /// Whether a request that finds no buffer waits, as on kernel nodes (lst 2). It can block its
    /// connection, which other programs of the node may share; otherwise it is dropped.
    pub requests_wait: bool,
}

impl Default for TestNodeOptions {
    fn default() -> TestNodeOptions {
        TestNodeOptions {
            config: Config::default(),
            consoles: None,
            cpts: Vec::new(),
            threads_min: None,
            threads_max: None,
            buffers_max: DATA_BUFFERS_MAX,
            requests_per_buffer: DATA_PER_BUFFER,
            bulk_max: BULK_BUFFERS_MAX,
            requests_wait: true,
        }
    }
}

impl TestNodeOptions {
    /// Returns the most memory, in bytes, that bulk and tests take on a node with these CPU partitions.
    #[must_use]
    pub fn memory_max(&self, table: &CptTable) -> u64 {
        let partitions = if self.cpts.is_empty() { table.partitions() } else { self.cpts.len() } as u64;
        let bulk = (self.bulk_max as u64).saturating_mul(BULK_MAX.into()).saturating_mul(partitions);
        self.config.memory_max.saturating_add(bulk)
    }

    /// Returns whether requests of this node are obeyed.
    pub(super) fn obeys(&self, console: Nid) -> bool {
        self.consoles.as_ref().is_none_or(|consoles| consoles.contains(console))
    }

    /// Returns the CPU partitions on which the node works.
    pub(super) fn partitions(&self, table: &CptTable) -> Result<Arc<[usize]>, ServiceError> {
        let all = table.partitions();
        if let Some(&unknown) = self.cpts.iter().find(|cpt| **cpt >= all) {
            let rule = "a CPU partition of the node, which are numbered from 0";
            return Err(ServiceError::Option { name: "cpts", value: unknown as u64, rule });
        }
        Ok(if self.cpts.is_empty() { (0..all).collect() } else { self.cpts.as_slice().into() })
    }

    /// Returns the options of the pool for data requests and test clients.
    pub(super) fn workers(&self, table: &CptTable, cpt: usize) -> PoolOptions {
        let own = PoolOptions::of(table, cpt);
        let threads_min = self.threads_min.unwrap_or(own.threads_min);
        let threads_max = self.threads_max.unwrap_or(own.threads_max.max(threads_min));
        PoolOptions { threads_min, threads_max, ..own }
    }

    /// Returns the options of the request buffers of the data services.
    pub(super) fn data_buffers(&self) -> BufferOptions {
        let buffers_min = if self.requests_wait { 2 } else { READY_BUFFERS.min(self.buffers_max) };
        super::buffers(self.requests_per_buffer, buffers_min, self.buffers_max)
    }
}
