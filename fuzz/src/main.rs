//! `nlx-fuzz`: fuzzes nlx's parsers and handshakes; see the library.

#![forbid(unsafe_code)]

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nlx_fuzz::{Failure, Limit, Report, Run, TARGETS, Target, replay};

/// Fuzz nlx's parsers and handshakes, and check their invariants.
///
/// Exits with 1 if a target breaks; the failing input is then written to a file, which --replay
/// runs alone.
#[derive(Parser, Debug)]
#[command(version)]
struct Options {
    /// Targets to fuzz; all of them by default
    #[arg(value_name = "TARGET", value_parser = target_names())]
    targets: Vec<String>,
    /// Seconds to fuzz each target
    #[arg(long, value_name = "N", default_value_t = 5)]
    seconds: u64,
    /// Number of runs of each target, instead of a time
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    executions: Option<u64>,
    /// Seed of the random numbers; the same seed gives the same inputs
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Folder for failing inputs
    #[arg(long, value_name = "DIR", default_value = ".")]
    artifacts: PathBuf,
    /// Run the named targets on this file alone
    #[arg(long, value_name = "FILE", requires = "targets", conflicts_with_all = ["seconds", "executions", "seed"])]
    replay: Option<PathBuf>,
}

fn target_names() -> clap::builder::PossibleValuesParser {
    TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().into()
}

fn main() -> ExitCode {
    let options = Options::parse();
    let named = |target: &&Target| options.targets.iter().any(|name| name == target.name);
    let targets: Vec<_> =
        TARGETS.iter().filter(|target| options.targets.is_empty() || named(target)).collect();
    let failed = match &options.replay {
        Some(file) => match fs::read(file) {
            Ok(input) => targets.iter().filter(|target| !replay_one(target, &input)).count(),
            Err(error) => {
                eprintln!("nlx-fuzz: cannot read {}: {error}", file.display());
                return ExitCode::from(2);
            }
        },
        None => fuzz(&targets, &options),
    };
    println!("{} passed, {failed} failed", targets.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Fuzzes the targets; returns the number of targets that broke.
fn fuzz(targets: &[&Target], options: &Options) -> usize {
    let seed = options.seed.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()));
    let limit = match options.executions {
        Some(count) => Limit::Executions(count),
        None => Limit::Time(Duration::from_secs(options.seconds)),
    };
    let mut failed = 0;
    for target in targets {
        let report = Run::new(target, seed).go(limit);
        println!(
            "{:<12} seed {seed}, {} executions, {} outcomes{}",
            report.target,
            report.executions,
            report.outcomes,
            match report.entries_max {
                0 => String::new(),
                entries => format!(", lists of up to {entries} entries"),
            }
        );
        if let Some(failure) = &report.failure {
            failed += 1;
            print_failure(&report, failure, &options.artifacts);
        }
    }
    failed
}

fn print_failure(report: &Report, failure: &Failure, artifacts: &Path) {
    let file = artifacts.join(format!("{}-{}-{}.bin", report.target, report.seed, report.executions));
    println!("  broke: {}", failure.message);
    match fs::write(&file, &failure.input) {
        Ok(()) => println!("  input of {} bytes written to {}", failure.input.len(), file.display()),
        Err(error) => {
            eprintln!("nlx-fuzz: cannot write {}: {error}", file.display());
            println!("  input {:02x?}", failure.input);
        }
    }
}

/// Runs one input; returns whether the target's invariants hold.
fn replay_one(target: &Target, input: &[u8]) -> bool {
    match replay(target, input) {
        Ok(()) => {
            println!("{:<12} holds on {} bytes", target.name, input.len());
            true
        }
        Err(failure) => {
            println!("{:<12} broke: {}", target.name, failure.message);
            false
        }
    }
}
