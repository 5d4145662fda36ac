//! Thousands of seeds agree with the model, and every kind of trouble occurs among them.

mod harness;

use lnet_sim::{DEFAULT_STEPS, Scenario, run};

/// Runs that the test makes unless the environment says otherwise.
const SEEDS: u64 = 3_000;

/// S-101 to S-109, S-202, S-209, S-310, S-311: whatever happens in whatever order, engines do what the model says.
#[test]
fn seeds() {
    let run = |seed, steps| run(&Scenario { steps, ..Scenario::from_seed(seed) });
    harness::check_seeds((SEEDS, DEFAULT_STEPS), run);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    harness::check_repeats(50, |seed| run(&Scenario::from_seed(seed)));
}
