//! This host's RDMA devices ([`HostFabric`]), and their list ([`devices`]).
//!
//! The connection manager (librdmacm) makes connections, with queue pairs of our own: an active
//! side is notified that its peer accepts before it commits itself, and a passive one posts its
//! receive buffers before it accepts. The libraries are loaded when the first network of this kind
//! is requested (`nlx_ibverbs_sys::load`).
//!
//! # Lifetimes
//! A connection's identifier outlives its queue pair, which outlives its completion queue, which
//! outlives the completion channel. A device outlives them all: its context and protection domain
//! live until the [`HostFabric`] and all objects made by it are dropped. Destroying an object waits at
//! most for a few instructions of another thread: the libraries wait until the object's events are
//! acknowledged, and a thread that reads an event acknowledges it at once, after copying what it
//! needs.
//!
//! # Threads
//! Several threads may call the libraries at once, and each queue locks itself.
//!
//! # Forked children
//! A device's mappings are missing in a forked child, or belong to the parent: all functions of
//! this module do nothing in a child, or fail with EPERM, and objects that a child drops are not
//! destroyed.
//!
//! | module | contents |
//! | --- | --- |
//! | `host` | [`HostFabric`] |
//! | `context` | an open device: its protection domain and its own events |
//! | `device` | [`crate::fabric::Device`] and registered memory |
//! | `channel` | the event channel of one shard |
//! | `completions` | events of completion queues |
//! | `manager_events` | the connection manager's events as [`crate::fabric::CmEvent`]s |
//! | `cm` | the connection manager's objects |
//! | `endpoint`, `request` | connections; requests of peers |
//! | `queues`, `post` | queue pairs with their completion queues; work requests |
//! | `discovery`, `listing`, `gids` | [`devices`]; the library's list of them; the GID that a connection uses |

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
mod manager_events;
mod post;
mod queues;
mod request;

pub use discovery::{LinkLayer, Listed, ListedPort, devices};
pub use gids::{Gid, GidKind, Usage};
pub use host::HostFabric;

use std::ffi::c_int;

use lnet_api::Errno;

use crate::fabric::FabricError;

/// Converts a result of the libraries' functions: those of verbs return the error; those of the
/// connection manager return -1 and set `errno`.
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
