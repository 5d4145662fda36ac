//! A wrong network is noticed: the simulation of RDMA nodes can fail.

mod harness;

use std::fmt::Debug;

use lnet_sim::ib::{IbFault, IbScenario, run};

/// Seeds among which each of them must show.
const SEEDS: u64 = 100;

/// Steps of each run.
const STEPS: u64 = 30;

fn check_noticed(what: &dyn Debug, scenario: impl Fn(u64) -> IbScenario) {
    let run = |seed, steps| run(&IbScenario { steps, ..scenario(seed) });
    harness::check_noticed(what, "ib ", (SEEDS, STEPS), run);
}

#[test]
fn bytes_that_change_are_noticed() {
    check_noticed(&IbFault::ChangesByte, |seed| IbScenario::from_seed(seed).with_fault(IbFault::ChangesByte));
}

#[test]
fn writes_that_are_not_carried_out_are_noticed() {
    check_noticed(&IbFault::DropsWrite, |seed| IbScenario::from_seed(seed).with_fault(IbFault::DropsWrite));
}

#[test]
fn a_wrong_expectation_is_noticed() {
    check_noticed(&"another pattern", |seed| IbScenario {
        other_pattern: true,
        ..IbScenario::from_seed(seed)
    });
}
