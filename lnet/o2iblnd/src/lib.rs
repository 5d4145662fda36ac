//! The verbs LND: LNet messages over RDMA, compatible with kernel nodes (lnet-wire part F, S-501 to S-505), and the
//! arithmetic of its tunables (S-506 to S-508).
//!
//! [`O2ibLnd`] implements [`lnet_api::Lnd`] for all networks of type `o2ib` over the devices of a [`Fabric`]: this host's, or
//! simulated ones. What fits a message of 4096 bytes is sent in one; all else is written by the device of whoever has the
//! data straight into registered memory of whoever wants it (RDMA WRITE), and never copied. There is no thread here and no
//! blocking call: whoever holds a shard's token drives connections, completions and timers with
//! [`Lnd::poll`](lnet_api::Lnd::poll). A message is sent in the caller's own thread if its connection stands and has credits.
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
//! // Whoever waits for something drives: time comes from outside, and so does the thread.
//! let now_ns = 1;
//! engine.advance(now_ns);
//! for shard in 0..lnd.shards() {
//!     lnd.poll(shard, now_ns, POLL_BUDGET);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Short replies
//! A GET whose MD is longer than 3976 bytes is answered by RDMA writes into it. If the reply is shorter than the MD, and does not
//! end with one of the MD's fragments, it counts only if the peer is a node of nlx: kernel nodes may not have written it. From
//! other peers such a GET ends with EIO (`replies`, counted as [`RxCounters::short_replies`]). So a GET of a kernel node should ask
//! for exactly as many bytes as there are, or for at most 3976.
//!
//! What it is not: it matches nothing and routes nothing (the engine does), it never reads by RDMA, and version 1 of the
//! protocol is refused.
//!
//! | module | holds |
//! | --- | --- |
//! | `o2ib`, `protocol` | [`O2ibLnd`]: the [`Network`](lnet_lnd::Network) of the verbs protocol, [`O2ib`]; what it brings to the LND skeleton |
//! | [`config`] | [`O2ibConfig`] and [`NiConfig`], the tunables with LNet's names |
//! | [`sizes`] | what tunables come to: queues, pools and memory, of nlx and of the kernel's releases |
//! | `advice`, `counters`, `conn_stats` | [`Failure`], [`O2ibCounters`], [`ConnStats`] |
//! | [`conn`] | one established connection, without verbs: credits, queues, exchanges |
//! | [`links`] | the connections to one peer, without verbs: attempts, races, back-off |
//! | [`fabric`] | all contact with RDMA devices, behind traits |
//! | `verbs` | this host's devices (with the feature `verbs`) |
//! | `ni`, `peer`, `send` | what is kept of NIs and peers; sending in the caller's own thread |
//! | `shard` | what senders and one driver share; what is asked of the driver |
//! | `connection`, `item`, `transmit`, `batch` | a connection with its queue pair; what is kept with each operation; preparing and emitting; posting together |
//! | `admission`, `depths` | how many connections of peers are let in; how deep the queues are that a device makes |
//! | `buffers`, `memory`, `writes` | message buffers; registered memory, and the pool for what is not; how a payload is split into WRITEs |
//! | `replies` | which short replies to a GET count |
//! | `driver` | what polling a shard does: events, dialling, listening, completions, messages, closing, timers |

#![deny(unsafe_code)]

mod admission;
mod advice;
mod batch;
mod buffers;
pub mod config;
pub mod conn;
mod conn_stats;
mod connection;
mod counters;
mod depths;
mod driver;
pub mod fabric;
mod item;
pub mod links;
mod memory;
mod ni;
mod o2ib;
mod peer;
mod protocol;
mod replies;
mod send;
mod shard;
pub mod sizes;
mod transmit;
#[cfg(feature = "verbs")]
#[allow(unsafe_code, reason = "the libraries are C, and devices write to memory")]
pub mod verbs;
mod writes;

pub use config::{NiConfig, O2ibConfig, TIMEOUT_S};
pub use conn_stats::ConnStats;
pub use counters::{O2ibCounters, RxCounters, TxCounters};
pub use fabric::Fabric;
pub use lnet_lnd::{BadTunable, Cause, Config, Failure, Hardware, HeldLimits, Step};
pub use o2ib::{O2ib, O2ibLnd};
