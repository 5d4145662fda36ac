//! Settings and limits of a test node.

use std::num::NonZeroUsize;

use crate::pattern::PAGE_SIZE;

/// The time without a framework request after which a session ends, as on kernel nodes.
pub const SESSION_TIMEOUT_NS: u64 = 100_000_000_000;

/// The time after which an RPC of a unit ends without its reply, as on kernel nodes.
pub const RPC_TIMEOUT_NS: u64 = 64_000_000_000;

/// Most bytes that the tests of a node use, running or not, and those of ended sessions until their
/// last unit has ended: two tests of 1,024 transfers of 1 MiB each, the most that a console can ask of
/// one destination. A TEST beyond it gets ENOMEM.
pub const MEMORY_MAX: u64 = (2 << 30) + (64 << 20);

/// Maximum number of batches of a session. An administrator names each batch, so there are few.
pub const BATCHES_MAX: usize = 1024;

/// Most tests of a batch at one node, servers and clients: likewise made one by one.
pub const INSTANCES_MAX: usize = 1024;

/// Bytes charged for a test without its units: the test, its place in its batch, the batch.
pub const INSTANCE_BYTES: u64 = 1024;

/// Bytes charged for a unit without its bulk buffer: the unit, its RPC and its reply buffer, and what
/// LNet needs to receive a reply.
pub const UNIT_BYTES: u64 = 1024;

/// Settings of a test node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The time without a framework request after which a session ends; 0 is never. Replies carry
    /// whole seconds.
    pub session_timeout_ns: u64,
    /// The time after which an RPC of a unit ends without its reply; 0 is never.
    pub rpc_timeout_ns: u64,
    /// Bytes of a page: the unit of [`lnet_proto::lst::Check::SIMPLE`], and of lengths in sessions
    /// without [`lnet_proto::lst::Features::BULK_LENGTH`].
    pub page_size: NonZeroUsize,
    /// Most bytes that tests use; see [`MEMORY_MAX`].
    pub memory_max: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            session_timeout_ns: SESSION_TIMEOUT_NS,
            rpc_timeout_ns: RPC_TIMEOUT_NS,
            page_size: PAGE_SIZE,
            memory_max: MEMORY_MAX,
        }
    }
}
