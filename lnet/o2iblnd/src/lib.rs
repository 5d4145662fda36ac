//! The verbs LND: LNet messages over RDMA, compatible with kernel nodes (lnet-wire part F, S-501 to
//! S-505), and the arithmetic of its tunables (S-506 to S-508).
//!
//! [`O2ibLnd`] implements [`lnet_api::Lnd`] for all networks of type `o2ib` over the devices of a
//! [`Fabric`]: this host's, or simulated ones. A message that fits into 4096 bytes is sent as one
//! message. The device of the sending node writes a larger payload straight into registered memory
//! of the receiving node (RDMA WRITE), without a copy unless the memory of either side cannot be
//! registered. The LND has no thread and no blocking call: the thread that holds a shard's token
//! drives connections, completions and timers with [`Lnd::poll`](lnet_api::Lnd::poll). A message is
//! sent in the caller's own thread if its connection is established and has credits.
//!
#![cfg_attr(feature = "verbs", doc = "```no_run")]
#![cfg_attr(not(feature = "verbs"), doc = "```ignore")]
//! use std::sync::Arc;
//!
//! use lnet::{Engine, EngineConfig};
//! use lnet_api::{LNet, Lnd, POLL_BUDGET};
//! use lnet_nid::{Pid, ProcessId};
//! use lnet_o2iblnd::{O2ibConfig, O2ibLnd};
//!
//! // This host's devices; a node has one such LND for all its networks over RDMA.
//! let lnd = Arc::new(O2ibLnd::new(O2ibConfig { peer_credits: 32, ..O2ibConfig::default() })?);
//! let engine = Engine::new(EngineConfig::new(Pid::LNET, 1));
//! engine.add_ni(ProcessId::lnet("10.1.0.1@o2ib".parse()?), lnd.clone())?;
//! // The waiting thread drives the network: the caller supplies the time and the thread.
//! let now_ns = 1;
//! engine.advance(now_ns);
//! for shard in 0..lnd.shards() {
//!     lnd.poll(shard, now_ns, POLL_BUDGET);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Short replies
//! A GET whose MD is longer than 3976 bytes is answered by RDMA writes into the MD. A reply that is
//! shorter than the MD, and does not end at the end of one of the MD's fragments, is accepted only
//! from a node of nlx: a kernel node may not have written all of it. From other peers such a GET
//! ends with EIO (`replies`, counted as [`RxCounters::short_replies`]). A GET to a kernel node
//! should therefore ask for exactly the number of bytes that the target has, or for at most 3976.
//!
//! Limits: the LND neither matches nor routes (the engine does), never uses RDMA READ, and refuses
//! version 1 of the protocol.
//!
//! | module | contents |
//! | --- | --- |
//! | `o2ib`, `protocol` | [`O2ibLnd`]: the [`Network`](lnet_lnd::Network) of the verbs protocol, [`O2ib`]; its implementation of the LND skeleton's `Protocol` |
//! | [`config`] | [`O2ibConfig`] and [`NiConfig`], the tunables with LNet's names |
//! | [`sizes`] | queue, pool and memory sizes computed from tunables, for nlx and for the kernel's releases |
//! | `advice`, `counters`, `conn_stats` | [`PeerFailure`], [`O2ibCounters`], [`ConnStats`] |
//! | [`conn`] | one established connection, without verbs: credits, queues, exchanges |
//! | [`links`] | the connections to one peer, without verbs: attempts, races, back-off |
//! | [`fabric`] | all contact with RDMA devices, behind traits |
//! | `verbs` | this host's devices (with the feature `verbs`) |
//! | `ni`, `send` | data of NIs; sending in the caller's own thread |
//! | `shard` | data shared by senders and the driver; requests to the driver |
//! | `connection`, `op_data`, `transmit`, `work_requests` | a connection with its queue pair; the driver's data of each operation; preparing and emitting messages; posting work requests together |
//! | `admission`, `depths` | bounds on the connections that peers open; the queue depths that a device accepts |
//! | `buffers`, `memory`, `writes` | message buffers; registered memory, and bounce buffers for memory that is not; splitting a payload into WRITEs |
//! | `replies` | the short replies to a GET that are accepted |
//! | `driver` | polling a shard: events, dialling, listening, completions, messages, closing, timers |

#![deny(unsafe_code)]

mod admission;
mod advice;
mod buffers;
pub mod config;
pub mod conn;
mod conn_stats;
mod connection;
mod counters;
mod depths;
mod driver;
pub mod fabric;
pub mod links;
mod memory;
mod ni;
mod o2ib;
mod op_data;
mod protocol;
mod replies;
mod send;
mod shard;
pub mod sizes;
mod transmit;
#[cfg(feature = "verbs")]
#[allow(unsafe_code, reason = "the libraries are C, and devices write to memory")]
pub mod verbs;
mod work_requests;
mod writes;

pub use config::{NiConfig, O2ibConfig, TIMEOUT_S};
pub use conn_stats::ConnStats;
pub use counters::{O2ibCounters, RxCounters, TxCounters};
pub use fabric::Fabric;
pub use lnet_lnd::{BadTunable, Cause, Config, ConnStep, Hardware, HeldLimits, PeerFailure};
pub use o2ib::{O2ib, O2ibLnd};
