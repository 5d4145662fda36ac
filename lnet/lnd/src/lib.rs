//! What LNDs have in common: a driver for one kind of network is what it dials, accepts, digests and emits, and its system layer;
//! the rest is here, and stands once.
//!
//! | module | holds |
//! | --- | --- |
//! | [`shards`] | the shards of an LND by CPU partition, and what the driver of each alone touches |
//! | [`slab`] | the table of a shard's connections: names that travel as numbers, and are never used twice |
//! | [`tables`] | NIs and peers by their names |
//! | [`counting`] | live counters, and snapshots of them with the same names |
//! | `failure` | [`Failure`]: why the last connection to a peer failed |
//! | `requests` | [`Requests`]: what any thread asks of a shard's driver |
//! | [`timers`] | when a shard looks at its connections and peers next |
//! | `waiting` | [`Waiting`]: messages for which there is no connection yet |
//! | `seldom` | [`Seldom`]: log lines that strangers, or bad luck, could cause in any number |

#![forbid(unsafe_code)]

pub mod counting;
mod failure;
mod requests;
mod seldom;
pub mod shards;
pub mod slab;
pub mod tables;
pub mod timers;
mod waiting;

pub use failure::{FailedStep, Failure};
pub use requests::{LIST_ROOM, Requests};
pub use seldom::Seldom;
pub use waiting::{Waiting, Withdrawn};
