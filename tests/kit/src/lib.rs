//! Common parts of the tests of several crates: a dev-dependency, and a dependency of `nlx-bench`.
//! No product crate depends on it.
//!
//! | module | holds |
//! | --- | --- |
//! | [`addresses`] | loopback addresses that no other test uses |
//! | [`buffers`] | memory in pieces, and bytes that reveal mixed-up data |
//! | [`events`] | event handlers: a log, and closures |
//! | [`heap`] | [`heap::WatchedHeap`], an allocator that may refuse; one that counts for each thread |
//! | [`namespace`] | addresses of a network namespace |
//! | [`numa`] | the NUMA placement of memory |
//! | [`Rng`] | random numbers determined by a seed |
//! | [`warnings`] | the warnings of a thread |
//! | `station` (with the feature `node`) | whole nodes that exchange messages |
//! | `lnds` (with the feature `lnds`) | nodes of an engine and an LND, over TCP and over verbs |

#![deny(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod addresses;
pub mod buffers;
pub mod heap;
#[cfg(feature = "lnds")]
pub mod lnds;
pub mod namespace;
pub mod numa;
#[cfg(feature = "node")]
pub mod station;
mod waiting;
pub mod warnings;

pub use lnet_fake::{Rng, events};
pub use waiting::{TIME_LIMIT, until};
