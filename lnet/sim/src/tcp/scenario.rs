use std::net::{Ipv4Addr, Ipv6Addr};

use lnet_nid::{Net, NetType, Nid};
use lnet_socklnd::{AcceptPolicy, SockConfig};

use super::habits::{TcpFault, TcpHabits};
use crate::Rng;
use crate::kit::NodeScenario;

/// Steps of a run if nothing else is said.
pub const DEFAULT_TCP_STEPS: u64 = 300;

/// What is sent when nothing may fail any more: enough for all kinds of connections.
const LONGEST_AT_END: usize = 5_000;

/// A buffer of TCP that is soon full.
const SMALL_BUFFER: usize = 64 << 10;

/// Who may connect to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpPolicy {
    /// Port 988, privileged ports only: what kernel nodes do.
    Secure,
    /// Port 988; nodes that may listen there accept everybody, the others nobody.
    Mixed,
    /// A port that needs no privileges, and hellos are believed.
    Hello,
}

/// Everything that a run of TCP nodes depends on.
pub type TcpScenario = NodeScenario<Tcp>;

/// What a scenario of TCP nodes has beside what all have.
#[derive(Debug, Clone)]
pub struct Tcp {
    /// The network.
    pub habits: TcpHabits,
    /// Who may connect to whom.
    pub policy: TcpPolicy,
    /// Whether addresses are IPv6.
    pub large_nids: bool,
    /// The tunables of every node, `accept` aside.
    pub config: SockConfig,
    /// A wrong expectation, to see that expectations are looked at.
    pub mutant: Option<TcpMutant>,
}

/// A wrong expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpMutant {
    /// There are fewer connections of a type than there may be.
    FewerConnections,
    /// Back-off is longer than documented.
    LongerBackoff,
    /// Nobody restarts: one incarnation lasts for ever.
    OneIncarnation,
}

impl TcpScenario {
    /// The same on a network that is wrong.
    #[must_use]
    pub fn with_fault(mut self, fault: TcpFault) -> TcpScenario {
        self.transport.habits.fault = Some(fault);
        self
    }

    /// The same with a wrong expectation.
    #[must_use]
    pub fn with_mutant(mut self, mutant: TcpMutant) -> TcpScenario {
        self.transport.mutant = Some(mutant);
        self
    }
}

impl Tcp {
    pub(super) fn new(rng: &mut Rng, partitions: usize) -> Tcp {
        let habits = TcpHabits::from_rng(rng);
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
            ..SockConfig::default()
        };
        let large_nids = policy != TcpPolicy::Mixed && rng.chance(2_000);
        Tcp { habits, policy, large_nids, config, mutant: None }
    }

    /// The room of the smaller buffer of a connection.
    fn buffer(&self) -> usize {
        self.habits.send_buffer.min(self.habits.receive_buffer)
    }

    pub(super) fn longest_payload(&self) -> usize {
        let by_segment = if self.habits.segment.1 < 1_000 { 20_000 } else { 1 << 20 };
        by_segment.min(if self.buffer() < 8 << 10 { 100_000 } else { 1 << 20 })
    }

    /// Twice what a small buffer of TCP holds, so that senders must wait for room; a large one takes too long to fill.
    pub(super) fn longest_payload_at_end(&self) -> usize {
        let buffer = self.buffer();
        if buffer <= SMALL_BUFFER { (2 * buffer).max(LONGEST_AT_END) } else { LONGEST_AT_END }
    }

    pub(super) fn nid_of(&self, node: usize, ni: usize) -> Nid {
        // Not in the order of their numbers: the higher NID wins a race.
        let last = [7, 3, 9, 5][node % 4];
        let net = Net::new(NetType::TCP, ni as u16);
        match self.large_nids {
            true => Nid::new_v6(net, Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, ni as u16, last)),
            false => Nid::new_v4(net, Ipv4Addr::new(10, 77, ni as u8, last as u8)),
        }
    }

    /// Whether a node may use ports below 1024; others cannot be reached by [`TcpPolicy::Mixed`].
    pub(super) fn may_listen(&self, node: usize) -> bool {
        match self.policy {
            TcpPolicy::Secure => true,
            TcpPolicy::Mixed => node == 0,
            TcpPolicy::Hello => node.is_multiple_of(2),
        }
    }

    /// A node's tunables.
    pub(super) fn config_of(&self, node: usize) -> SockConfig {
        let accept = match self.policy {
            TcpPolicy::Secure | TcpPolicy::Hello => None,
            TcpPolicy::Mixed if self.may_listen(node) => Some(AcceptPolicy::All),
            TcpPolicy::Mixed => Some(AcceptPolicy::None),
        };
        SockConfig { accept, ..self.config.clone() }
    }
}
