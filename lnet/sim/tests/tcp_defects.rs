//! A wrong network or a wrong expectation is noticed: the simulation of TCP nodes can fail.

use lnet_sim::tcp::{TcpFault, TcpMutant, TcpScenario, run};

/// Seeds among which each of them must show.
const SEEDS: u64 = 600;

/// Steps of each run.
const STEPS: u64 = 60;

fn check_noticed(name: &str, scenario: impl Fn(u64) -> TcpScenario) {
    let scenario = |seed| TcpScenario { steps: STEPS, ..scenario(seed) };
    let failure = (0..SEEDS).find_map(|seed| run(&scenario(seed)).err());
    let failure = failure.unwrap_or_else(|| panic!("nobody notices {name}"));
    assert!(!failure.trace.is_empty());
    let text = failure.to_string();
    assert!(
        text.contains(&format!("tcp --seeds 1 --seed {} --steps {}", failure.seed, failure.steps)),
        "{text}"
    );
    let again = TcpScenario { steps: failure.steps, ..scenario(failure.seed) };
    assert!(run(&again).expect_err("it fails again").steps <= failure.steps);
}

#[test]
fn faults_of_the_network_are_noticed() {
    for fault in [
        TcpFault::DropsByte,
        TcpFault::ChangesByte,
        TcpFault::LosesReadable,
        TcpFault::LosesWritable,
        TcpFault::Repeats,
    ] {
        check_noticed(&format!("{fault:?}"), |seed| TcpScenario::from_seed(seed).with_fault(fault));
    }
}

#[test]
fn wrong_expectations_are_noticed() {
    for mutant in [
        TcpMutant::OtherPattern,
        TcpMutant::FewerConnections,
        TcpMutant::LongerBackoff,
        TcpMutant::OneIncarnation,
    ] {
        check_noticed(&format!("{mutant:?}"), |seed| TcpScenario {
            mutant: Some(mutant),
            ..TcpScenario::from_seed(seed)
        });
    }
}
