//! The common parts of the tests of all kinds of worlds: running seeds, and finding one that fails.

#![allow(dead_code, reason = "each test uses its part")]

use std::fmt::Debug;

use lnet_sim::{Counts, Worlds};

/// Runs `count` seeds of `steps` steps and prints the total counts; `NLX_SIM_SEED` (the first
/// seed), `NLX_SIM_SEEDS` and `NLX_SIM_STEPS` override them. A failure prints how to reproduce it.
/// Without overrides, no count may be 0.
pub(crate) fn check_seeds<W: Worlds>((count, steps): (u64, u64)) {
    let number = |variable: &str| -> Option<u64> { std::env::var(variable).ok()?.parse().ok() };
    let said = ["NLX_SIM_SEED", "NLX_SIM_SEEDS", "NLX_SIM_STEPS"].map(number);
    let [first, said_count, said_steps] = said;
    let first = first.unwrap_or(0);
    let mut seen = W::Seen::default();
    for seed in first..first + said_count.unwrap_or(count) {
        let new = W::of_seed(seed).run_for(said_steps.unwrap_or(steps));
        let new = new.unwrap_or_else(|failure| panic!("{failure}"));
        seen.add(&new);
    }
    if said == [None; 3] {
        let missing: Vec<_> = seen.list().into_iter().filter(|(_, times)| *times == 0).collect();
        assert!(missing.is_empty(), "these never happened: {missing:?}");
    }
}

/// Checks that each of `count` seeds gives the same run twice.
pub(crate) fn check_repeats<W: Worlds>((count, steps): (u64, u64)) {
    for seed in 0..count {
        let run = || W::of_seed(seed).run_for(steps).unwrap_or_else(|failure| panic!("{failure}"));
        let [once, again] = [run(), run()];
        assert_eq!(once, again, "seed {seed}");
    }
}

/// Checks that one of `count` seeds fails, with a trace and with the command that reproduces the
/// failure, and that it fails again.
pub(crate) fn check_noticed<W: Worlds>(
    what: &dyn Debug,
    (count, steps): (u64, u64),
    change: impl Fn(W) -> W,
) {
    let run = |seed, steps| change(W::of_seed(seed)).run_for(steps);
    let failure = (0..count).find_map(|seed| run(seed, steps).err());
    let failure = failure.unwrap_or_else(|| panic!("{what:?} is not noticed"));
    assert!(!failure.trace.is_empty());
    let text = failure.to_string();
    let command = W::COMMAND;
    let again = format!("-- {command}--seeds 1 --seed {} --steps {}", failure.seed, failure.steps);
    assert!(text.contains(&again), "{text}");
    // The text may differ, because an engine draws its handles at random. Halving again may also
    // find fewer steps.
    assert!(run(failure.seed, failure.steps).expect_err("it fails again").steps <= failure.steps);
}
