//! All contact with the operating system, behind traits.
//!
//! The LND speaks of sockets, readiness, addresses and the wall clock through [`Net`], [`Stream`], [`Listener`] and
//! [`Poller`] alone. [`Os`] is the real system. A stand-in in memory lets the whole LND (handshakes, races, timers,
//! sending) run deterministically in virtual time: [`SockLnd::over`](crate::SockLnd::over) takes any [`Net`], and time
//! comes with [`poll`](lnet_api::Lnd::poll) anyway.
//!
//! Every call returns at once: nothing here ever blocks.

mod events;
mod facts;
mod options;
mod os;
mod traits;

pub use events::{EVENTS_MAX, Events, Readiness};
pub use facts::TcpFacts;
pub use options::Options;
pub use os::{Claim, Os, holder_of};
pub use traits::{Accepted, Connecting, Handle, Listener, Net, Poller, Received, Stream};

pub(crate) use traits::{Gather, PIECES_MAX, Scatter};
