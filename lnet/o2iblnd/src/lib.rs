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

pub mod config;
pub mod conn;
pub mod fabric;
pub mod links;
pub mod sizes;
#[cfg(feature = "verbs")]
#[allow(unsafe_code, reason = "the libraries are C, and devices write to memory")]
pub mod verbs;

pub use config::O2ibConfig;
pub use fabric::Fabric;
