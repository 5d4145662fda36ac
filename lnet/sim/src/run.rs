//! One run, from its seed to its result.

use std::fmt;

use crate::net::Seen;
use crate::scenario::DEFAULT_STEPS;
use crate::world::World;
use crate::{Counts, Scenario};

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The program's subcommand for worlds of this kind, with a blank behind it; empty for the
    /// first kind.
    pub(crate) command: &'static str,
    /// The seed that reproduces the failure.
    pub seed: u64,
    /// The number of steps after which the run fails.
    pub steps: u64,
    /// The description of the error.
    pub what: String,
    /// The last events before the failure.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "seed {} fails after {} steps: {}", self.seed, self.steps, self.what)?;
        let (command, seed, steps) = (self.command, self.seed, self.steps);
        write!(
            f,
            "again: cargo run --release -p lnet-sim -- {command}--seeds 1 --seed {seed} --steps {steps}"
        )
    }
}

/// A kind of world: everything that a run depends on.
pub trait Worlds: Sized {
    /// The counts of events in a run.
    type Seen: Counts + fmt::Debug + PartialEq;

    /// The program's subcommand for worlds of this kind, with a blank behind it; empty for the
    /// first kind.
    const COMMAND: &str;
    /// The default number of steps of a run.
    const STEPS: u64;

    /// Makes the world of a seed.
    #[must_use]
    fn of_seed(seed: u64) -> Self;

    /// Runs the world for `steps` steps and to its end.
    ///
    /// # Errors
    /// The failed check.
    fn run_for(self, steps: u64) -> Result<Self::Seen, Box<Failure>>;
}

impl Worlds for Scenario {
    type Seen = Seen;

    const COMMAND: &str = "";
    const STEPS: u64 = DEFAULT_STEPS;

    fn of_seed(seed: u64) -> Scenario {
        Scenario::from_seed(seed)
    }

    fn run_for(self, steps: u64) -> Result<Seen, Box<Failure>> {
        run(&Scenario { steps, ..self })
    }
}

/// Runs a scenario to its end; a failure has a trace and the fewest steps that show it.
///
/// # Errors
/// The difference from the model.
pub fn run(scenario: &Scenario) -> Result<Seen, Box<Failure>> {
    search(Scenario::COMMAND, scenario.seed, scenario.steps, |steps, traced| {
        let scenario = Scenario { steps, ..scenario.clone() };
        // The partition is fixed, so that the run does not depend on the thread's CPU.
        lnet_cpt::with_partition(0, || play(World::new(scenario, traced), steps))
    })
}

/// A run that failed after `steps` steps, with a trace if one was requested.
pub(crate) struct Attempt {
    pub(crate) steps: u64,
    pub(crate) what: String,
    pub(crate) trace: Vec<String>,
}

/// Runs `attempt` for `steps` steps; after a failure, runs it for fewer steps, and once with a
/// trace.
pub(crate) fn search<T>(
    command: &'static str,
    seed: u64,
    steps: u64,
    attempt: impl Fn(u64, bool) -> Result<T, Attempt>,
) -> Result<T, Box<Failure>> {
    let Attempt { steps, what, .. } = match attempt(steps, false) {
        Ok(seen) => return Ok(seen),
        Err(failed) => failed,
    };
    // Finds by halving the fewest steps after which the run fails.
    let (mut low, mut high) = (0, steps);
    while low < high {
        let middle = low + (high - low) / 2;
        match attempt(middle, false) {
            Err(_) => high = middle,
            Ok(_) => low = middle + 1,
        }
    }
    let failed = attempt(high, true).err().unwrap_or(Attempt { steps, what, trace: Vec::new() });
    Err(Box::new(Failure { command, seed, steps: high, what: failed.what, trace: failed.trace }))
}

/// A world that runs step by step, and then ends.
pub(crate) trait Play {
    /// The counts of events in the world.
    type Seen;
    fn step(&mut self) -> Result<(), String>;
    fn settle(&mut self) -> Result<(), String>;
    fn seen(&self) -> Self::Seen;
    /// Returns the last events.
    fn trace_lines(&mut self) -> Vec<String>;
}

/// Runs a world, if it could be made, for `steps` steps and to its end.
pub(crate) fn play<W: Play>(world: Result<W, impl fmt::Display>, steps: u64) -> Result<W::Seen, Attempt> {
    let failed = |steps, what, trace| Attempt { steps, what, trace };
    let mut world = world.map_err(|error| failed(0, error.to_string(), Vec::new()))?;
    for step in 0..steps {
        world.step().map_err(|what| failed(step + 1, what, world.trace_lines()))?;
    }
    world.settle().map_err(|what| failed(steps, what, world.trace_lines()))?;
    Ok(world.seen())
}
