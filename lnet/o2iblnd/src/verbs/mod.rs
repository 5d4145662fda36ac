//! This host's RDMA devices ([`Host`]), and what there is of them ([`devices`]).
//!
//! Connections are made by the connection manager (librdmacm), with queue pairs of our own: an active side hears that its peer
//! accepts before it commits itself, and a passive one has its receive buffers posted before it accepts. The libraries are
//! loaded when the first network of this kind is asked for (`nlx_ibverbs_sys::load`).
//!
//! # Whose lives end when
//! A connection's identifier outlives its queue pair, that its completion queue, and that the completion channel; all outlive
//! no device: a device's context and protection domain stay as long as the [`Host`] or anything made by it does. Nothing that
//! ends waits for more than another thread's few instructions: the libraries wait until what they have told of an object is
//! acknowledged, so whoever hears of something acknowledges it in the same breath, and has copied what it wants to keep.
//!
//! # Threads
//! The libraries may be called by many threads at once, and each queue locks itself.
//!
//! # Forked children
//! What a device has mapped is not there, or is not the child's: everything of this module does nothing in a child, or says
//! EPERM, and what a child drops it forgets.
//!
//! | module | holds |
//! | --- | --- |
//! | `host` | [`Host`] |
//! | `context` | a device opened: its protection domain and its own events |
//! | `device` | [`crate::fabric::Device`] and registered memory |
//! | `channel` | what one shard hears of |
//! | `completions` | how completion queues tell |
//! | `told` | the connection manager's events as [`crate::fabric::CmEvent`]s |
//! | `cm` | the connection manager's objects |
//! | `endpoint`, `request` | connections, those that peers ask for |
//! | `queues`, `post` | queue pairs with their completion queues; work requests |
//! | `discovery`, `listing`, `gids` | [`devices`]; the library's list of them; which GID a connection uses |

mod channel;
mod cm;
mod completions;
mod context;
mod device;
mod discovery;

mod endpoint;
mod gids;
mod host;
mod listing;
mod post;
mod queues;
mod request;
mod told;

pub use discovery::{LinkLayer, Listed, ListedPort, devices};
pub use gids::{Gid, GidKind, Usage};
pub use host::Host;

use std::ffi::c_int;

use lnet_api::Errno;

use crate::fabric::FabricError;

/// What a function of the libraries gave: those of verbs give the error, or -1 as those of the connection manager do and
/// leave the error in `errno`.
fn check(result: c_int) -> Result<(), Errno> {
    match result {
        0 => Ok(()),
        -1 => Err(Errno::last()),
        error => Err(Errno::from_raw(error.saturating_abs())),
    }
}

fn failed(errno: Errno, what: impl Into<String>) -> FabricError {
    FabricError { what: what.into(), errno }
}
