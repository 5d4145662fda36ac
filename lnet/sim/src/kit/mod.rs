//! The simulation kit: worlds of whole nodes, each of a real engine and a real LND, over a
//! simulated network in virtual time. A kind of network implements [`Wire`] and [`Transport`];
//! everything else is shared.

pub(crate) mod net;
mod queue;
pub(crate) mod scenario;
pub(crate) mod seen;
mod trace;
pub(crate) mod transport;
pub(crate) mod world;

pub(crate) use net::{EPHEMERAL_MIN, Host, HostHandle, Net, State, Wire, stamped};
pub(crate) use queue::EventQueue;
pub(crate) use scenario::NodeScenario;
pub(crate) use seen::{NodeSeen, WorldSeen};
pub(crate) use trace::Trace;
pub(crate) use transport::Transport;
pub(crate) use world::World;
