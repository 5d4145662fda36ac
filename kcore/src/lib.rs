//! The Core interface served by LNet: what Motr calls the kernel core, here in user space.
//!
//! [`Kcore`] turns operations of transfer machines into match entries, memory descriptors, PUTs and GETs of LNet
//! (S-413), and LNet's events into buffer events (S-411). It reaches LNet only through [`lnet_api::LNet`], and the network
//! only through [`lnet_api::Drive`]: so the engine and a scripted stand-in are interchangeable.
//!
//! What it keeps true:
//!
//! - An address (NID, PID, portal, id) belongs to one transfer machine; ids are given from the top (S-404).
//! - Space for every event of an operation is reserved before the operation starts, so no completion is ever lost (S-407).
//! - The event callback takes constant time, allocates nothing and calls nothing of LNet. Everything it touches is kept
//!   alive by the event queue that calls it (S-415).
//! - A buffer belongs to at most one operation. The association is set before LNet is called, because over the loopback the
//!   operation can end inside that call, and cleared under the transfer machine's producer lock.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lnet_api::{Drive, LNet};
//! use nlx_core::{Core, CoreError, TmOptions};
//! use nlx_kcore::Kcore;
//!
//! /// Starts a transfer machine on a node, and stops it again.
//! fn visit(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>) -> Result<(), CoreError> {
//!     let core = Kcore::new(lnet, drive);
//!     let tm = core.tm_start(&"0@lo:12345:31:*".parse()?, &TmOptions::default())?;
//!     println!("{}", tm.address());
//!     tm.stop()
//! }
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `kcore` | [`Kcore`]: the domain |
//! | `registry` | who has which address, over all domains of a node |
//! | `buffers` | registered buffers |
//! | `bell` | waking the thread that waits |
//! | `machine` | a transfer machine: events, waiting, stopping |
//! | `submit` | how each operation is set up with LNet |
//! | `shared` | what a transfer machine shares with its event callback |
//! | `flight` | operations in flight |
//! | `counters` | match bits for passive buffers |
//! | `rules` | what each LNet event means for its operation |

#![forbid(unsafe_code)]

mod bell;
mod buffers;
mod counters;
mod flight;
mod kcore;
mod machine;
mod registry;
mod rules;
mod shared;
mod submit;

#[cfg(test)]
mod tests;

pub use kcore::{Faults, Kcore};
