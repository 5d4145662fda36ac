//! A wrong driver or a wrong model is noticed: the comparison can fail.

use lnet_sim::{Defect, Failure, Mutant, Scenario, run};

/// Seeds among which each defect must show.
const SEEDS: u64 = 300;

fn first_failure(scenario: impl Fn(u64) -> Scenario) -> Failure {
    let failure = (0..SEEDS).find_map(|seed| run(&scenario(seed)).err());
    *failure.expect("a seed that notices")
}

/// A failure is the same when it is run again, and shows with the steps it names.
fn check_replay(scenario: impl Fn(u64) -> Scenario) {
    let failure = first_failure(&scenario);
    assert!(!failure.trace.is_empty());
    let text = failure.to_string();
    assert!(text.contains(&format!("--seed {} --steps {}", failure.seed, failure.steps)), "{text}");
    let again = Scenario { steps: failure.steps, ..scenario(failure.seed) };
    // Not in the same words: an engine draws its handles at random. And halving again may find fewer steps.
    assert!(run(&again).expect_err("it fails again").steps <= failure.steps);
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
        check_replay(|seed| Scenario::from_seed(seed).with_defect(defect));
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
        check_replay(|seed| Scenario { mutant: Some(mutant), ..Scenario::from_seed(seed) });
    }
}
