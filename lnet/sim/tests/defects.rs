//! Faulty drivers and models are detected: the comparison can fail.

mod harness;

use harness::check_noticed;
use lnet_sim::{Defect, Mutant, Scenario, Worlds};

/// The number of seeds, of which one must show each defect, and their steps.
const RUNS: (u64, u64) = (300, Scenario::STEPS);

#[test]
fn defects_of_a_driver_are_noticed() {
    for defect in [
        Defect::ForgetsFinalisation,
        Defect::Duplicates,
        Defect::Reorders,
        Defect::Corrupts,
        Defect::LosesSilently,
    ] {
        check_noticed(&defect, RUNS, |scenario: Scenario| scenario.with_defect(defect));
    }
}

#[test]
fn a_wrong_model_is_noticed() {
    for mutant in [
        Mutant::LastFirst,
        Mutant::NeverTruncates,
        Mutant::IgnoresRotor,
        Mutant::ForgivesAborts,
        Mutant::KeepsForgotten,
    ] {
        check_noticed(&mutant, RUNS, |scenario| Scenario { mutant: Some(mutant), ..scenario });
    }
}
