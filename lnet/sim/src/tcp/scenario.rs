use lnet_socklnd::{AcceptPolicy, SockConfig};

use super::habits::TcpHabits;
use crate::Rng;

/// Steps of a run if nothing else is said.
pub const DEFAULT_TCP_STEPS: u64 = 300;

const MS: u64 = 1_000_000;

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

/// Everything that a run of TCP nodes depends on. All of it follows from the seed, unless somebody changes it.
#[derive(Debug, Clone)]
pub struct TcpScenario {
    /// The seed.
    pub seed: u64,
    /// Steps before everything is allowed to come to its end.
    pub steps: u64,
    /// How many nodes there are.
    pub nodes: usize,
    /// NIs of each node, each on a network of its own.
    pub nis: usize,
    /// CPU partitions of each node: 1, 2 or 4.
    pub partitions: usize,
    /// The network.
    pub habits: TcpHabits,
    /// Who may connect to whom.
    pub policy: TcpPolicy,
    /// Whether addresses are IPv6.
    pub large_nids: bool,
    /// The tunables of every node, `accept` aside.
    pub config: SockConfig,
    /// How long an ACK or REPLY may take, in nanoseconds.
    pub transaction_timeout_ns: u64,
    /// From one step to the next, in nanoseconds.
    pub pause_ns: (u64, u64),
    /// Chances in 10,000 that a step is trouble.
    pub trouble: u32,
    /// From a descriptor's becoming readable to the poll, in nanoseconds.
    pub wake_ns: (u64, u64),
    /// Messages handled in one poll.
    pub budget: usize,
    /// Chances in 10,000 that an operation is begun inside an upcall.
    pub nested: u32,
    /// Chances in 10,000 that several operations are begun under a cork.
    pub corked: u32,
    /// Chances in 10,000 that a PUT goes to a lazy portal, and its buffer is posted later or never.
    pub lazy: u32,
    /// The longest payload.
    pub longest: usize,
    /// A wrong expectation, to see that expectations are looked at.
    pub mutant: Option<TcpMutant>,
}

/// A wrong expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcpMutant {
    /// Payloads have another pattern.
    OtherPattern,
    /// There are fewer connections of a type than there may be.
    FewerConnections,
    /// Back-off is longer than documented.
    LongerBackoff,
    /// Nobody restarts: one incarnation lasts for ever.
    OneIncarnation,
}

impl TcpScenario {
    /// The world that belongs to a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> TcpScenario {
        let mut rng = Rng::new(seed ^ 0x7c9);
        let habits = TcpHabits::from_rng(&mut rng);
        let policy = rng.pick(&[TcpPolicy::Secure, TcpPolicy::Secure, TcpPolicy::Mixed, TcpPolicy::Hello]);
        let peer_credits = rng.pick(&[1, 8, 8, 32]);
        let timeout_s = rng.pick(&[50, 50, 10]);
        let partitions = rng.pick(&[1, 1, 2, 4]);
        let config = SockConfig {
            partitions,
            nscheds: rng.pick(&[1, 2]),
            accept_port: if policy == TcpPolicy::Hello { 7_988 } else { 988 },
            backlog: rng.pick(&[0, 4, 127]),
            timeout_s,
            conns_per_peer: rng.pick(&[1, 1, 1, 2, 4]),
            credits: peer_credits * rng.pick(&[1, 8]),
            peer_credits,
            ..SockConfig::default()
        };
        let (_, segment) = habits.segment;
        let by_segment = if segment < 1_000 { 20_000 } else { 1 << 20 };
        let buffers = habits.send_buffer.min(habits.receive_buffer);
        let by_buffer = if buffers < 8 << 10 { 100_000 } else { 1 << 20 };
        TcpScenario {
            seed,
            steps: DEFAULT_TCP_STEPS,
            nodes: rng.between((2, 4)) as usize,
            nis: rng.pick(&[1, 1, 2]),
            partitions,
            large_nids: policy != TcpPolicy::Mixed && rng.chance(2_000),
            policy,
            config,
            transaction_timeout_ns: rng.pick(&[5_000 * MS, 150_000 * MS]),
            pause_ns: rng.pick(&[(0, 0), (0, MS), (0, 100 * MS), (0, 10_000 * MS)]),
            trouble: rng.pick(&[0, 200, 1_500]),
            wake_ns: rng.pick(&[(0, 0), (1_000, 50_000), (0, 5 * MS)]),
            budget: rng.pick(&[1, 3, 64, 64]),
            nested: rng.pick(&[0, 2_000]),
            lazy: rng.pick(&[0, 500, 4_000]),
            longest: by_segment.min(by_buffer),
            corked: rng.pick(&[0, 5_000, 10_000]),
            habits,
            mutant: None,
        }
    }

    /// The same on a network that is wrong.
    #[must_use]
    pub fn with_fault(mut self, fault: super::TcpFault) -> TcpScenario {
        self.habits.fault = Some(fault);
        self
    }

    /// Whether a node may use ports below 1024.
    pub(super) fn is_privileged(&self, node: usize) -> bool {
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
            TcpPolicy::Mixed if self.is_privileged(node) => Some(AcceptPolicy::All),
            TcpPolicy::Mixed => Some(AcceptPolicy::None),
        };
        SockConfig { accept, ..self.config.clone() }
    }

    /// Whether messages from one node can reach another at all.
    pub(super) fn reaches(&self, _from: usize, to: usize) -> bool {
        self.policy != TcpPolicy::Mixed || self.is_privileged(to)
    }
}
