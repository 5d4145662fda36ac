//! The TCP LND: LNet messages over sockets, compatible with kernel nodes (lnet-wire part E, S-201 to S-210).
//!
//! [`SockLnd`] implements [`lnet_api::Lnd`] for all networks of type `tcp`. Per peer it keeps up to three connections
//! (CONTROL, BULK_IN, BULK_OUT), which the side opens that first has something to send. There is no thread here and no
//! blocking call: whoever holds the shard's token drives accepts, handshakes, receives and timers with
//! [`Lnd::poll`](lnet_api::Lnd::poll), and time comes with that call. A message is sent in the caller's own thread if
//! its connection is idle.
//!
//! What it is not: it matches nothing, counts no credits and routes nothing (the engine does), it never asks for
//! zero-copy acks, and the hello of version 1 is refused.
//!
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
//! | `sock`, `protocol` | [`SockLnd`]: the [`Network`](lnet_lnd::Network) of the socket protocol, [`Sock`]; what it brings to the LND skeleton |
//! | `config` | [`SockConfig`], [`NiConfig`] |
//! | `error`, `advice`, `counters` | [`SockError`], [`Failure`], [`SockCounters`] |
//! | `links` | which connections a peer has, which is opened next, races and back-off: plain code, no socket, no clock |
//! | `choice` | which connection a message goes on |
//! | `ni`, `peer`, `send` | what is kept of NIs and peers; sending in the caller's own thread |
//! | `shard` | what senders and one driver share: its poller, what is asked of it |
//! | `admission`, `attempts` | how many strangers are let in; how many connections are opened at a time |
//! | `connections` | what there is at a moment: [`ConnStats`], [`Connection`], [`Connections`] |
//! | `conn`, `outgoing`, `burst` | the sending half of a connection: its outbox, gathering, and when messages wait for company |
//! | `driver` | what polling a shard does: events, accepting, connecting, receiving, closing, timers |
//! | [`sys`] | all contact with the operating system, behind traits |

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
mod outgoing;
mod peer;
mod protocol;
mod send;
mod shard;
mod sock;
pub mod sys;

pub use config::{AcceptPolicy, NiConfig, SockConfig};
pub use connections::{ConnStats, Connection, Connections, ConnectionsByType};
pub use counters::{RxCounters, SockCounters, TxCounters};
pub use error::SockError;
pub use lnet_lnd::{BadTunable, Cause, Config, Failure, Hardware, HeldLimits, Step};
pub use sock::{Sock, SockLnd};
