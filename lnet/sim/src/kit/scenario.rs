//! The scenario of a world of whole nodes, drawn from a seed.

use super::Transport;
use crate::Rng;

const MS: u64 = 1_000_000;

/// Everything that a run of whole nodes depends on. All of it follows from the seed, unless a test
/// changes it.
#[derive(Debug, Clone)]
pub struct NodeScenario<T> {
    /// The seed from which the scenario and its run are drawn.
    pub seed: u64,
    /// The number of steps before the world ends.
    pub steps: u64,
    /// The number of nodes: 2 to 4.
    pub nodes: usize,
    /// The number of NIs of each node, each on a separate network.
    pub nis: usize,
    /// CPU partitions of each node: 1, 2 or 4.
    pub partitions: usize,
    /// The limit for an ACK or REPLY, in nanoseconds.
    pub transaction_timeout_ns: u64,
    /// Time from one step to the next, in nanoseconds.
    pub pause_ns: (u64, u64),
    /// Chance in 10,000 that a step is trouble.
    pub trouble: u32,
    /// Time from a descriptor's becoming readable to the poll, in nanoseconds.
    pub wake_ns: (u64, u64),
    /// The message budget of one poll.
    pub budget: usize,
    /// Chance in 10,000 that an operation is begun inside an upcall.
    pub nested: u32,
    /// Chance in 10,000 that several operations are begun under a cork.
    pub corked: u32,
    /// Chance in 10,000 that a PUT goes to a lazy portal, and its buffer is posted later or never.
    pub lazy: u32,
    /// The longest payload in bytes.
    pub longest: usize,
    /// True if payloads are expected to have another pattern, to test that they are checked.
    pub other_pattern: bool,
    /// The part that only worlds on this kind of network have.
    pub transport: T,
}

impl<T: Transport> NodeScenario<T> {
    /// Makes the scenario of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> NodeScenario<T> {
        let mut rng = Rng::new(seed ^ T::SALT);
        let (nodes, partitions) = (rng.between((2, 4)) as usize, rng.pick(&[1, 1, 2, 4]));
        let transport = T::from_rng(&mut rng, nodes, partitions);
        NodeScenario {
            seed,
            steps: T::STEPS,
            nodes,
            nis: rng.pick(&T::NIS),
            partitions,
            transaction_timeout_ns: rng.pick(&T::TRANSACTION_TIMEOUTS_NS),
            pause_ns: rng.pick(&[(0, 0), (0, MS), (0, 100 * MS), (0, 10_000 * MS)]),
            trouble: rng.pick(&[0, 200, 1_500]),
            wake_ns: rng.pick(&[(0, 0), (1_000, 50_000), (0, 5 * MS)]),
            budget: rng.pick(&[1, 3, 64, 64]),
            nested: rng.pick(&[0, 2_000]),
            corked: rng.pick(&[0, 5_000, 10_000]),
            lazy: rng.pick(&[0, 500, 4_000]),
            longest: transport.longest(&mut rng),
            other_pattern: false,
            transport,
        }
    }
}
