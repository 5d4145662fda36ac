//! The Core interface served by the helper process `nlxd`, mostly through shared memory and by
//! requests where needed.
//!
//! A program that links this crate instead of LNet has no network itself. It opens a domain over a
//! Unix socket ([`Ucore::connect`]), and shares memory with the helper: a ring for submitted
//! operations, an event queue for each transfer machine, and the arenas in which its buffers lie.
//! The cost of each call (motr-transport 8.1; U1):
//!
//! | call | cost |
//! | --- | --- |
//! | fetching events, checking for events | shared memory only |
//! | starting and cancelling operations, registering a buffer of one segment | shared memory, and a wake-up of the helper if it sleeps |
//! | waiting | a futex, after polling without success |
//! | match bits, descriptors, addresses, room for events, limits | memory only |
//! | starting and stopping transfer machines, buffers of several segments, more memory, NIDs | a request and its answer |
//!
//! ```no_run
//! use nlx_core::{Core, TmOptions};
//! use nlx_ucore::{HelperOptions, Ucore};
//!
//! let domain = Ucore::connect(&HelperOptions::new().name("archive"))?;
//! let memory = domain.allocate(1 << 20)?;
//! let tm = domain.tm_start(&"192.168.96.128@tcp:12345:41:*".parse()?, &TmOptions::default())?;
//! println!("{} with {memory:?}", tm.address());
//! tm.stop()?;
//! # Ok::<(), nlx_core::CoreError>(())
//! ```
//!
//! # Memory
//!
//! Buffers lie in *arenas*: memory that the helper has made, that both have mapped, and that this
//! side then seals, so that its pages cannot be removed. [`Core::allocate`] cuts regions out of
//! them, whose leases give slices like those of any region. Other memory can be registered at the
//! price of a copy ([`Core::register_copying`]): it gets a shadow in an arena.
//!
//! The helper writes to the bytes of an operation in flight and to no others. So an operation has a
//! transport's lease on its bytes. Each message of a receive buffer takes a part of this lease,
//! whose bytes the client may then read while messages are still received into the rest.
//!
//! # Trust
//!
//! The helper is trusted, as the system is, but it can fail: it may be killed, stopped or restarted
//! at any moment, and a newer one may send messages that this version does not understand. None of
//! that makes a call hang or panic. Its messages are checked as far as the consistency of this
//! process depends on them.
//!
//! # When the helper is gone
//!
//! A thread of the domain waits for the socket to be closed. Then every wait ends. Events in the
//! queues can still be taken; after them every operation in flight ends with an event of ENOTCONN,
//! made from this side's table. The connection also counts as lost if the helper does not answer
//! within [`HelperOptions::timeout`]. It may still run in that case, so the memory of the
//! operations that were in flight stays leased until it has closed its socket.
//!
//! # Faults done better
//!
//! The weaknesses of Motr's user core by motr-transport 14, and how this crate avoids them:
//!
//! | fault | here |
//! | --- | --- |
//! | U1: one kernel crossing per operation, per check for events, per NID | the table above: none of them crosses while the helper is awake |
//! | U2: the process aborts on unexpected answers | the domain ends with an error; the process continues |
//! | U3: locking memory for one object unlocks its neighbours' | memory belongs to the helper's arenas; no object locks or unlocks memory |
//! | U4: an empty list of NIDs leaks | it is a value |
//! | U5: deadlines on the wall clock | on the monotonic clock, which both processes share |
//!
//! | module | holds |
//! | --- | --- |
//! | `options` | [`HelperOptions`] |
//! | `ucore` | [`Ucore`]: the domain |
//! | `machine` | a transfer machine: submitting, taking events, waiting, ending |
//! | `buffers`, `pieces` | registered buffers, the operation of each, and its leases |
//! | `arenas` | memory that the helper can access |
//! | `link` | a connection to a helper, the submission ring, and how it ends |
//! | `exchange`, `socket` | requests and replies; packets with descriptors |
//! | `watch` | the thread that detects the helper's end, and reconnects |
//! | `waiters` | waking waiters; a descriptor for event loops; waiting until the helper has carried out the submissions |
//! | `refused` | the helper's refusals as errors of the Core interface |
//! | `points` | named points at which tests kill a client; the macro is empty elsewhere |
//!
//! [`Core::allocate`]: nlx_core::Core::allocate
//! [`Core::register_copying`]: nlx_core::Core::register_copying

#![deny(unsafe_code)]

#[macro_use]
mod points;

mod arenas;
mod buffers;
mod exchange;
mod link;
mod machine;
mod options;
mod pieces;
mod refused;
mod socket;
#[cfg(test)]
mod tests;
mod ucore;
mod waiters;
mod watch;

/// The pages of the memory for buffers.
pub use lnet_region::Pages;
pub use options::HelperOptions;
pub use ucore::Ucore;
