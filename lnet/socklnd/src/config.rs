use lnet_api::MAX_SHARDS;
use lnet_cpt::PartitionMemory;
use lnet_lnd::{BadTunable, Config, HeldLimits};
use lnet_proto::sock::{ConnType, MIN_BULK, PORT, PRIVILEGED_PORT_MAX};

/// Whose connections are accepted (lnet-wire 20, `accept`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptPolicy {
    /// Only from source ports up to 1023: the port proves that root or a kernel opened the connection. Any other
    /// connection is closed without a byte.
    Secure,
    /// From every port. A peer whose port is above 1023 becomes `<its IP address>@net` with PID 0x80000000 | port
    /// (lnet-wire 27), whatever it says of itself: it is answered on that connection alone and never connected to.
    All,
    /// From nobody: no listener at all. This node can only connect out.
    None,
    /// From every port, and the NID and PID of the hello are believed.
    ///
    /// Nothing proves who the peer is: whoever reaches the port can send in any NID's name. For nodes without privileges
    /// on a network whose hosts trust each other.
    Hello,
}

/// The tunables of the TCP LND, with LNet's names and defaults (lnet-semantics 28).
///
/// Some of LNet's have no field, for nothing depends on them here: `nconnds` (there are no threads that connect),
/// `zc_min_payload` and `nonblk_zcack` (this LND copies into the socket and asks for no acknowledgement; those that peers ask
/// for leave on BULK_IN). Others can only be as they are: `typed_conns=1`, for version 3 sends nothing on untyped
/// connections, and `enable_csum=0`, for versions 3 and 4 have no checksums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SockConfig {
    /// The port this node listens on and on which it expects its peers to listen (`accept_port`).
    pub accept_port: u16,
    /// The port of all connections but CONTROL, if it is another (`accept_port_bulk`): this node listens on both, and
    /// expects its peers to.
    pub accept_port_bulk: Option<u16>,
    /// Whose connections are accepted. `None`: [`AcceptPolicy::Hello`] if the port is above 1023, else
    /// [`AcceptPolicy::Secure`].
    pub accept: Option<AcceptPolicy>,
    /// Seconds a peer that connects has for its request and hello (`accept_timeout`).
    pub accept_timeout_s: u32,
    /// Connections that wait to be accepted (`accept_backlog`).
    pub backlog: u16,
    /// Seconds without progress of a send, a receive or an attempt to connect before it fails (`sock_timeout`).
    pub timeout_s: u32,
    /// The first back-off after a failed attempt to connect, in milliseconds.
    pub min_reconnect_ms: u32,
    /// The longest back-off, in milliseconds.
    pub max_reconnect_ms: u32,
    /// Seconds without a word from a peer before it is sent a keepalive; 0 for none.
    pub keepalive_s: u32,
    /// TCP's own keepalive: seconds of silence before the first probe; 0 for none.
    pub keepalive_idle_s: u32,
    /// TCP's own keepalive: probes without an answer before the connection breaks.
    pub keepalive_count: u32,
    /// TCP's own keepalive: seconds between probes.
    pub keepalive_intvl_s: u32,
    /// Messages of at least this many bytes, prefix and header included, go on a bulk connection.
    pub min_bulk: u32,
    /// Which of several connections takes a message that suits all of them and of which none has less to send: the one
    /// used least recently (`round_robin`), or the one that stood first.
    pub round_robin: bool,
    /// On which connections TCP acknowledges at once what has come, instead of with the next answer (`eager_ack`): bit *n* for
    /// type *n*, which is 2 for CONTROL, 4 for BULK_IN, 8 for BULK_OUT. It costs a system call per receive.
    pub eager_ack: u32,
    /// Connections of each bulk type to a peer (S-208).
    pub conns_per_peer: u8,
    /// CPU partitions of the node: there is a shard for each.
    pub partitions: usize,
    /// Their memory: what a shard has lies near its partition (S-305).
    pub memory: PartitionMemory,
    /// The most shards per partition; a further one comes with each hardware interface beyond the first (`nscheds`, S-203,
    /// S-312). 0 counts as 1; a node chooses by its cores instead.
    pub nscheds: usize,
    /// Connections that are being opened at a time (`nconnds_max`); peers beyond that queue.
    pub nconnds_max: u16,
    /// Messages in flight over an NI, all peers together.
    pub credits: u32,
    /// Messages in flight to one peer.
    pub peer_credits: u32,
    /// Whether small segments wait for each other (Nagle's algorithm).
    pub nagle: bool,
    /// The socket's send buffer in bytes; 0 leaves it to the system.
    pub tx_buffer_size: u32,
    /// The socket's receive buffer in bytes; 0 leaves it to the system.
    pub rx_buffer_size: u32,
    /// The type of service of each connection, or traffic class (`tos`); `None` (LNet's -1) leaves it to the system.
    pub tos: Option<u8>,
    /// The congestion control of each connection (TCP_CONGESTION); `None` leaves it to the system.
    pub congestion_control: Option<String>,
    /// How long each poll of the sockets busy-polls their network cards, in microseconds (`EPIOCSPARAMS`, Linux 6.9); 0 waits for their
    /// interrupts. No effect on loopback.
    pub epoll_busy_poll_us: u32,
    /// How much of what waits on lazy portals is taken into memory (`held_peer_kb`, `held_kb`, `held_full`).
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
    type OfNi = NiConfig;

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
    /// The policy in force.
    #[must_use]
    pub fn accept_policy(&self) -> AcceptPolicy {
        match self.accept {
            Some(policy) => policy,
            None if self.accept_port > PRIVILEGED_PORT_MAX => AcceptPolicy::Hello,
            None => AcceptPolicy::Secure,
        }
    }

    /// The ports to listen on.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        [Some(self.accept_port), self.accept_port_bulk.filter(|port| *port != self.accept_port)]
            .into_iter()
            .flatten()
    }

    /// The port that a peer's connections of this type go to.
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

/// The tunables that each NI may have otherwise than the LND's [`SockConfig`] (what `lnetctl net set` and `lnet.conf` call
/// `tunables` and `lnd tunables`). To be given to [`SockLnd::configure`](crate::SockLnd::configure) before the NI starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NiConfig {
    /// Messages in flight over the NI, all peers together.
    pub credits: u32,
    /// Messages in flight to one peer.
    pub peer_credits: u32,
    /// Connections of each bulk type to a peer (S-208).
    pub conns_per_peer: u8,
    /// Seconds without progress of a send, a receive or an attempt to connect before it fails (`timeout`).
    pub timeout_s: u32,
    /// The type of service, or traffic class, of the NI's connections; `None` (LNet's -1) leaves it to the system.
    pub tos: Option<u8>,
}

impl NiConfig {
    pub(crate) fn timeout_ns(&self) -> u64 {
        u64::from(self.timeout_s) * NS_PER_S
    }
}

/// What an NI has that says nothing of its own.
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
