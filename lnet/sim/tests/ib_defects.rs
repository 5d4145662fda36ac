//! Faulty networks are detected: the simulation of RDMA nodes can fail.

mod harness;

use harness::check_noticed;
use lnet_sim::ib::{IbFault, IbScenario};

/// The number of seeds, of which one must show each fault, and their steps.
const RUNS: (u64, u64) = (100, 30);

fn check_fault(fault: IbFault) {
    check_noticed(&fault, RUNS, |scenario: IbScenario| scenario.with_fault(fault));
}

#[test]
fn bytes_that_change_are_noticed() {
    check_fault(IbFault::ChangesByte);
}

#[test]
fn writes_that_are_not_carried_out_are_noticed() {
    check_fault(IbFault::DropsWrite);
}

#[test]
fn a_wrong_expectation_is_noticed() {
    check_noticed(&"another pattern", RUNS, |scenario| IbScenario { other_pattern: true, ..scenario });
}
