//! Ping and push: the node's services on portal 0 (lnet-wire 15 to 19).

mod back;
mod rate;
mod source;
mod target;

pub use back::PUSH_BACK_NS;
pub(crate) use source::Pings;
pub use source::{Ping, Push};
pub(crate) use target::PingTarget;
