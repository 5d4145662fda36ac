//! The program: the commands that it prints reproduce the same worlds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

/// Runs the program; returns its output.
fn lnet_sim(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lnet-sim")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the arguments of the printed commands that run the seeds again.
fn commands(text: &str) -> Vec<Vec<&str>> {
    let lines =
        text.lines().filter_map(|line| line.strip_prefix("again: cargo run --release -p lnet-sim -- "));
    lines.map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn seeds_of_the_clock_are_other_ones_each_time_and_run_again_by_what_is_printed() {
    for kind in [&[][..], &["tcp"], &["ib"], &["lst"]] {
        let arguments = [kind, &["--seeds", "1", "--fresh", "2", "--steps", "20"]].concat();
        let texts = [(); 2].map(|()| lnet_sim(&arguments));
        let [one, other] = texts.each_ref().map(|text| commands(text));
        assert_eq!(one.len(), 2, "{}", texts[0]);
        assert_eq!(one[0], [kind, &["--seeds", "1", "--seed", "0", "--steps", "20"]].concat());
        assert_eq!((&one[0], one[1].len()), (&other[0], other[1].len()));
        assert_ne!(one[1], other[1], "the clock goes on");

        let again = one.iter().map(|command| lnet_sim(command)).collect::<Vec<_>>();
        assert_eq!(commands(&again[1]), [one[1].clone()]);
        // The counts of the single ranges add up to the counts of the whole run.
        let seen = |text: &str| -> Vec<u64> {
            let lines = text.lines().filter(|line| line.starts_with(' '));
            lines.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect()
        };
        let sum: Vec<_> =
            seen(&again[0]).iter().zip(seen(&again[1])).map(|(one, other)| one + other).collect();
        assert!(sum.iter().any(|times| *times > 0));
        assert_eq!(seen(&texts[0]), sum);
    }
}
