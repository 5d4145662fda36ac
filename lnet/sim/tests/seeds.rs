//! Thousands of seeds agree with the model, and every kind of trouble occurs among them.

mod harness;

use lnet_sim::{Scenario, Worlds};

/// Runs that the test makes unless the environment says otherwise.
const SEEDS: u64 = 3_000;

/// S-101 to S-109, S-202, S-209, S-310, S-311: whatever happens in whatever order, engines do what the model says.
// Covers: S-307
#[test]
fn seeds() {
    harness::check_seeds::<Scenario>((SEEDS, Scenario::STEPS));
}

#[test]
fn a_seed_gives_the_same_run_again() {
    harness::check_repeats::<Scenario>((50, Scenario::STEPS));
}
