//! The tunables of the TCP LND and of its NIs.

use lnet_api::MAX_SHARDS;
use lnet_cpt::PartitionMemory;
use lnet_lnd::{BadTunable, Config, HeldLimits};
use lnet_proto::sock::{ConnType, MIN_BULK, PORT, PRIVILEGED_PORT_MAX};

/// The policy for accepting connections (lnet-wire 20, `accept`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptPolicy {
    /// Only from source ports up to 1023: such a port proves that root or a kernel opened the
    /// connection. All other connections are closed without sending a byte.
    Secure,
    /// From every port. A peer with a port above 1023 becomes `<its IP address>@net` with PID
    /// 0x80000000 | port (lnet-wire 27), whatever its hello claims: it gets answers on that
    /// connection only, and this node never connects to it.
    All,
    /// No connections: no listener is opened. This node can only connect out.
    None,
    /// From every port, with the NID and PID in the hello believed.
    ///
    /// Nothing proves the peer's identity: any host that reaches the port can send under any NID.
    /// For nodes without privileges on a network of hosts that trust each other.
    Hello,
}

/// The tunables of the TCP LND, with LNet's names and defaults (lnet-semantics 28).
///
/// Some of LNet's tunables have no field, because nothing depends on them here: `nconnds` (there
/// are no connecting threads), `zc_min_payload` and `nonblk_zcack` (this LND copies into the socket
/// and requests no acknowledgement; those that peers request leave on BULK_IN). Others have a fixed
/// value: `typed_conns=1`, because version 3 sends nothing on untyped connections, and
/// `enable_csum=0`, because versions 3 and 4 have no checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SockConfig {
    /// The port this node listens on and on which it expects its peers to listen (`accept_port`).
    pub accept_port: u16,
    /// The port of all connections except CONTROL, if different (`accept_port_bulk`): this node
    /// listens on both ports, and expects its peers to do so.
    pub accept_port_bulk: Option<u16>,
    /// The accept policy. `None`: [`AcceptPolicy::Hello`] if the port is above 1023, otherwise
    /// [`AcceptPolicy::Secure`].
    pub accept: Option<AcceptPolicy>,
    /// Time limit for the request and the hello of a connecting peer, in seconds
    /// (`accept_timeout`).
    pub accept_timeout_s: u32,
    /// The length of the listen queue (`accept_backlog`).
    pub backlog: u16,
    /// Seconds without progress of a send, a receive or a connection attempt before it fails
    /// (`sock_timeout`).
    pub timeout_s: u32,
    /// The first back-off after a failed connection attempt, in milliseconds.
    pub min_reconnect_ms: u32,
    /// The longest back-off, in milliseconds.
    pub max_reconnect_ms: u32,
    /// Seconds of silence from a peer before this node sends a keepalive; 0 disables keepalives.
    pub keepalive_s: u32,
    /// TCP's own keepalive: seconds of silence before the first probe; 0 disables it.
    pub keepalive_idle_s: u32,
    /// TCP's own keepalive: unanswered probes before the connection breaks.
    pub keepalive_count: u32,
    /// TCP's own keepalive: seconds between probes.
    pub keepalive_intvl_s: u32,
    /// Messages of at least this many bytes, prefix and header included, use a bulk connection.
    pub min_bulk: u32,
    /// Tie-break between connections that suit a message equally and have the same number of queued
    /// bytes: the least recently used one (`round_robin`), or the first one.
    pub round_robin: bool,
    /// The connections on which TCP acknowledges received data at once instead of with the next
    /// answer (`eager_ack`): bit *n* for type *n*, which is 2 for CONTROL, 4 for BULK_IN, 8 for
    /// BULK_OUT. Costs a system call per receive.
    pub eager_ack: u32,
    /// Connections of each bulk type to a peer (S-208).
    pub conns_per_peer: u8,
    /// CPU partitions of the node, with one shard or more each (see `nscheds`).
    pub partitions: usize,
    /// The memory of the partitions: a shard's state is allocated near its partition (S-305).
    pub memory: PartitionMemory,
    /// The maximum number of shards per partition; each hardware interface beyond the first adds a
    /// shard (`nscheds`, S-203, S-312). 0 counts as 1; a node replaces it by a number that depends
    /// on its cores.
    pub nscheds: usize,
    /// The maximum number of simultaneous connection attempts (`nconnds_max`); further peers queue.
    pub nconnds_max: u16,
    /// The maximum number of messages in flight over an NI, all peers together.
    pub credits: u32,
    /// The maximum number of messages in flight to one peer.
    pub peer_credits: u32,
    /// The maximum number of connections accepted from one address. A peer has three, or nine with
    /// four per type; many user-space nodes on one host share its address.
    pub conns_of_address: usize,
    /// True if TCP delays small segments to combine them (Nagle's algorithm).
    pub nagle: bool,
    /// The socket's send buffer in bytes; 0 keeps the system's default.
    pub tx_buffer_size: u32,
    /// The socket's receive buffer in bytes; 0 keeps the system's default.
    pub rx_buffer_size: u32,
    /// The type of service of each connection, or traffic class (`tos`); `None` (LNet's -1) keeps
    /// the system's default.
    pub tos: Option<u8>,
    /// The congestion control of each connection (TCP_CONGESTION); `None` keeps the system's
    /// default.
    pub congestion_control: Option<String>,
    /// The time for which each poll of the sockets busy-polls their network cards, in microseconds
    /// (`EPIOCSPARAMS`, Linux 6.9); 0 relies on interrupts. No effect on loopback.
    pub epoll_busy_poll_us: u32,
    /// The memory limits for messages that wait on lazy portals (`held_peer_kb`, `held_kb`,
    /// `held_full`).
    pub held: HeldLimits,
}

impl Default for SockConfig {
    fn default() -> SockConfig {
        SockConfig {
            accept_port: PORT,
            accept_port_bulk: None,
            accept: None,
            accept_timeout_s: 5,
            backlog: 127,
            timeout_s: 50,
            min_reconnect_ms: 1000,
            max_reconnect_ms: 60_000,
            keepalive_s: 30,
            keepalive_idle_s: 30,
            keepalive_count: 5,
            keepalive_intvl_s: 5,
            min_bulk: MIN_BULK as u32,
            round_robin: true,
            eager_ack: 0,
            conns_per_peer: 1,
            partitions: 1,
            memory: PartitionMemory::default(),
            nscheds: 0,
            nconnds_max: 64,
            credits: 256,
            peer_credits: 8,
            conns_of_address: 1024,
            nagle: false,
            tx_buffer_size: 0,
            rx_buffer_size: 0,
            tos: None,
            congestion_control: None,
            epoll_busy_poll_us: 0,
            held: HeldLimits::default(),
        }
    }
}

impl Config for SockConfig {
    type NiConfig = NiConfig;

    fn of(&self, ni: &NiConfig) -> SockConfig {
        let NiConfig { credits, peer_credits, conns_per_peer, timeout_s, tos } = *ni;
        SockConfig { credits, peer_credits, conns_per_peer, timeout_s, tos, ..self.clone() }
    }

    fn held(&self) -> HeldLimits {
        self.held
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
            config if config.accept_port == 0 => refuse("accept_port", 0, "a port of 1 to 65535"),
            config if config.accept_timeout_s == 0 => refuse("accept_timeout", 0, "at least 1 s"),
            config if config.min_reconnect_ms == 0 => refuse("min_reconnectms", 0, "at least 1 ms"),
            config if config.max_reconnect_ms < config.min_reconnect_ms => {
                let rule = format!("at least min_reconnectms, {} ms", config.min_reconnect_ms);
                refuse("max_reconnectms", config.max_reconnect_ms, &rule)
            }
            config if !(1..=MAX_SHARDS).contains(&config.partitions) => {
                refuse("partitions", config.partitions.try_into().unwrap_or(u32::MAX), "from 1 to 64")
            }
            config if config.nconnds_max == 0 => refuse("nconnds_max", 0, "at least 1"),
            config if config.accept_port_bulk == Some(0) => {
                refuse("accept_port_bulk", 0, "a port of 1 to 65535")
            }
            config if config.timeout_s == 0 => refuse("sock_timeout", 0, "at least 1 s"),
            config if config.conns_per_peer == 0 => refuse("conns_per_peer", 0, "at least 1"),
            config if config.credits == 0 => refuse("credits", 0, "at least 1"),
            config if config.peer_credits == 0 || config.peer_credits > config.credits => {
                refuse("peer_credits", config.peer_credits, &format!("from 1 to credits, {}", config.credits))
            }
            _ => Ok(()),
        }
    }

    fn conns_per_peer(ni: &mut NiConfig) -> &mut u8 {
        &mut ni.conns_per_peer
    }
}

impl SockConfig {
    /// Returns the accept policy in force: the configured one, or the default that depends on the
    /// port.
    #[must_use]
    pub fn accept_policy(&self) -> AcceptPolicy {
        match self.accept {
            Some(policy) => policy,
            None if self.accept_port > PRIVILEGED_PORT_MAX => AcceptPolicy::Hello,
            None => AcceptPolicy::Secure,
        }
    }

    /// Returns the ports on which this node listens.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        [Some(self.accept_port), self.accept_port_bulk.filter(|port| *port != self.accept_port)]
            .into_iter()
            .flatten()
    }

    /// Returns the remote port for connections of this type.
    pub(crate) fn port_for(&self, conn_type: ConnType) -> u16 {
        match conn_type {
            ConnType::Control => self.accept_port,
            _ => self.accept_port_bulk.unwrap_or(self.accept_port),
        }
    }

    pub(crate) fn accept_timeout_ns(&self) -> u64 {
        u64::from(self.accept_timeout_s) * NS_PER_S
    }

    pub(crate) fn min_reconnect_ns(&self) -> u64 {
        u64::from(self.min_reconnect_ms) * NS_PER_MS
    }

    pub(crate) fn keepalive_ns(&self) -> Option<u64> {
        (self.keepalive_s > 0).then(|| u64::from(self.keepalive_s) * NS_PER_S)
    }
}

/// The tunables in which an NI may differ from the LND's [`SockConfig`] (`tunables` and `lnd
/// tunables` of `lnetctl net set` and `lnet.conf`). Pass them to
/// [`SockLnd::configure`](crate::SockLnd::configure) before the NI starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NiConfig {
    /// The maximum number of messages in flight over the NI, all peers together.
    pub credits: u32,
    /// The maximum number of messages in flight to one peer.
    pub peer_credits: u32,
    /// Connections of each bulk type to a peer (S-208).
    pub conns_per_peer: u8,
    /// Seconds without progress of a send, a receive or a connection attempt before it fails
    /// (`timeout`).
    pub timeout_s: u32,
    /// The type of service, or traffic class, of the NI's connections; `None` (LNet's -1) keeps the
    /// system's default.
    pub tos: Option<u8>,
}

impl NiConfig {
    pub(crate) fn timeout_ns(&self) -> u64 {
        u64::from(self.timeout_s) * NS_PER_S
    }
}

/// The defaults of an NI without its own tunables.
impl From<&SockConfig> for NiConfig {
    fn from(config: &SockConfig) -> NiConfig {
        let SockConfig { credits, peer_credits, conns_per_peer, timeout_s, tos, .. } = *config;
        NiConfig { credits, peer_credits, conns_per_peer, timeout_s, tos }
    }
}

pub(crate) const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_follows_from_the_port_unless_it_is_given() {
        let config = |accept_port, accept| SockConfig { accept_port, accept, ..SockConfig::default() };
        assert_eq!(config(988, None).accept_policy(), AcceptPolicy::Secure);
        assert_eq!(config(1023, None).accept_policy(), AcceptPolicy::Secure);
        assert_eq!(config(1024, None).accept_policy(), AcceptPolicy::Hello);
        assert_eq!(config(1024, Some(AcceptPolicy::None)).accept_policy(), AcceptPolicy::None);
    }

    #[test]
    fn values_that_cannot_be_are_refused_by_name() {
        type Change = fn(&mut SockConfig);
        let table: [(&str, Change); 6] = [
            ("accept_port", |config| config.accept_port = 0),
            ("sock_timeout", |config| config.timeout_s = 0),
            ("max_reconnectms", |config| config.max_reconnect_ms = 999),
            ("conns_per_peer", |config| config.conns_per_peer = 0),
            ("peer_credits", |config| config.peer_credits = 257),
            ("credits", |config| config.credits = 0),
        ];
        for (field, change) in table {
            let mut config = SockConfig::default();
            assert_eq!(config.check(), Ok(()));
            change(&mut config);
            let error = config.check().expect_err(field);
            assert!(error.to_string().starts_with(field), "{error}");
        }
    }
}
