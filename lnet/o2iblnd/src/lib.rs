//! The verbs LND: LNet messages over RDMA, compatible with kernel nodes (lnet-wire part F, S-501 to S-505), and the
//! arithmetic of its tunables (S-506 to S-508).
//!
//! | module | holds |
//! | --- | --- |
//! | [`config`] | [`O2ibConfig`], the tunables with LNet's names |
//! | [`conn`] | one established connection, without verbs: credits, queues, exchanges |
//! | [`fabric`] | all contact with RDMA devices, behind traits |
//! | [`links`] | the connections to one peer, without verbs: attempts, races, back-off |
//! | [`sizes`] | what tunables come to: queues, pools and memory, of nlx and of the kernel's releases |
//! | `verbs` | this host's devices (with the feature `verbs`) |

#![deny(unsafe_code)]

mod buffers;
mod census;
pub mod config;
pub mod conn;
mod connection;
mod counters;
mod driver;
mod error;
pub mod fabric;
mod failure;
mod item;
pub mod links;
mod lnd;
mod memory;
mod ni;
mod peer;
mod shard;
mod shards;
mod shared;
pub mod sizes;
mod slab;
mod transmit;
#[cfg(feature = "verbs")]
#[allow(unsafe_code, reason = "the libraries are C, and devices write to memory")]
pub mod verbs;
mod writes;

pub use census::Census;
pub use config::{NiConfig, O2ibConfig};
pub use counters::{O2ibCounters, RxCounters, TxCounters};
pub use error::O2ibError;
pub use fabric::Fabric;
pub use failure::{Cause, Failure, Step};
pub use lnd::O2ibLnd;
