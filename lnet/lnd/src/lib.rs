//! What LNDs have in common: a driver for one kind of network is what it dials, accepts, digests and emits, and its system layer;
//! the rest is here, and stands once.
//!
//! [`Network`] implements [`lnet_api::Lnd`] over a [`Protocol`], which is what one kind of network has of its own.
//!
//! | module | holds |
//! | --- | --- |
//! | `network` | [`Network`]: an LND, from its first NI to its last |
//! | [`protocol`] | [`Protocol`]: what one kind of network has of its own, its [`protocol::Driver`] among it |
//! | `shared` | [`Shared`]: what senders, drivers and everybody else share |
//! | `ni`, [`peer`] | [`Ni`], [`Peer`], and their tables |
//! | [`shards`], `shard` | the shards of an LND by CPU partition; [`Shard`]: what senders and the driver of one share |
//! | [`driver`] | what all drivers do alike: serving requests, looking at peers, ending NIs |
//! | [`closing`] | how connections in use end |
//! | `held` | [`HeldTable`]: messages that the engine holds back |
//! | [`life`] | whether a peer lives that takes nothing |
//! | [`admission`] | how many connections of peers are let in |
//! | [`slab`] | the table of a shard's connections: names that travel as numbers, and are never used twice |
//! | [`sources`] | what a driver is told of by name, and the queue of what it looks at unasked |
//! | [`counting`] | live counters, and snapshots of them with the same names |
//! | `failure` | [`Failure`]: why the last connection to a peer failed |
//! | [`pace`] | how soon a peer is tried again |
//! | `requests` | [`Requests`]: what any thread asks of a shard's driver |
//! | [`timers`] | when a shard looks at its connections and peers next |
//! | `config` | [`Config`]: the tunables of an LND and of its NIs |
//! | `waiting` | [`Waiting`]: messages for which there is no connection yet |
//! | `rate_limited_log` | [`RateLimitedLog`]: log lines that strangers, or bad luck, could cause in any number |

#![forbid(unsafe_code)]

pub mod admission;
pub mod closing;
mod config;
pub mod counting;
pub mod driver;
mod failure;
mod held;
pub mod life;
mod network;
mod ni;
pub mod pace;
pub mod peer;
pub mod protocol;
mod rate_limited_log;
mod requests;
mod shard;
pub mod shards;
mod shared;
pub mod slab;
pub mod sources;
pub mod timers;
mod waiting;

pub use config::{BadTunable, Config};
pub use driver::{Core, Turn};
pub use failure::{Cause, Failure, Miss, Step};
pub use held::{Admitted, HeldLimits, HeldTable, Memory};
pub use network::Network;
pub use ni::{Hardware, Ni, NiTable};
pub use peer::{Peer, PeerState};
pub use protocol::Protocol;
pub use rate_limited_log::RateLimitedLog;
pub use requests::{LIST_ROOM, Requests};
pub use shard::{PollingHere, Request, Shard};
pub use shared::Shared;
pub use waiting::{Waiting, Withdrawn};

/// Names for the types of one kind of network, in its LND's crate: [`Shared`], [`Ni`], [`Peer`], [`PeerState`], [`Shard`], [`Request`]
/// and [`Turn`] of this [`Protocol`].
#[macro_export]
macro_rules! names {
    ($protocol:ty) => {
        pub(crate) type Shared = $crate::Shared<$protocol>;
        pub(crate) type Ni = $crate::Ni<$protocol>;
        pub(crate) type Peer = $crate::Peer<$protocol>;
        pub(crate) type PeerState = $crate::PeerState<$protocol>;
        pub(crate) type Shard = $crate::Shard<$protocol>;
        pub(crate) type Request = $crate::Request<$protocol>;
        pub(crate) type Turn<'a> = $crate::Turn<'a, $protocol>;
    };
}
