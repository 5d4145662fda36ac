//! The parts that all LNDs share. A driver for one kind of network adds how it dials, accepts,
//! digests and emits, and its system layer.
//!
//! [`Network`] implements [`lnet_api::Lnd`] over a [`Protocol`], which holds everything specific to
//! one kind of network.
//!
//! | module | holds |
//! | --- | --- |
//! | `network` | [`Network`]: an LND, from its first NI to its last |
//! | [`protocol`] | [`Protocol`]: the part specific to one kind of network, including its [`protocol::Driver`] |
//! | `shared` | [`LndShared`]: the state that senders, drivers and all other threads share |
//! | `ni`, [`peer`] | [`Ni`], [`Peer`], and their tables |
//! | [`shards`], `shard` | the shards of an LND by CPU partition; [`Shard`]: the state shared by senders and the driver of one shard |
//! | [`driver`] | the parts common to all drivers: serving requests, checking peers, ending NIs |
//! | [`closing`] | how connections in use end |
//! | `held` | [`HeldTable`]: messages that the engine holds back |
//! | [`life`] | liveness of a peer that takes no messages |
//! | [`admission`] | limits on the number of accepted connections |
//! | [`shard_table`] | the table of a shard's connections, indexed by numeric keys with generations |
//! | [`sources`] | the event sources of a driver, and the queue of those that each poll checks |
//! | [`counting`] | live counters, and snapshots of them with the same names |
//! | `failure` | [`PeerFailure`]: why the last connection to a peer failed |
//! | [`pace`] | back-off between attempts to connect to a peer |
//! | `requests` | [`Requests`]: the queue of requests to a shard's driver from any thread |
//! | [`pass_timer`] | the time of a shard's next pass over its connections and peers |
//! | `config` | [`Config`]: the tunables of an LND and of its NIs |
//! | `wait_queue` | [`WaitQueue`]: messages for which there is no connection yet |
//! | `rate_limited_log` | [`RateLimitedLog`]: a rate limit for log lines that peers can cause in any number |

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
pub mod pass_timer;
pub mod peer;
pub mod protocol;
mod rate_limited_log;
mod requests;
mod shard;
pub mod shard_table;
pub mod shards;
mod shared;
pub mod sources;
mod wait_queue;

pub use config::{BadTunable, Config};
pub use driver::{DriverCore, Turn};
pub use failure::{Cause, ConnFailure, ConnStep, PeerFailure};
pub use held::{HeldLimits, HeldMemory, HeldTable, HoldDecision};
pub use network::Network;
pub use ni::{Hardware, Ni, NiTable};
pub use peer::{Peer, PeerState};
pub use protocol::Protocol;
pub use rate_limited_log::RateLimitedLog;
pub use requests::{LIST_ROOM, Requests};
pub use shard::{PollingHere, Shard, ShardRequest};
pub use shared::LndShared;
pub use wait_queue::{WaitQueue, Withdrawn};

/// Defines type aliases for one [`Protocol`] in its LND's crate: [`LndShared`], [`Ni`], [`Peer`],
/// [`PeerState`], [`Shard`], [`ShardRequest`] and [`Turn`].
#[macro_export]
macro_rules! names {
    ($protocol:ty) => {
        pub(crate) type Shared = $crate::LndShared<$protocol>;
        pub(crate) type Ni = $crate::Ni<$protocol>;
        pub(crate) type Peer = $crate::Peer<$protocol>;
        pub(crate) type PeerState = $crate::PeerState<$protocol>;
        pub(crate) type Shard = $crate::Shard<$protocol>;
        pub(crate) type Request = $crate::ShardRequest<$protocol>;
        pub(crate) type Turn<'a> = $crate::Turn<'a, $protocol>;
    };
}
