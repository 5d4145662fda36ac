//! Thousands of seeds agree with the model, and every kind of trouble occurs among them.

mod harness;

use lnet_sim::{Scenario, Worlds};

/// The default number of runs, which the environment can override.
const SEEDS: u64 = 3_000;

/// Engines behave as the model does, for every order of events.
// Covers: S-101, S-102, S-103, S-104, S-105, S-106, S-107, S-108, S-109, S-202, S-209, S-307, S-310
// Covers: S-311
#[test]
fn seeds() {
    harness::check_seeds::<Scenario>((SEEDS, Scenario::STEPS));
}

#[test]
fn a_seed_gives_the_same_run_again() {
    harness::check_repeats::<Scenario>((50, Scenario::STEPS));
}
