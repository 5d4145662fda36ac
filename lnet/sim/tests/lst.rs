//! Sessions of lst under trouble: hundreds of seeds end well, and every kind of trouble occurs among
//! them.

mod harness;

use harness::check_noticed;
use lnet_sim::Worlds;
use lnet_sim::lst::{LstDefect, LstScenario};

/// The default number of runs, which the environment can override.
const SEEDS: u64 = 150;

/// Each command ends with a result for each node, and nothing is left at a node after its session.
// Covers: S-313
#[test]
fn seeds() {
    harness::check_seeds::<LstScenario>((SEEDS, LstScenario::STEPS));
}

#[test]
fn a_seed_gives_the_same_run_again() {
    harness::check_repeats::<LstScenario>((10, LstScenario::STEPS));
}

#[test]
fn a_host_that_loses_a_buffer_is_noticed() {
    let defect = Some(LstDefect::LosesBuffers);
    check_noticed(&defect, (50, LstScenario::STEPS), |scenario: LstScenario| LstScenario {
        defect,
        ..scenario
    });
}
