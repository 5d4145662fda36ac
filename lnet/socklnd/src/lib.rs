//! The TCP LND: LNet messages over sockets, compatible with kernel nodes (lnet-wire part E, S-201
//! to S-210).
//!
//! [`SockLnd`] implements [`lnet_api::Lnd`] for all networks of type `tcp`. Each peer has up to
//! three connections (CONTROL, BULK_IN, BULK_OUT), opened by the side that has something to send
//! first. The crate has no thread and makes no blocking call: the holder of a shard's token drives
//! accepts, handshakes, receives and timers with [`Lnd::poll`](lnet_api::Lnd::poll), to which it
//! passes the current time. A message is sent on the caller's own thread if its connection is idle.
//!
//! Not in this crate: matching, credits and routing (the engine does them). It never requests
//! zero-copy acknowledgements, and it refuses version 1 of the hello.
//! ```
//! use std::sync::Arc;
//! # use lnet_api::{Arrival, Errno, RxToken, TxToken, Upcalls, Verdict};
//! use lnet_api::{Lnd, POLL_BUDGET};
//! use lnet_nid::{Nid, ProcessId};
//! # use lnet_region::WriteVec;
//! use lnet_socklnd::{SockConfig, SockLnd};
//! # struct Engine;
//! # impl Upcalls for Engine {
//! #     fn partition_of(&self, _: Nid, _: Nid) -> usize { 0 }
//! #     fn forget_delayed(&self, _: RxToken) -> bool { true }
//! #     fn parse(&self, _: &Arrival<'_>) -> Verdict { Verdict::Discard }
//! #     fn finalize_rx(&self, _: RxToken, _: Result<(), Errno>) {}
//! #     fn finalize_tx(&self, _: TxToken, _: Result<(), Errno>) {}
//! #     fn sink_of_get(&self, _: TxToken) -> Option<WriteVec> { None }
//! #     fn finalize_get(&self, _: TxToken, _: Result<u32, Errno>) {}
//! #     fn peer_lost(&self, _: Nid, _: ProcessId, _: Errno) {}
//! # }
//! # let engine = Engine;
//!
//! let lnd = SockLnd::new(SockConfig { accept_port: 21_987, ..SockConfig::default() })?;
//! lnd.startup("12345-127.8.7.6@tcp".parse()?, Arc::new(engine))?;
//! let now_ns = 0;
//! lnd.poll(0, now_ns, POLL_BUDGET);
//! assert!(lnd.last_failure("127.8.7.7@tcp".parse()?).is_none());
//! lnd.shutdown("127.8.7.6@tcp".parse()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `sock`, `protocol` | [`SockLnd`]: the [`Network`](lnet_lnd::Network) of the socket protocol, [`Sock`]; its implementation of the LND skeleton |
//! | `config` | [`SockConfig`], [`NiConfig`] |
//! | `error`, `advice`, `counters` | [`SockError`], [`PeerFailure`], [`SockCounters`] |
//! | `links` | the connection set of a peer: next connection to open, races, back-off; plain code, no socket, no clock |
//! | `choice` | the connection for a message |
//! | `ni`, `peer`, `send` | TCP state of NIs and peers; sending on the caller's own thread |
//! | `shard` | state that senders share with a driver: the poller, the requests to the driver |
//! | `admission`, `attempts` | limits on accepted connections and handshakes, and on simultaneous connection attempts |
//! | `connections` | a snapshot of the connections: [`ConnStats`], [`ConnInfo`], [`Connections`] |
//! | `conn`, `outbox_message`, `burst` | the sending half of a connection: outbox, gathering, adaptive send coalescing |
//! | `driver` | the work of polling a shard: events, accepting, connecting, receiving, closing, timers |
//! | [`sys`] | the system layer, behind traits |

#![forbid(unsafe_code)]

mod admission;
mod advice;
mod attempts;
mod burst;
mod choice;
mod config;
mod conn;
mod connections;
mod counters;
mod driver;
mod error;
mod links;
mod ni;
mod outbox_message;
mod peer;
mod protocol;
mod send;
mod shard;
mod sock;
pub mod sys;

pub use config::{AcceptPolicy, NiConfig, SockConfig};
pub use connections::{ConnInfo, ConnStats, Connections, ConnectionsByType};
pub use counters::{RxCounters, SockCounters, TxCounters};
pub use error::SockError;
pub use lnet_lnd::{BadTunable, Cause, Config, ConnStep, Hardware, HeldLimits, PeerFailure};
pub use sock::{Sock, SockLnd};
