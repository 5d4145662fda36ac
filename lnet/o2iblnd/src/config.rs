//! The tunables of the verbs LND and of its NIs.

use lnet_api::MAX_SHARDS;

use crate::fabric::ConnectOptions;
use crate::sizes::Tunables;
use lnet_cpt::PartitionMemory;
use lnet_lnd::{BadTunable, Config, HeldLimits};

pub(crate) const NS_PER_S: u64 = 1_000_000_000;

/// The default of `timeout`, in seconds (lnet-semantics 29).
pub const TIMEOUT_S: u32 = 50;

/// The tunables of the verbs LND as they are configured, with LNet's names and defaults
/// (lnet-semantics 29). The values in effect are computed from them when an NI starts.
///
/// Some of LNet's tunables have no field, as nothing depends on them here: `ntx` (each connection
/// has its own message buffers, whose number follows from its depth), `ipif_name` (networks name
/// their interfaces), `ib_mtu` (the connection manager uses the path's), `fmr_pool_size`,
/// `fmr_flush_trigger` and `fmr_cache` (memory is registered once, not for each transfer),
/// `use_fastreg_gaps` (such memory may have gaps), `map_on_demand` (obsolete in LNet, S-502),
/// `dev_failover`, and the routers' `peer_buffer_credits` and `peer_timeout`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct O2ibConfig {
    /// The port of the connection manager on which this node listens and to which it connects
    /// (`service`).
    pub service: u16,
    /// True if own messages carry a checksum, and those of received messages are verified if they
    /// carry one (`cksum`). Kernels disagree on the sum (lnet-wire 32): off by default.
    pub cksum: bool,
    /// Seconds that a message may wait, be in flight, or wait for its completion before its
    /// connection is closed (`timeout`); 0, for which kernel nodes use LNet's own timeout, means
    /// [`TIMEOUT_S`].
    pub timeout_s: u32,
    /// The maximum number of shards per CPU partition; each hardware interface beyond the first
    /// adds one (`nscheds`, S-312). 0 counts as 1; a node chooses by its cores instead.
    pub nscheds: usize,
    /// Connections to a peer that this node opens (`conns_per_peer`).
    pub conns_per_peer: u8,
    /// Messages in flight over an NI, all peers together (`credits`).
    pub credits: u32,
    /// Messages in flight to one peer, and the depth of its queues (`peer_credits`).
    pub peer_credits: u32,
    /// The number of owed credits at which they are returned in a NOOP (`peer_credits_hiw`). The
    /// value in effect is always half of `peer_credits`.
    pub peer_credits_hiw: u32,
    /// Sends that may be posted at a time on a connection (`concurrent_sends`); 0 means
    /// `peer_credits`.
    pub concurrent_sends: u32,
    /// Retries of the device for lost packets (`retry_count`).
    pub retry_count: u8,
    /// Retries of the device for a peer without receive buffers (`rnr_retry_count`).
    pub rnr_retry_count: u8,
    /// Seconds without a message to a peer after which a NOOP is sent (`keepalive`).
    pub keepalive_s: u32,
    /// True if peers must connect from a port below 1024 (`require_privileged_port`).
    pub require_privileged_port: bool,
    /// True if this node connects from such a port (`use_privileged_port`). Without the permission,
    /// it uses any port.
    pub use_privileged_port: bool,
    /// Pieces of memory per work request (`wrq_sge`), limited by the device and by
    /// [`PIECES_MAX`](crate::sizes::PIECES_MAX).
    pub wrq_sge: u32,
    /// The type of service (`tos`); `None` (LNet's -1) means the system's default.
    pub tos: Option<u8>,
    /// CPU partitions of the node, each with a shard.
    pub partitions: usize,
    /// The partitions' memory: a shard's data lies near its partition (S-305).
    pub memory: PartitionMemory,
    /// True if peers may connect. A node that only sends requests needs no port to listen on; LNet
    /// has no such tunable.
    pub listens: bool,
    /// Limits on messages on lazy portals that are taken into memory (`held_peer_kb`, `held_kb`,
    /// `held_full`).
    pub held: HeldLimits,
}

impl Default for O2ibConfig {
    fn default() -> O2ibConfig {
        O2ibConfig {
            service: lnet_proto::ib::SERVICE,
            cksum: false,
            timeout_s: TIMEOUT_S,
            nscheds: 0,
            conns_per_peer: 1,
            credits: 256,
            peer_credits: 8,
            peer_credits_hiw: 0,
            concurrent_sends: 0,
            retry_count: 5,
            rnr_retry_count: 6,
            keepalive_s: 100,
            require_privileged_port: false,
            use_privileged_port: true,
            wrq_sge: 2,
            tos: None,
            partitions: 1,
            memory: PartitionMemory::default(),
            listens: true,
            held: HeldLimits::default(),
        }
    }
}

impl Config for O2ibConfig {
    type NiConfig = NiConfig;

    fn of(&self, ni: &NiConfig) -> O2ibConfig {
        let NiConfig {
            credits,
            peer_credits,
            peer_credits_hiw,
            concurrent_sends,
            conns_per_peer,
            timeout_s,
            tos,
        } = *ni;
        O2ibConfig {
            credits,
            peer_credits,
            peer_credits_hiw,
            concurrent_sends,
            conns_per_peer,
            timeout_s,
            tos,
            ..self.clone()
        }
    }

    fn shards(&self) -> (usize, usize) {
        (self.partitions, self.nscheds)
    }

    fn memory(&self) -> &PartitionMemory {
        &self.memory
    }

    fn check(&self) -> Result<(), BadTunable> {
        let refuse = |field, value: u32, rule: &str| Err(BadTunable::new(field, value, rule));
        match self {
            config if config.service == 0 => refuse("service", 0, "a port of 1 to 65535"),
            config if !(1..=MAX_SHARDS).contains(&config.partitions) => {
                refuse("partitions", config.partitions.try_into().unwrap_or(u32::MAX), "from 1 to 64")
            }
            config if config.retry_count > 7 => {
                refuse("retry_count", config.retry_count.into(), "from 0 to 7")
            }
            config if config.rnr_retry_count > 7 => {
                refuse("rnr_retry_count", config.rnr_retry_count.into(), "from 0 to 7")
            }
            config => Tunables::from(config).check(),
        }
    }

    fn held(&self) -> HeldLimits {
        self.held
    }

    fn conns_per_peer(ni: &mut NiConfig) -> &mut u8 {
        &mut ni.conns_per_peer
    }
}

impl O2ibConfig {
    /// Returns the options of a connection for the connection manager.
    pub(crate) fn connect_options(&self) -> ConnectOptions {
        let O2ibConfig { retry_count, rnr_retry_count, .. } = *self;
        ConnectOptions { retry_count, rnr_retry_count }
    }

    pub(crate) fn keepalive_ns(&self) -> u64 {
        match self.keepalive_s {
            0 => u64::MAX,
            seconds => u64::from(seconds) * NS_PER_S,
        }
    }
}

/// The tunables that an NI may set differently from the LND's [`O2ibConfig`] (`tunables` and `lnd
/// tunables` of `lnetctl net set` and `lnet.conf`). Pass them to
/// [`O2ibLnd::configure`](crate::O2ibLnd::configure) before the NI starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NiConfig {
    /// Messages in flight over the NI, all peers together.
    pub credits: u32,
    /// Messages in flight to one peer, and the depth of its queues.
    pub peer_credits: u32,
    /// The number of owed credits at which they are returned in a NOOP (`peer_credits_hiw`). The
    /// value in effect is always half of `peer_credits`.
    pub peer_credits_hiw: u32,
    /// Sends that may be posted at a time on a connection; 0 means `peer_credits`.
    pub concurrent_sends: u32,
    /// Connections to a peer that this node opens.
    pub conns_per_peer: u8,
    /// Seconds that a message may take, waiting included (`timeout`); 0 means [`TIMEOUT_S`].
    pub timeout_s: u32,
    /// The type of service; `None` (LNet's -1) means the system's default.
    pub tos: Option<u8>,
}

impl NiConfig {
    pub(crate) fn timeout_ns(&self) -> u64 {
        let seconds = if self.timeout_s == 0 { TIMEOUT_S } else { self.timeout_s };
        u64::from(seconds) * NS_PER_S
    }
}

/// The tunables of an NI that sets none.
impl From<&O2ibConfig> for NiConfig {
    fn from(config: &O2ibConfig) -> NiConfig {
        let O2ibConfig {
            credits,
            peer_credits,
            peer_credits_hiw,
            concurrent_sends,
            conns_per_peer,
            timeout_s,
            tos,
            ..
        } = *config;
        NiConfig { credits, peer_credits, peer_credits_hiw, concurrent_sends, conns_per_peer, timeout_s, tos }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// lnet-wire 38: 0 is the default of kernel nodes of 2.14 and 2.15, whose configurations must
    /// also be readable.
    #[test]
    fn no_timeout_is_the_default_one() {
        let unset = O2ibConfig { timeout_s: 0, ..O2ibConfig::default() };
        assert_eq!(unset.check(), Ok(()));
        let ns = |config: &O2ibConfig| NiConfig::from(config).timeout_ns();
        assert_eq!(ns(&unset), ns(&O2ibConfig::default()));
        assert_eq!(ns(&O2ibConfig { timeout_s: 1, ..unset }), NS_PER_S);
    }
}
