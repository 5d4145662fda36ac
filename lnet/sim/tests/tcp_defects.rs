//! A wrong network or a wrong expectation is noticed: the simulation of TCP nodes can fail.

mod harness;

use std::fmt::Debug;

use lnet_sim::tcp::{TcpFault, TcpMutant, TcpScenario, run};

/// Seeds among which each of them must show.
const SEEDS: u64 = 100;

/// Steps of each run.
const STEPS: u64 = 60;

fn check_noticed(what: &dyn Debug, scenario: impl Fn(u64) -> TcpScenario) {
    let run = |seed, steps| run(&TcpScenario { steps, ..scenario(seed) });
    harness::check_noticed(what, "tcp ", (SEEDS, STEPS), run);
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
        check_noticed(&fault, |seed| TcpScenario::from_seed(seed).with_fault(fault));
    }
}

#[test]
fn wrong_expectations_are_noticed() {
    for mutant in [TcpMutant::FewerConnections, TcpMutant::LongerBackoff, TcpMutant::OneIncarnation] {
        check_noticed(&mutant, |seed| TcpScenario::from_seed(seed).with_mutant(mutant));
    }
    check_noticed(&"another pattern", |seed| TcpScenario {
        other_pattern: true,
        ..TcpScenario::from_seed(seed)
    });
}
