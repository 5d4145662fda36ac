//! The service layer: serves requests on worker threads of CPU partitions, and makes calls (S-313).
//!
//! For programs that answer requests over LNet, each on the CPU partition in which it arrived: the
//! test node and the console of lst are the first. A program implements [`Handler`], and starts a
//! [`Service`] with it on a [`Pool`] of worker threads. Request buffers grow and shrink with the
//! load, bulk is moved before the reply, and a request allocates nothing.
//!
#![cfg_attr(feature = "lnet", doc = "```no_run")]
#![cfg_attr(not(feature = "lnet"), doc = "```ignore")]
//! use lnet_nid::{MatchBits, Portal};
//! use lnet_node::{Node, NodeConfig};
//! use nlx_service::portals::{PortalNames, Portals};
//! use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service};
//!
//! /// Replies with the bytes of the request. Its first eight are the match bits of the reply.
//! struct Echo;
//!
//! impl Handler<Portals> for Echo {
//!     type State = ();
//!
//!     fn request(&self, request: Request<'_, Portals, ()>) -> Next<MatchBits> {
//!         let Some((tag, _)) = request.bytes.split_first_chunk() else { return Next::Drop };
//!         let length = request.bytes.len();
//!         request.reply[..length].copy_from_slice(request.bytes);
//!         Next::Reply { tag: u64::from_le_bytes(*tag), length }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::start(&NodeConfig::new().net("tcp(127.0.0.1)")?)?;
//! let table = node.partitions();
//! let pool = Pool::start("echo", node.drive(), table.partitions(), PoolOptions::of(table, 0))?;
//! let names = PortalNames {
//!     requests: Portal::new(20)?,
//!     bits: vec![MatchBits(7)],
//!     replies: Portal::new(21)?,
//!     lazy: true,
//! };
//! let portals = Portals::new(node.lnet(), table.clone(), names);
//! let service = Service::start(&pool, portals, BufferOptions::default(), Echo)?;
//! println!("{:?}", service.counters());
//! # Ok(())
//! # }
//! ```
//!
//! | module or item | what it has |
//! | --- | --- |
//! | [`pool`] | worker threads, which wait in a [`Driver`]; queues of items, their order |
//! | [`Service`], [`Handler`], [`Next`] | request buffers; the course of a request |
//! | [`transport`] | what a service needs of the network below it |
//! | [`machines`] | the transport over a transfer machine of the Core, also of a helper |
#![cfg_attr(feature = "lnet", doc = "| [`portals`] | the transport over LNet portals |")]
#![cfg_attr(feature = "lnet", doc = "| [`caller`] | calls: request, reply, bulk, deadline |")]
//! | [`client`] | calls over any transport: request, answer, bulk; blocking, futures, callbacks |
//! | [`offers`] | memory of a client that its server may read or fill: the table in a request |
//! | [`rpc`] | the protocol of requests and answers: deadlines, retries, answers exactly once |
//! | [`PoolOptions`], [`BufferOptions`] | numbers of threads and buffers, and their limits |
//! | [`PoolCounters`], [`ServiceCounters`], [`Percentiles`] | what is counted and measured |
//! | [`ServiceStatistics`] | all of it for one service, by CPU partition, as `nlx status` shows it |
//!
//! The feature `lnet`, which is on by default, has the parts over LNet. Without it a program links
//! no LNet. `docs/service.md` explains the layer as a whole.

#![forbid(unsafe_code)]

mod buffers;
#[cfg(feature = "lnet")]
pub mod caller;
pub mod client;
mod driver;
mod error;
pub mod machines;
pub mod offers;
mod options;
pub mod pool;
#[cfg(feature = "lnet")]
pub mod portals;
mod request;
pub mod rpc;
mod service;
mod statistics;
pub mod transport;

pub use client::Client;
pub use driver::Driver;
#[cfg(feature = "lnet")]
pub use driver::OnPartitions;
pub use error::ServiceError;
pub use options::{BUFFERS_MAX, BufferOptions, PoolOptions, REQUESTS_PER_BUFFER_MAX, THREADS_MAX};
pub use pool::{Class, Pool, PoolCounters, PoolHandle, Source};
pub use request::{Handler, Next, Request};
pub use service::{MESSAGE_BYTES, MESSAGES_MAX, Service};
pub use statistics::{PartitionStatistics, Percentiles, ServiceCounters, ServiceStatistics};
pub use transport::Transport;
