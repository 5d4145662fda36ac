//! The TCP LND.

#![forbid(unsafe_code)]

mod burst;
mod choice;
mod config;
mod conn;
mod counters;
mod driver;
mod error;
mod failure;
mod links;
mod lnd;
mod ni;
mod outgoing;
mod peer;
mod shared;
mod slab;
mod sys;

pub use config::{AcceptPolicy, SockConfig};
pub use counters::{RxCounters, SockCounters, TxCounters};
pub use error::SockError;
pub use failure::{Failure, Step};
pub use lnd::SockLnd;
