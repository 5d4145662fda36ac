//! Ping and push: the node's own services on portal 0 (lnet-wire 15 to 19).

mod source;
mod target;

pub use source::{Ping, Push};
pub(crate) use source::{PingSource, SINK_BYTES};
pub(crate) use target::PingTarget;
