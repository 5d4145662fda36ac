//! The system layer, behind traits.
//!
//! The LND uses sockets, readiness, addresses and the wall clock only through [`TcpStack`], [`Stream`],
//! [`Listener`] and [`Poller`]. [`Os`] is the real system. An implementation in memory lets the
//! whole LND (handshakes, races, timers, sending) run deterministically in virtual time:
//! [`SockLnd::over`](crate::SockLnd::over) takes any [`TcpStack`], and [`poll`](lnet_api::Lnd::poll)
//! passes the time anyway.
//!
//! No call blocks.

mod events;
mod facts;
mod options;
mod os;
mod traits;

pub use events::{EVENTS_MAX, Events, Readiness};
pub use facts::TcpFacts;
pub use options::Options;
pub use os::{Claim, Os, holder_of};
pub use traits::{Accepted, Connecting, Handle, Listener, Poller, RecvResult, Stream, TcpStack};

pub(crate) use traits::{Gather, PIECES_MAX, Scatter};
