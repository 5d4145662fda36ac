//! A wrong network is noticed: the simulation of RDMA nodes can fail.

mod harness;

use lnet_sim::ib::{IbFault, IbScenario, run};

/// Seeds among which each of them must show.
const SEEDS: u64 = 100;

/// Steps of each run.
const STEPS: u64 = 30;

fn check_noticed(fault: IbFault) {
    let scenario = |seed, steps| IbScenario { steps, ..IbScenario::from_seed(seed) }.with_fault(fault);
    harness::check_noticed(&fault, "ib ", (SEEDS, STEPS), |seed, steps| run(&scenario(seed, steps)));
}

#[test]
fn bytes_that_change_are_noticed() {
    check_noticed(IbFault::ChangesByte);
}

#[test]
fn writes_that_are_not_carried_out_are_noticed() {
    check_noticed(IbFault::DropsWrite);
}
