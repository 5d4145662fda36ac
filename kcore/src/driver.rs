//! The helper's side of the driver protocol: many clients, none of them trusted, over one LNet.
//!
//! A [`Host`] is what all clients share; a [`Session`] is one client. There is no thread, no socket and no clock in here:
//! whoever serves sockets gives each packet to [`Session::request`], lets the submission ring be carried out with
//! [`Session::drain`], and [closes](Session::close) the session when the client is gone or breaks the rules ([`Violation`]).
//!
//! | module | holds |
//! | --- | --- |
//! | `host` | [`Host`] |
//! | `session` | [`Session`] |
//! | `outlet` | where the events of a client's transfer machine go |
//! | `departed` | what clients that are gone have left |
//! | `slots` | handles of one client |
//! | `tally` | what is counted of it |
//! | `policy` | [`Policy`], [`Rights`]: who may use what |
//! | `quotas` | [`ClientQuotas`]: how much of it |
//! | `status` | [`HostStatus`]: what an operator sees |
//! | [`service`] | threads and sockets around all of it |
//! | `violation` | [`Violation`]: why a client is cut off |
//! | `watched` | memory of queues whose pages a client may take away |

mod departed;
mod host;
mod outlet;
mod policy;
mod quotas;
pub mod service;
mod session;
mod slots;
mod status;
mod tally;
mod violation;
mod watched;

pub use departed::Departure;
pub use host::{Host, HostConfig};
pub use policy::{Credentials, Nids, Policy, Portals, Rights};
pub use quotas::ClientQuotas;
pub use session::{Answer, Session};
pub use status::{ClientStatus, HostStatus, Leftovers, TmStatus, Totals};
pub use violation::Violation;
