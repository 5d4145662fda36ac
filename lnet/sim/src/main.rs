//! Runs many seeds.
use std::process::ExitCode;
use lnet_sim::{Scenario, Seen};
fn main() -> ExitCode {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let mut seen = Seen::default();
    for seed in args[0]..args[0] + args[1] {
        match lnet_sim::run(&Scenario { steps: args[2], ..Scenario::from_seed(seed) }) {
            Ok(s) => seen.add(&s),
            Err(f) => { println!("{f}"); return ExitCode::FAILURE; }
        }
    }
    for (n, c) in seen.list() { println!("{n}: {c}"); }
    ExitCode::SUCCESS
}
