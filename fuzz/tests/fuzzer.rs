//! Tests of the fuzzer itself: it finds a planted bug, replays it, and all protocols hold.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output};

use nlx_fuzz::{Limit, Run, TARGETS, replay};

fn nlx_fuzz(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nlx-fuzz")).args(arguments).output().unwrap()
}

// Covers: MT-219
#[test]
fn every_target_holds_for_a_while() {
    for target in TARGETS {
        let report = Run::new(target, 1).go(Limit::Executions(5000));
        assert_eq!((report.executions, &report.failure), (5000, &None), "{}", target.name);
        assert!(report.outcomes > 4, "{} sees only {} outcomes", target.name, report.outcomes);
    }
}

#[test]
fn every_target_starts_from_recorded_input_that_holds() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has seeds", target.name);
        for seed in seeds {
            assert_eq!(replay(target, &seed), Ok(()), "{}", target.name);
        }
    }
}

/// Mutated lists are longer than any recorded one, up to the longest that their format permits.
#[test]
fn mutated_inputs_have_lists_up_to_the_longest() {
    for (name, most) in
        [("ib-message", 257), ("ping-info", 4095), ("driver-request", 256), ("driver-reply", 256)]
    {
        let target = TARGETS.iter().find(|target| target.name == name).unwrap();
        let report = Run::new(target, 1).go(Limit::Executions(5000));
        assert_eq!((report.entries_max, &report.failure), (most, &None), "{name}");
    }
}

#[test]
fn a_seed_replays_its_run() {
    for target in TARGETS {
        let runs = [7, 7, 8].map(|seed| Run::new(target, seed).go(Limit::Executions(2000)));
        assert_eq!(runs[0], runs[1], "{}", target.name);
        assert_eq!(runs[2].seed, 8);
    }
}

#[test]
fn the_closing_line_counts_the_targets() {
    let output = nlx_fuzz(&["header", "hello", "--executions", "500", "--seed", "3"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(
        text.lines().any(|line| line.starts_with("header") && line.contains("seed 3, 500 executions")),
        "{text}"
    );
    assert_eq!(text.lines().last(), Some("2 passed, 0 failed"));
}

#[test]
fn a_file_is_replayed_and_an_unknown_target_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("input.bin");
    fs::write(&file, b"whatever").unwrap();
    let output = nlx_fuzz(&["hello", "--replay", file.to_str().unwrap()]);
    assert!(output.status.success());
    let output = nlx_fuzz(&["hello", "--replay", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(nlx_fuzz(&["no-such-target"]).status.code(), Some(2));
}
