use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use lnet_api::{Errno, LNetError};
use lnet_nid::{Net, NetType, Nid};
use lnet_socklnd::{AcceptPolicy, HeldLimits, Sock, SockConfig, SockLnd};

use super::behaviour::{TcpBehaviour, TcpFault};
use super::state::TcpWire;
use super::world::{MISBEHAVING, TcpWorldData};
use super::{SimHost, TcpNet};
use crate::Rng;
use crate::kit::{NodeScenario, Transport, World};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// The maximum payload once operations must succeed: enough for all types of connections.
const LONGEST_AT_END: usize = 5_000;

/// The limit for a TCP buffer that is filled at the end.
const SMALL_BUFFER: usize = 64 << 10;

/// The ports that nodes use, and the connections that they accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpPolicy {
    /// Port 988, and privileged source ports only, as with kernel nodes.
    Secure,
    /// Port 988. Nodes that may listen on it accept connections from any port; the others accept
    /// none.
    Mixed,
    /// A port that needs no privileges; the identities in hellos are accepted.
    Hello,
}

/// Everything that a run of TCP nodes depends on.
pub type TcpScenario = NodeScenario<Tcp>;

/// The part of a scenario that only TCP nodes have.
#[derive(Debug, Clone)]
pub struct Tcp {
    /// The behaviour of the TCP network.
    pub behaviour: TcpBehaviour,
    /// The policy for connections between nodes.
    pub policy: TcpPolicy,
    /// True if addresses are IPv6.
    pub large_nids: bool,
    /// The tunables of every node, except `accept`.
    pub config: SockConfig,
    /// An expectation to be made wrong, to test that it is checked.
    pub mutant: Option<TcpMutant>,
}

/// An expectation that is made wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpMutant {
    /// The limit for connections of a type is lower.
    FewerConnections,
    /// Back-off is longer than documented.
    LongerBackoff,
    /// No node restarts: its incarnation never changes.
    OneIncarnation,
}

impl TcpScenario {
    /// Returns the scenario on a faulty network.
    #[must_use]
    pub fn with_fault(mut self, fault: TcpFault) -> TcpScenario {
        self.transport.behaviour.fault = Some(fault);
        self
    }

    /// Returns the scenario with a wrong expectation.
    #[must_use]
    pub fn with_mutant(mut self, mutant: TcpMutant) -> TcpScenario {
        self.transport.mutant = Some(mutant);
        self
    }
}

impl Tcp {
    /// Returns the size of the smaller buffer of a connection.
    fn buffer(&self) -> usize {
        self.behaviour.send_buffer.min(self.behaviour.receive_buffer)
    }
}

impl Transport for Tcp {
    type Wire = TcpWire;
    type Protocol = Sock;
    type WorldData = TcpWorldData;

    const COMMAND: &str = "tcp ";
    const SALT: u64 = 0x7c9;
    const STEPS: u64 = 300;
    const NIS: [usize; 3] = [1, 1, 2];
    const TRANSACTION_TIMEOUTS_NS: [u64; 2] = [5 * S, 150 * S];
    /// Sizes just below and above `min_bulk`, with headers of both forms, and the LND's buffers,
    /// and LNet's maximum.
    const SIZES: &[usize] = &[0, 1, 95, 903, 904, 927, 928, 4_096, 8_191, 65_537, 300_000, 1 << 20];
    const USUAL_SIZES: usize = 8;
    /// One message of this length fills a small TCP buffer.
    const FILLING: u32 = 2_500;
    const BURST_MAX: u32 = 10;
    const ERRNOS: &[Errno] =
        &[Errno::EPIPE, Errno::EPROTO, Errno::EMFILE, Errno::EADDRNOTAVAIL, Errno::EALREADY];
    /// A listener may fail because no descriptor is left.
    const NI_ERRNOS: &[Errno] = &[Errno::EMFILE];
    const REST_NS: u64 = 0;
    const POLL_NS: u64 = 20_000;
    const BUSY_POLLS_MAX: u32 = 300_000;
    const IDLE_POLLS_PER_S: u64 = 4;
    const UNSENT_IS_LOST: bool = true;
    const SENT_WHILE_HELD: bool = true;

    fn from_rng(rng: &mut Rng, _: usize, partitions: usize) -> Tcp {
        let behaviour = TcpBehaviour::from_rng(rng);
        let policy = rng.pick(&[TcpPolicy::Secure, TcpPolicy::Secure, TcpPolicy::Mixed, TcpPolicy::Hello]);
        let peer_credits = rng.pick(&[1, 8, 8, 32]);
        let config = SockConfig {
            partitions,
            nscheds: rng.pick(&[1, 2]),
            accept_port: if policy == TcpPolicy::Hello { 7_988 } else { 988 },
            backlog: rng.pick(&[0, 4, 127]),
            timeout_s: rng.pick(&[50, 50, 10]),
            conns_per_peer: rng.pick(&[1, 1, 1, 2, 4]),
            credits: peer_credits * rng.pick(&[1, 8]),
            peer_credits,
            held: HeldLimits {
                peer_kb: rng.pick(&[2048, 40, 0]),
                drop_beyond: rng.chance(3_000),
                ..HeldLimits::default()
            },
            ..SockConfig::default()
        };
        let large_nids = policy != TcpPolicy::Mixed && rng.chance(2_000);
        Tcp { behaviour, policy, large_nids, config, mutant: None }
    }

    fn behaviour(&self) -> &TcpBehaviour {
        &self.behaviour
    }

    fn longest(&self, _: &mut Rng) -> usize {
        let by_segment = if self.behaviour.segment.1 < 1_000 { 20_000 } else { 1 << 20 };
        by_segment.min(if self.buffer() < 8 << 10 { 100_000 } else { 1 << 20 })
    }

    /// Returns twice the size of a small TCP buffer, so that senders must wait for room; a large
    /// one takes too long to fill.
    fn longest_at_end(&self) -> usize {
        let buffer = self.buffer();
        if buffer <= SMALL_BUFFER { (2 * buffer).max(LONGEST_AT_END) } else { LONGEST_AT_END }
    }

    fn nid(&self, node: usize, ni: usize) -> Nid {
        // The order of the nodes' NIDs differs from that of their indexes, because the higher NID
        // wins a race.
        let last = [7, 3, 9, 5][node % 4];
        let net = Net::new(NetType::TCP, ni as u16);
        match self.large_nids {
            true => Nid::new_v6(net, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, ni as u16, last)),
            false => Nid::new_v4(net, Ipv4Addr::new(10, 77, ni as u8, last as u8)),
        }
    }

    fn is_privileged(&self, node: usize) -> bool {
        match self.policy {
            TcpPolicy::Secure => true,
            TcpPolicy::Mixed => node == 0,
            TcpPolicy::Hello => node.is_multiple_of(2),
        }
    }

    fn is_reached(&self, node: usize) -> bool {
        self.policy != TcpPolicy::Mixed || self.is_privileged(node)
    }

    fn world_data(&self, net: &TcpNet) -> TcpWorldData {
        let ms = |ms: u32| u64::from(ms) * MS;
        let longer = if self.mutant == Some(TcpMutant::LongerBackoff) { 2 } else { 1 };
        let SockConfig { min_reconnect_ms, max_reconnect_ms, .. } = self.config;
        net.expect_backoff(Some((ms(min_reconnect_ms) * longer, ms(max_reconnect_ms))));
        TcpWorldData { host: net.add_host(vec![MISBEHAVING], true), misbehaving: Vec::new() }
    }

    fn lnd(&self, node: usize, host: SimHost) -> Result<Arc<SockLnd>, LNetError> {
        let accept = match self.policy {
            TcpPolicy::Secure | TcpPolicy::Hello => None,
            TcpPolicy::Mixed if self.is_privileged(node) => Some(AcceptPolicy::All),
            TcpPolicy::Mixed => Some(AcceptPolicy::None),
        };
        let config = SockConfig { accept, ..self.config.clone() };
        Ok(Arc::new(SockLnd::over(config, Arc::new(host))?))
    }

    fn losses(lnd: &SockLnd) -> u64 {
        lnd.counters().rx.peers_lost
    }

    fn dropped_beyond(lnd: &SockLnd) -> u64 {
        lnd.counters().rx.held_dropped
    }

    fn conns_and_credits(&self, _: usize) -> (u8, usize) {
        (self.config.conns_per_peer, self.config.credits as usize)
    }

    fn timeout_ns(&self) -> u64 {
        u64::from(self.config.timeout_s) * S
    }

    /// Returns the limit for the wait for a connection, the time on it, and the answer.
    fn end_ns(&self) -> u64 {
        3 * self.timeout_ns() + 10 * S
    }

    /// Returns the limit for the longest back-off, and the time to notice that a connection is
    /// dead.
    fn reach_ns(&self) -> u64 {
        let backoff_ns = u64::from(self.config.max_reconnect_ms) * MS;
        backoff_ns + 2 * self.timeout_ns() + self.timeout_ns() / 4 + 10 * S
    }

    fn make_trouble(world: &mut World<Tcp>, node: usize) -> Result<(), String> {
        match world.rng.below(4) {
            0 | 1 => world.squeeze(node),
            _ => world.visit(node),
        }
    }

    fn end_trouble(world: &mut World<Tcp>, node: usize) {
        world.net.limit_descriptors(world.nodes[node].host, usize::MAX);
    }

    fn heal(world: &mut World<Tcp>) {
        world.own.misbehaving.clear();
    }

    fn ni_removed(world: &mut World<Tcp>, nid: Nid) {
        nid.ip().into_iter().for_each(|ip| world.net.forget(ip));
    }

    fn time_passed(world: &mut World<Tcp>, now_ns: u64) {
        world.own.misbehaving.retain(|conn| conn.until_ns > now_ns);
    }

    fn audit(world: &World<Tcp>, node: usize) -> Result<(), String> {
        world.check_bounds(node)
    }

    fn check_ended(world: &mut World<Tcp>, node: usize, killed: bool) -> Result<(), String> {
        world.seen.network.keepalives += world.nodes[node].lnd.counters().tx.keepalives;
        world.check_counters(node, killed)
    }

    fn check_settled(world: &mut World<Tcp>) -> Result<(), String> {
        world.both_sides_agree()
    }

    fn check_given_back(world: &World<Tcp>, node: usize) -> Result<(), String> {
        match world.net.descriptors(world.nodes[node].host) {
            0 => Ok(()),
            open => Err(format!("node {node} has no NI, but {open} sockets")),
        }
    }
}
