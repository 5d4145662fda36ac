//! One run, from its seed to its verdict.

use std::fmt;

use crate::Scenario;
use crate::net::Seen;
use crate::world::World;

/// A run that was not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Failure {
    /// The seed that gives it again.
    pub seed: u64,
    /// Steps after which it shows.
    pub steps: u64,
    /// What was wrong.
    pub what: String,
    /// The last things that happened before.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "seed {} fails after {} steps: {}", self.seed, self.steps, self.what)?;
        let (seed, steps) = (self.seed, self.steps);
        write!(f, "again: cargo run --release -p lnet-sim -- --seeds 1 --seed {seed} --steps {steps}")
    }
}

/// Runs a scenario to its end; a failure comes with a trace and as few steps as show it.
///
/// # Errors
/// What was not as the model says.
pub fn run(scenario: &Scenario) -> Result<Seen, Box<Failure>> {
    let (steps, what) = match attempt(scenario, false) {
        Ok(seen) => return Ok(seen),
        Err(Attempt { steps, what, .. }) => (steps, what),
    };
    let fewest = fewest_steps(scenario, steps);
    let again = attempt(&Scenario { steps: fewest, ..scenario.clone() }, true);
    let failed = again.err().unwrap_or(Attempt { steps, what, trace: Vec::new() });
    Err(Box::new(Failure { seed: scenario.seed, steps: fewest, what: failed.what, trace: failed.trace }))
}

struct Attempt {
    steps: u64,
    what: String,
    trace: Vec<String>,
}

/// On a partition that does not depend on the thread's CPU.
fn attempt(scenario: &Scenario, traced: bool) -> Result<Seen, Attempt> {
    lnet_cpt::with_partition(0, || play(scenario, traced))
}

fn play(scenario: &Scenario, traced: bool) -> Result<Seen, Attempt> {
    let failed = |steps, what, trace| Attempt { steps, what, trace };
    let world = World::new(scenario.clone(), traced);
    let mut world = world.map_err(|error| failed(0, error.to_string(), Vec::new()))?;
    for step in 0..scenario.steps {
        world.step().map_err(|what| failed(step + 1, what, world.trace_lines()))?;
    }
    world.settle().map_err(|what| failed(scenario.steps, what, world.trace_lines()))?;
    Ok(world.seen())
}

/// The fewest steps after which the run fails, as far as halving finds them.
fn fewest_steps(scenario: &Scenario, fails: u64) -> u64 {
    let (mut low, mut high) = (0, fails);
    while low < high {
        let middle = low + (high - low) / 2;
        if attempt(&Scenario { steps: middle, ..scenario.clone() }, false).is_err() {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    high
}
