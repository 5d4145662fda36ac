//! LNet in user space: what a storage client programs against.
//!
//! A [`Domain`] is a program's access to the network. A [`TransferMachine`] in it has an address,
//! sends and receives messages, and moves bulk data. Each operation is given a [`Buffer`] and ends
//! with an [`Event`], which [`TransferMachine::wait`] returns (S-5). Peers are other programs that
//! use nlx, or Motr's transport over any LNet node.
//!
//! # Three ways in
//!
//! ```text
//!   in-process                     through a helper                         over a script
//!   ──────────                     ────────────────                         ─────────────
//!   ┌─ your program ─┐     ┌─ your program ─┐ ┌─ another ─┐     ┌─ your program's test ─┐
//!   │ nlx            │     │ nlx            │ │ nlx       │     │ nlx                   │
//!   │ LNet           │     └────────┬───────┘ └─────┬─────┘     │ a scripted LNet       │
//!   └───────┬────────┘        shared memory, a Unix socket      └───────────────────────┘
//!           │                ┌──────┴───────────────┴────┐
//!           │                │ nlxd: LNet                │
//!           │                └─────────────┬─────────────┘
//!        network                        network
//! ```
//!
//! | opened by | feature | who runs the network | for |
//! | --- | --- | --- | --- |
//! | `Domain::in_process` | `in-process`, default | threads of the program itself | one server or client per host; no set-up at all |
//! | `Domain::helper` | `helper`, default | the process `nlxd`, one per host | several programs that share NIDs and ports; a program that dies does not disturb the others |
//! | `Domain::over_fake` | `fake` | a script with a simulated clock | tests of programs that use this crate |
//!
//! Only the call that opens the domain differs: everything below is the same in all three. A
//! program that uses only a helper can leave the network stack out
//! (`default-features = false, features = ["helper"]`).
//!
//! # A message
//!
//! ```
//! use nlx::{Domain, NodeConfig, Op, TmOptions};
//!
//! // A node with only the loopback network; `.net("tcp(eth0)")?` would add another one.
//! let domain = Domain::in_process(&NodeConfig::new())?;
//! let server = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
//! server.start(Op::receive(domain.allocate(4096)?))?;
//!
//! let client = domain.transfer_machine("0@lo:12345:31:*", TmOptions::default())?;
//! client.start(Op::send(domain.buffer_of(b"hello")?, &client.end_point("0@lo:12345:31:1")?))?;
//!
//! let event = server.wait(None)?.expect("a wait without timeout brings an event");
//! assert_eq!(event.message.as_deref(), Some(&b"hello"[..]));
//! assert_eq!(event.sender.map(|sender| sender.address()), Some(client.address()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A server and its client
//!
//! Two nodes, here in one process, over TCP. The client offers memory, and the server reads from
//! it.
//!
//! ```
//! use std::{error::Error, thread, time::Duration};
//!
//! use nlx::{Domain, NodeConfig, Offer, Op, Started, TmOptions, TransferMachine};
//!
//! const SERVER: &str = "127.0.0.1@tcp:12345:31:1";
//! const SOON: Option<Duration> = Some(Duration::from_secs(60));
//! type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;
//!
//! /// Opens a node with a network, and a transfer machine on it with one receive buffer posted.
//! fn open(net: &str, address: &str) -> Outcome<(Domain, TransferMachine)> {
//!     let domain = Domain::in_process(&NodeConfig::new().net(net)?.accept_port(9733))?;
//!     let tm = domain.transfer_machine(address, TmOptions::default())?;
//!     tm.start(Op::receive(domain.allocate(4096)?))?;
//!     Ok((domain, tm))
//! }
//!
//! /// Reads the data that the client offers out of the client's memory, whatever its size, and answers.
//! fn serve((domain, tm): &(Domain, TransferMachine)) -> Outcome<()> {
//!     let request = tm.wait(SOON)?.ok_or("no message came")?;
//!     let offer = Offer::from_bytes(&request.message.ok_or("no message")?)?;
//!     tm.start(Op::active_receive(domain.allocate(offer.length() as usize)?, &offer).timeout(SOON))?;
//!     let bulk = tm.wait(SOON)?.ok_or("nothing came")?;
//!     bulk.status?;
//!     let answer = domain.buffer_of(format!("{} bytes", bulk.length).as_bytes())?;
//!     Ok(tm.start(Op::send(answer, &request.sender.ok_or("no sender")?).timeout(SOON)).map(drop)?)
//! }
//!
//! fn main() -> Outcome<()> {
//!     let server = open("tcp(127.0.0.1)", SERVER)?;
//!     let server = thread::spawn(move || serve(&server).map(|()| server));
//!     let (domain, tm) = open("tcp(127.0.0.2)", "127.0.0.2@tcp:12345:31:*")?;
//!     let Started { offer, .. } = tm.start(Op::passive_send(domain.allocate(8 << 20)?).timeout(SOON))?;
//!     tm.start(Op::send(domain.buffer_of(offer.as_bytes())?, &tm.end_point(SERVER)?).timeout(SOON))?;
//!     // Three events: the request has left, the data has been read, and the answer. Waiting drives the network.
//!     while let Some(event) = tm.wait(SOON)? {
//!         event.status?;
//!         if let Some(answer) = event.message {
//!             println!("the server has read {}", String::from_utf8_lossy(&answer));
//! # assert_eq!(&answer[..], b"8388608 bytes");
//!             break;
//!         }
//!     }
//!     server.join().expect("it does not panic").map(drop)
//! }
//! ```
//!
//! # What to know
//!
//! - **A waiting thread drives the network.** [`TransferMachine::wait`] polls the network itself;
//!   it and [`TransferMachine::poll`] also end operations whose timeout has passed. While a program
//!   computes for long, the node's own threads drive the network, but the program gets no events.
//! - **A buffer in flight belongs to its operation.** It is moved into the call and returned with
//!   the operation's last event, or at once if the operation is refused ([`Refused`]). In between,
//!   safe code can neither access nor free it.
//! - **A message is lent, not copied.** A [`Message`] keeps its bytes alive and unchanged while it
//!   lives; its receive buffer can be posted again once all its messages are dropped.
//! - **A batch sends several messages together.** A program that has several messages to send
//!   before its next wait puts them in a [`Batch`].
//! - **Memory from the domain is reached by its network.** Over a helper, [`Domain::allocate`] and
//!   pools return memory that is shared with the helper. [`Domain::register`] and [`Domain::adopt`]
//!   refuse the program's private memory there; [`Domain::register_copying`] and
//!   [`Domain::adopt_copying`] accept it everywhere, at the cost of a copy.
//! - **A successful send means that the bytes have left** (motr-transport 2.14). Only an answer
//!   shows that the peer has received them.
//!
//! # Bulk
//!
//! Large data is transferred directly into memory that is registered in advance: one side stages a
//! buffer ([`Op::passive_receive`], [`Op::passive_send`]) and sends the resulting [`Offer`] in a
//! message; the other side then writes into the buffer or reads from it ([`Op::active_send`],
//! [`Op::active_receive`]).
//!
//! The offer of a buffer of up to 1 MiB is its [`Descriptor`]. The offer of a [large](Buffer)
//! buffer has a descriptor for each of its parts, of which several are in flight at a time; one
//! event reports the end of the whole transfer.
//!
//! A descriptor is 48 bytes in Motr's form, or 56 in nlx's extended form ([`DescriptorForm`]).
//! Programs that reserve [`Descriptor::MAX_LEN`] bytes also work over IPv6. Any node that knows the
//! match bits of a passive buffer can access it: [`MatchCounters::Random`] makes them hard to
//! guess.
//!
//! ```
//! use nlx::{DescriptorForm, Domain, MatchCounters, NodeConfig, Op, TmOptions};
//!
//! let domain = Domain::in_process(&NodeConfig::new())?;
//! let options = TmOptions::default().descriptors(DescriptorForm::Extended).match_counters(MatchCounters::Random);
//! let tm = domain.transfer_machine("0@lo:12345:31:*", options)?;
//! let started = tm.start(Op::passive_receive(domain.allocate(4096)?))?;
//! assert_eq!(started.offer.as_bytes().len(), 56);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | holds |
//! | --- | --- |
//! | `domain` | [`Domain`] |
//! | `buffer` | [`Buffer`], [`Refused`], [`Reading`], [`Writing`] |
//! | `pool`, `provision` | [`BufferPool`]: buffers that are reused; receive buffers from a pool: [`Provision`] |
//! | `builder`, `thread`, `callbacks` | [`MachineBuilder`]; the event thread of a machine with callbacks |
//! | `state` | [`TmState`], [`TmEvent`] |
//! | `op`, `machine::start` | [`Op`]: an operation to start, and several together: [`Batch`] |
//! | `machine` | [`TransferMachine`], [`Machine`]: its address, its counters, cancelling operations |
//! | `large` | bulk of more than 1 MiB: [`Offer`] |
//! | `waiters`, `machine::wait`, `machine::stop` | waiting for events, also in a program's event loop; timeouts; [`Stop`] |
//! | `async_machine` | [`AsyncMachine`]: operations as futures, [`Completion`]; [`NextMessage`] |
//! | `op_id`, `operations` | ids of operations; the table of operations in flight, their events and deadlines |
//! | `event` | [`Event`], [`Message`]; owners of operations |
//! | [`request`] | requests and answers with deadlines and retries: [`request::Requester`], [`request::Responder`] |
//! | [`service`] | services and clients on worker threads, with bulk: [`service::Service`], [`service::Client`] |
//! | `end_point` | [`EndPoint`] |
//! | `statistics` | [`QueueStatistics`] |
//! | `quotas` | [`Quotas`]: limits of a domain's objects |
//! | `error`, `panics` | [`Error`]; catching panics of the client's callbacks |

#![forbid(unsafe_code)]

mod async_machine;
mod buffer;
mod builder;
mod domain;
mod end_point;
mod error;
mod event;
mod large;
mod machine;
mod op;
mod op_id;
mod operations;
mod panics;
mod pool;
mod provision;
mod quotas;
pub mod request;
pub mod service;
mod state;
mod statistics;
mod thread;
mod waiters;

pub use async_machine::{AsyncMachine, Completed, Completion, Failed, NextMessage, Received, Stopping};
pub use buffer::{Buffer, Reading, Refused, Writing};
pub use builder::MachineBuilder;
pub use domain::Domain;
pub use end_point::EndPoint;
pub use error::Error;
pub use event::{Event, Message};
pub use large::Offer;
pub use machine::start::Batch;
pub use machine::stop::Stop;
pub use machine::{Machine, TransferMachine};
pub use op::{Op, Started};
pub use op_id::OpId;
pub use pool::{BufferPool, BufferPoolOptions, Colour, PoolCounts};
pub use provision::Provision;
pub use quotas::Quotas;

pub use state::{TmEvent, TmState};
pub use statistics::QueueStatistics;

/// A scripted LNet, for tests of programs that use this crate ([`Domain::over_fake`]).
#[cfg(feature = "fake")]
pub use lnet_fake as fake;
#[cfg(feature = "in-process")]
pub use lnet_node::{AcceptPolicy, Node, NodeConfig, NodeError};
pub use lnet_region::{Fragment, IoVec, Pages, Region, RegionError};
pub use nlx_core::{
    Address, Core, CoreError, CoreTm, Descriptor, DescriptorForm, Errno, Limits, MatchCounters, Nid, Pid,
    Queue, StartAddress, TmId, TmOptions,
};
#[cfg(feature = "helper")]
pub use nlx_ucore::HelperOptions;

/// Compiles the examples in the README and the user guide as doc tests.
#[cfg(all(doctest, feature = "in-process"))]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../../docs/guide.md")]
    struct Guide;
}
