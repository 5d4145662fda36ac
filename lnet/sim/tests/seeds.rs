//! Thousands of seeds agree with the model, and every kind of trouble occurs among them.

use lnet_sim::{DEFAULT_STEPS, Scenario, Seen, run};

/// Runs that a test makes unless `NLX_SIM_SEEDS` says otherwise.
const SEEDS: u64 = 3_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// S-101 to S-109, S-202, S-209, S-310, S-311: whatever happens in whatever order, engines do what the model says. The
/// first seed is `NLX_SIM_SEED`, or 0.
#[test]
fn seeds() {
    let first = number("NLX_SIM_SEED").unwrap_or(0);
    let count = number("NLX_SIM_SEEDS").unwrap_or(SEEDS);
    let steps = number("NLX_SIM_STEPS").unwrap_or(DEFAULT_STEPS);
    let mut seen = Seen::default();
    for seed in first..first + count {
        match run(&Scenario { steps, ..Scenario::from_seed(seed) }) {
            Ok(new) => seen.add(&new),
            Err(failure) => panic!("{failure}"),
        }
    }
    if (first, count, steps) == (0, SEEDS, DEFAULT_STEPS) {
        let missing: Vec<_> = seen.list().into_iter().filter(|(_, times)| *times == 0).collect();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..50 {
        let once = run(&Scenario::from_seed(seed)).unwrap();
        assert_eq!(once, run(&Scenario::from_seed(seed)).unwrap(), "seed {seed}");
    }
}
