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
mod seen;
mod state;

pub use habits::{IbDevice, IbFault, IbHabits};
pub use host::SimFabric;
pub use net::IbNet;
pub use seen::IbSeen;
pub use state::is_inside;
