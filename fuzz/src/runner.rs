//! The loop: mutates an input, runs it, keeps it if its outcome is new, and survives panics.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::time::{Duration, Instant};

use lnet_fake::Rng;

use crate::mutate::mutate;
use crate::targets::{Outcome, Target};

/// Largest number of inputs kept for mutation. Outcomes are few; this bounds a target whose
/// outcomes count up.
const POOL_MAX: usize = 4096;

/// Number of executions between two readings of the clock.
const BATCH: u64 = 64;

/// End of a run.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After this many executions.
    Executions(u64),
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The target's name.
    pub target: &'static str,
    /// The seed, which replays the run.
    pub seed: u64,
    /// Number of executions of the target.
    pub executions: u64,
    /// Number of different outcomes.
    pub outcomes: usize,
    /// Largest number of entries in the list of a mutated input: fragments, interfaces, segments; 0
    /// for a target without lists.
    pub entries_max: usize,
    /// The input that broke the target, which ends the run.
    pub failure: Option<Failure>,
}

/// An input that breaks a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The bytes on which the target failed.
    pub input: Vec<u8>,
    /// The panic message.
    pub message: String,
}

/// Returns the random numbers of a run. The targets of one seed get different ones, by FNV-1a of
/// their names.
fn rng_of(target: &Target, seed: u64) -> Rng {
    let hash = target.name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Rng::new(seed ^ hash)
}

/// A run of the fuzzer on one target.
#[derive(Debug)]
pub struct Run<'a> {
    target: &'a Target,
    rng: Rng,
    pool: Vec<Vec<u8>>,
    seen: HashSet<u64>,
    report: Report,
}

impl<'a> Run<'a> {
    /// Creates a run with this seed.
    #[must_use]
    pub fn new(target: &'a Target, seed: u64) -> Run<'a> {
        let report =
            Report { target: target.name, seed, executions: 0, outcomes: 0, entries_max: 0, failure: None };
        Run { target, rng: rng_of(target, seed), pool: Vec::new(), seen: HashSet::new(), report }
    }

    /// Runs the seeds of the target, then mutated inputs, until the limit or the first failure.
    #[must_use]
    pub fn go(mut self, limit: Limit) -> Report {
        let start = Instant::now();
        for seed in (self.target.seeds)().into_iter().chain([Vec::new()]) {
            self.execute(&seed);
            self.pool.push(seed);
        }
        self.report.entries_max = 0;
        while self.report.failure.is_none() && !self.is_over(limit, start) {
            let mut input = self.pool[self.rng.index(self.pool.len())].clone();
            let other = self.rng.index(self.pool.len());
            mutate(&mut input, &self.pool[other], self.target.input_max, &mut self.rng);
            if self.execute(&input) && self.pool.len() < POOL_MAX {
                self.pool.push(input);
            }
        }
        self.report.outcomes = self.seen.len();
        self.report
    }

    fn is_over(&self, limit: Limit, start: Instant) -> bool {
        match limit {
            Limit::Executions(count) => self.report.executions >= count,
            Limit::Time(time) => self.report.executions.is_multiple_of(BATCH) && start.elapsed() >= time,
        }
    }

    /// Runs one input; returns whether its outcome is new.
    fn execute(&mut self, input: &[u8]) -> bool {
        if self.report.failure.is_some() {
            return false;
        }
        self.report.executions += 1;
        match guarded(self.target, input) {
            Ok(outcome) => {
                self.report.entries_max = self.report.entries_max.max(outcome.entries);
                self.seen.insert(outcome.kind)
            }
            Err(failure) => {
                self.report.failure = Some(failure);
                false
            }
        }
    }
}

/// Runs one input alone.
///
/// # Errors
/// The failure, if the target breaks on it.
pub fn replay(target: &Target, input: &[u8]) -> Result<(), Failure> {
    guarded(target, input).map(drop)
}

thread_local! {
    /// Set while this thread is inside a target; the panic hook then reports a panic instead of
    /// printing it.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

fn guarded(target: &Target, input: &[u8]) -> Result<Outcome, Failure> {
    silence_guarded_panics();
    GUARDED.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    GUARDED.set(false);
    result.map_err(|panic| Failure { input: input.to_vec(), message: message_of(panic.as_ref()) })
}

fn silence_guarded_panics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                previous(info);
            }
        }));
    });
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses bytes with a bug behind two conditions.
    fn fragile(bytes: &[u8]) -> Outcome {
        let opened = bytes.first() == Some(&b'{');
        assert!(!opened || bytes.len() != 3, "three bytes in a brace");
        Outcome { kind: u64::from(opened), entries: 0 }
    }

    const FRAGILE: Target =
        Target { name: "fragile", run: fragile, seeds: || vec![b"xyzzy".to_vec()], input_max: 64 };

    #[test]
    fn a_bug_is_found_reported_and_replayed() {
        let report = Run::new(&FRAGILE, 5).go(Limit::Executions(10_000_000));
        let failure = report.failure.clone().unwrap();
        assert_eq!((failure.input[0], failure.input.len()), (b'{', 3));
        assert_eq!(failure.message, "three bytes in a brace");
        assert_eq!(replay(&FRAGILE, &failure.input), Err(failure));
        assert_eq!(Run::new(&FRAGILE, 5).go(Limit::Executions(10_000_000)), report);
        assert_eq!(replay(&FRAGILE, b"{"), Ok(()));
    }

    #[test]
    fn a_run_without_time_still_runs_its_seeds() {
        let report = Run::new(&FRAGILE, 5).go(Limit::Time(Duration::ZERO));
        assert!(report.executions >= 2 && report.executions <= BATCH);
    }
}
