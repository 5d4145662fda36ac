use lnet_o2iblnd::O2ibConfig;

use super::habits::{IbFault, IbHabits};
use crate::Rng;

/// Steps of a run if nothing else is said.
pub const DEFAULT_IB_STEPS: u64 = 150;

const MS: u64 = 1_000_000;

/// Everything that a run of RDMA nodes depends on. All of it follows from the seed, unless somebody changes it.
#[derive(Debug, Clone)]
pub struct IbScenario {
    /// The seed.
    pub seed: u64,
    /// Steps before everything is allowed to come to its end.
    pub steps: u64,
    /// How many nodes there are: 2 to 4.
    pub nodes: usize,
    /// CPU partitions of each node: 1, 2 or 4.
    pub partitions: usize,
    /// The network.
    pub habits: IbHabits,
    /// The tunables, of each node.
    pub configs: Vec<O2ibConfig>,
    /// Whether nodes may use ports below 1024.
    pub privileged: bool,
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
    /// Chances in 10,000 that a PUT goes to a lazy portal, and its buffer is posted later or never.
    pub lazy: u32,
    /// The longest payload.
    pub longest: usize,
}

impl IbScenario {
    /// The world that belongs to a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> IbScenario {
        let mut rng = Rng::new(seed ^ 0x1b);
        let habits = IbHabits::from_rng(&mut rng);
        let nodes = rng.between((2, 4)) as usize;
        let partitions = rng.pick(&[1, 1, 2, 4]);
        let (timeout_s, conns_per_peer, wrq_sge) =
            (rng.pick(&[50, 50, 10]), rng.pick(&[1, 1, 2, 4]), rng.pick(&[1, 2, 2, 8]));
        let privileged = rng.chance(7_000);
        let mut config = |_| O2ibConfig {
            service: if privileged { 987 } else { 7_987 },
            partitions,
            nscheds: 1,
            timeout_s,
            conns_per_peer,
            wrq_sge,
            peer_credits: rng.pick(&[8, 8, 16, 128]),
            concurrent_sends: rng.pick(&[0, 0, 1, 4]),
            cksum: rng.chance(1_000),
            keepalive_s: rng.pick(&[100, 100, 5]),
            ..O2ibConfig::default()
        };
        let configs = (0..nodes).map(&mut config).collect();
        IbScenario {
            seed,
            steps: DEFAULT_IB_STEPS,
            nodes,
            partitions,
            configs,
            privileged,
            transaction_timeout_ns: rng.pick(&[20_000 * MS, 150_000 * MS]),
            pause_ns: rng.pick(&[(0, 0), (0, MS), (0, 100 * MS), (0, 10_000 * MS)]),
            trouble: rng.pick(&[0, 200, 1_500]),
            wake_ns: rng.pick(&[(0, 0), (1_000, 50_000), (0, 5 * MS)]),
            budget: rng.pick(&[1, 3, 64, 64]),
            lazy: rng.pick(&[0, 500, 4_000]),
            longest: rng.pick(&[20_000, 1 << 20]),
            habits,
        }
    }

    /// The same on a network that is wrong.
    #[must_use]
    pub fn with_fault(mut self, fault: IbFault) -> IbScenario {
        self.habits.fault = Some(fault);
        self
    }
}
