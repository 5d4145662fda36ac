//! The whole verbs LND on a simulated RDMA network.
//!
//! An [`IbNet`] is hosts, devices, connections and registered memory in virtual time, on one thread, out of one seed. A
//! [`SimFabric`] is what one start of one host offers to an [`O2ibLnd`](lnet_o2iblnd::O2ibLnd) in place of this host's RDMA
//! devices ([`lnet_o2iblnd::fabric`]).

mod asking;
mod channel;
mod device;
mod end;
mod endpoint;
mod habits;
mod host;
#[allow(unsafe_code, reason = "a device reads and writes memory by number")]
mod memory;
mod net;
mod scenario;
mod seen;
mod state;
mod world;

use crate::run::{Failure, play, search};

pub use habits::{IbDevice, IbFault, IbHabits};
pub use host::SimFabric;
pub use net::IbNet;
pub use scenario::{DEFAULT_IB_STEPS, IbScenario};
pub use seen::IbSeen;
pub use state::is_inside;

use world::IbWorld;

/// Runs a scenario of RDMA nodes to its end; a failure comes with a trace and as few steps as show it.
///
/// # Errors
/// What was not as it should be.
pub fn run(scenario: &IbScenario) -> Result<IbSeen, Box<Failure>> {
    search("ib ", scenario.seed, scenario.steps, |steps, traced| {
        let scenario = IbScenario { steps, ..scenario.clone() };
        lnet_cpt::with_partition(0, || play(IbWorld::new(scenario, traced), steps))
    })
}
