//! The whole TCP LND on a simulated TCP network.

mod end;
mod habits;
mod host;
mod listening;
mod net;
mod poller;
mod scenario;
mod seen;
mod sockets;
mod state;
mod tap;
mod world;

use crate::run::{Attempt, Failure, search};

pub use habits::{TcpFault, TcpHabits};
pub use host::SimHost;
pub use net::TcpNet;
pub use scenario::{DEFAULT_TCP_STEPS, TcpMutant, TcpPolicy, TcpScenario};
pub use seen::TcpSeen;

use world::TcpWorld;

/// Runs a scenario of TCP nodes to its end; a failure comes with a trace and as few steps as show it.
///
/// # Errors
/// What was not as it should be.
pub fn run(scenario: &TcpScenario) -> Result<TcpSeen, Box<Failure>> {
    search("tcp ", scenario.seed, scenario.steps, |steps, traced| {
        let scenario = TcpScenario { steps, ..scenario.clone() };
        // A thread of its own: what the LND remembers of a thread must not come from an earlier run.
        let attempt = || lnet_cpt::with_partition(0, || play(&scenario, traced));
        std::thread::scope(|scope| match scope.spawn(attempt).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })
}

fn play(scenario: &TcpScenario, traced: bool) -> Result<TcpSeen, Attempt> {
    let failed = |steps, what, trace| Attempt { steps, what, trace };
    let world = TcpWorld::new(scenario.clone(), traced);
    let mut world = world.map_err(|error| failed(0, error.to_string(), Vec::new()))?;
    for step in 0..scenario.steps {
        world.step().map_err(|what| failed(step + 1, what, world.trace_lines()))?;
    }
    world.settle().map_err(|what| failed(scenario.steps, what, world.trace_lines()))?;
    Ok(world.seen())
}
