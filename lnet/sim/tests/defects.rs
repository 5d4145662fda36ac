//! A wrong driver or a wrong model is noticed: the comparison can fail.

mod harness;

use std::fmt::Debug;

use lnet_sim::{DEFAULT_STEPS, Defect, Mutant, Scenario, run};

/// Seeds among which each defect must show.
const SEEDS: u64 = 300;

fn check_noticed(what: &dyn Debug, scenario: impl Fn(u64) -> Scenario) {
    let run = |seed, steps| run(&Scenario { steps, ..scenario(seed) });
    harness::check_noticed(what, "", (SEEDS, DEFAULT_STEPS), run);
}

#[test]
fn defects_of_a_driver_are_noticed() {
    for defect in [
        Defect::ForgetsFinalisation,
        Defect::Duplicates,
        Defect::Reorders,
        Defect::Corrupts,
        Defect::LosesSilently,
    ] {
        check_noticed(&defect, |seed| Scenario::from_seed(seed).with_defect(defect));
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
        check_noticed(&mutant, |seed| Scenario { mutant: Some(mutant), ..Scenario::from_seed(seed) });
    }
}
