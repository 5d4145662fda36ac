//! Whole TCP nodes under trouble: hundreds of seeds end well, and every kind of trouble occurs among them.

use lnet_sim::tcp::{DEFAULT_TCP_STEPS, TcpScenario, TcpSeen, run};

/// Runs that a test makes unless `NLX_SIM_SEEDS` says otherwise.
const SEEDS: u64 = 100;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// S-201 to S-210, S-312: whatever happens in whatever order, nodes of real engines and real TCP LNDs deliver each payload
/// once or not at all, end each operation once, keep the rules of connections, and reach each other again. The first seed
/// is `NLX_SIM_SEED`, or 0.
#[test]
fn seeds() {
    let first = number("NLX_SIM_SEED").unwrap_or(0);
    let count = number("NLX_SIM_SEEDS").unwrap_or(SEEDS);
    let steps = number("NLX_SIM_STEPS").unwrap_or(DEFAULT_TCP_STEPS);
    let mut seen = TcpSeen::default();
    for seed in first..first + count {
        match run(&TcpScenario { steps, ..TcpScenario::from_seed(seed) }) {
            Ok(new) => seen.add(&new),
            Err(failure) => panic!("{failure}"),
        }
    }
    if (first, count, steps) == (0, SEEDS, DEFAULT_TCP_STEPS) {
        let missing: Vec<_> = seen.list().into_iter().filter(|(_, times)| *times == 0).collect();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..10 {
        let scenario = TcpScenario { steps: 100, ..TcpScenario::from_seed(seed) };
        assert_eq!(run(&scenario).unwrap(), run(&scenario).unwrap(), "seed {seed}");
    }
}
