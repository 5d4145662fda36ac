//! Worlds of lst, from a seed.

use lnet_api::NiLimits;

use super::LstSeen;
use super::world::World;
use crate::run::{play, search};
use crate::{Failure, LinkModel, Rng, Worlds};

/// A defect of a host, which the checks must detect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LstDefect {
    /// It does not post another buffer for a STAT.
    LosesBuffers,
}

/// Everything that a run depends on.
#[derive(Debug, Clone)]
pub struct LstScenario {
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of test nodes.
    pub nodes: usize,
    /// The number of consoles.
    pub consoles: usize,
    /// The faults and delays of the network.
    pub link: LinkModel,
    /// The chance of a cut or a death after each event on the network, in a million.
    pub trouble: u64,
    /// The defect of all hosts, if any.
    pub defect: Option<LstDefect>,
}

impl Worlds for LstScenario {
    type Seen = LstSeen;

    const COMMAND: &str = "lst ";
    const STEPS: u64 = 40;

    fn of_seed(seed: u64) -> LstScenario {
        let mut rng = Rng::new(seed);
        let rarely = |rng: &mut Rng, chance| if rng.chance(4_000) { chance } else { 0 };
        let link = LinkModel {
            limits: NiLimits { credits: 32, peer_credits: rng.pick(&[2, 8]), timeout_ns: 10_000_000_000 },
            latency_ns: rng.pick(&[(10_000, 50_000), (100_000, 5_000_000), (0, 400_000_000)]),
            slow: rarely(&mut rng, 100),
            send_fails: rarely(&mut rng, 50),
            lost: rarely(&mut rng, 100),
            payload_lost: rarely(&mut rng, 100),
            notice_ns: rng.pick(&[(0, 1_000_000), (0, 5_000_000_000)]),
            ..LinkModel::reliable()
        };
        LstScenario {
            seed,
            nodes: rng.between((1, 5)) as usize,
            consoles: rng.between((1, 2)) as usize,
            link,
            trouble: rng.pick(&[0, 200, 2_000]),
            defect: None,
        }
    }

    fn run_for(self, steps: u64) -> Result<LstSeen, Box<Failure>> {
        search(LstScenario::COMMAND, self.seed, steps, |steps, traced| {
            // The partition is fixed, so that the run does not depend on the thread's CPU.
            lnet_cpt::with_partition(0, || play(World::new(self.clone(), traced), steps))
        })
    }
}
