//! The whole verbs LND on a simulated RDMA network.
//!
//! An [`IbNet`] simulates hosts, devices, connections and registered memory in virtual time, on one
//! thread, from one seed. A [`SimFabric`] offers to an [`O2ibLnd`](lnet_o2iblnd::O2ibLnd) the
//! devices of one start of one host, in place of this host's RDMA devices
//! ([`lnet_o2iblnd::fabric`]). [`run`] makes a world from a seed, as in [`tcp`](crate::tcp).

mod behaviour;
mod channel;
mod device;
mod end;
mod endpoint;
mod host;
#[allow(unsafe_code, reason = "a device reads and writes memory by number")]
mod memory;
mod net;
mod requests;
mod scenario;
mod seen;
mod state;

pub use crate::kit::net::is_inside;
pub use crate::kit::world::run;
pub use behaviour::{IbBehaviour, IbDevice, IbFault};
pub use host::SimFabric;
pub use net::IbNet;
pub use scenario::{Ib, IbScenario};
pub use seen::IbSeen;
