//! The world of a seed: its parts, and its faults.

use lnet::{Rotor, Stealing};
use lnet_api::NiLimits;

use crate::Rng;
use crate::model::Mutant;
use crate::net::{Defect, LinkModel};

/// The default number of steps of a run.
pub(crate) const DEFAULT_STEPS: u64 = 500;

/// Everything that a run depends on. All of it follows from the seed, unless a test changes it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The seed from which the scenario and its run are drawn.
    pub seed: u64,
    /// The number of steps before the world ends.
    pub steps: u64,
    /// The number of nodes.
    pub nodes: usize,
    /// CPU partitions of each node: 1, 2 or 4.
    pub partitions: usize,
    /// The behaviour of the network `tcp`.
    pub tcp: LinkModel,
    /// The behaviour of the network `o2ib`, if there is one; this network answers GETs without the
    /// engine.
    pub o2ib: Option<LinkModel>,
    /// True if addresses are IPv6.
    pub large_nids: bool,
    /// The limit for an ACK or REPLY, in nanoseconds.
    pub transaction_timeout_ns: u64,
    /// The maximum time between two calls of `advance`, in nanoseconds.
    pub advance_ns: u64,
    /// Chance in 10,000 that a step is a program's operation.
    pub activity: u32,
    /// Chance in 10,000 that a program's operation is trouble: a cut, a restart, an NI that is
    /// added or removed.
    pub trouble: u32,
    /// True if entries with ignore bits come before those without, as in today's LNet.
    pub ignore_bits_first: bool,
    /// The partition in which the search for a buffer begins.
    pub portal_rotor: Rotor,
    /// The messages for which other partitions are searched too.
    pub stealing: Stealing,
    /// Chance in 10,000 that an NI's peers belong to some of the partitions only.
    pub bound_nis: u32,
    /// Chance in 10,000 that an event queue with a callback is polled, too.
    pub polled: u32,
    /// An error to be put into the model, to test that the checks find it.
    pub mutant: Option<Mutant>,
}

impl Scenario {
    /// Makes the scenario of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed);
        let partitions = rng.pick(&[1, 1, 2, 4]);
        let tcp = link(&mut rng, partitions);
        let o2ib = link(&mut rng, partitions);
        // An RDMA network loses, repeats and reorders nothing; a connection works or is broken.
        let o2ib = LinkModel { direct_gets: true, vanish: 0, twice: 0, overtaking: false, ..o2ib };
        Scenario {
            seed,
            steps: DEFAULT_STEPS,
            nodes: rng.between((2, 5)) as usize,
            partitions,
            tcp,
            o2ib: rng.chance(5_000).then_some(o2ib),
            large_nids: rng.chance(2_000),
            transaction_timeout_ns: rng.pick(&[20_000_000, 1_000_000_000, 20_000_000_000]),
            advance_ns: rng.pick(&[5_000_000, 100_000_000, 1_000_000_000]),
            activity: rng.between((1_500, 6_000)) as u32,
            trouble: rng.pick(&[0, 100, 600]),
            ignore_bits_first: rng.chance(5_000),
            portal_rotor: rng.pick(&[Rotor::Off, Rotor::On, Rotor::RrRt, Rotor::HashRt]),
            stealing: rng.pick(&[Stealing::All, Stealing::LazyPuts]),
            bound_nis: rng.pick(&[0, 5_000]),
            polled: rng.pick(&[0, 5_000]),
            mutant: None,
        }
    }

    /// Returns the scenario with a defect in every LND.
    #[must_use]
    pub fn with_defect(mut self, defect: Defect) -> Scenario {
        for link in [Some(&mut self.tcp), self.o2ib.as_mut()].into_iter().flatten() {
            link.defect = Some(defect);
        }
        self
    }
}

fn link(rng: &mut Rng, shards: usize) -> LinkModel {
    let peer_credits = rng.pick(&[1, 2, 8]);
    let rarely = |rng: &mut Rng, chance| if rng.chance(4_000) { chance } else { 0 };
    let hostile = rng.chance(1_500);
    LinkModel {
        limits: NiLimits {
            credits: peer_credits * rng.pick(&[1, 2, 32]),
            peer_credits,
            timeout_ns: rng.pick(&[10_000_000, 1_000_000_000, 50_000_000_000]),
        },
        latency_ns: rng.pick(&[(1_000, 2_000), (10_000, 400_000), (0, 20_000_000)]),
        slow: rarely(rng, 200),
        bytes_per_us: rng.chance(3_000).then_some(100),
        payload_ns: rng.pick(&[(0, 0), (0, 50_000), (0, 30_000_000)]),
        sent_now: rng.pick(&[0, 5_000, 10_000]),
        hold_ns: rng.pick(&[(0, 0), (0, 100_000), (0, 10_000_000), (0, 3_000_000_000)]),
        send_fails: rarely(rng, 200),
        lost: rarely(rng, 300),
        payload_lost: rarely(rng, 300),
        life_ns: rng.chance(4_000).then_some((0, 500_000_000)),
        notice_ns: rng.pick(&[(0, 0), (0, 1_000_000), (0, 1_000_000_000)]),
        vanish: if hostile { 300 } else { 0 },
        twice: if hostile { 300 } else { 0 },
        overtaking: hostile,
        large_headers: rng.chance(2_000),
        direct_gets: false,
        shards,
        defect: None,
    }
}
