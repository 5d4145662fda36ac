//! Faulty networks and wrong expectations are detected: the simulation of TCP nodes can fail.

mod harness;

use harness::check_noticed;
use lnet_sim::tcp::{TcpFault, TcpMutant, TcpScenario};

/// The number of seeds, of which one must show each fault or wrong expectation, and their steps.
const RUNS: (u64, u64) = (100, 60);

#[test]
fn faults_of_the_network_are_noticed() {
    for fault in [
        TcpFault::DropsByte,
        TcpFault::ChangesByte,
        TcpFault::LosesReadable,
        TcpFault::LosesWritable,
        TcpFault::Repeats,
    ] {
        check_noticed(&fault, RUNS, |scenario: TcpScenario| scenario.with_fault(fault));
    }
}

#[test]
fn wrong_expectations_are_noticed() {
    for mutant in [TcpMutant::FewerConnections, TcpMutant::LongerBackoff, TcpMutant::OneIncarnation] {
        check_noticed(&mutant, RUNS, |scenario: TcpScenario| scenario.with_mutant(mutant));
    }
    check_noticed(&"another pattern", RUNS, |scenario| TcpScenario { other_pattern: true, ..scenario });
}
