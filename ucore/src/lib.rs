//! The Core interface served by the helper process `nlxd`: shared memory first, a request only where it must.
//!
//! A program that links this instead of LNet has no network of its own. It opens a domain over a Unix socket
//! ([`Ucore::connect`]), and shares memory with the helper: a ring into which it puts operations, an event queue for each
//! transfer machine, and the arenas in which its buffers lie. What it then does, and what the helper (motr-transport 8.1; U1):
//!
//! | call | costs |
//! | --- | --- |
//! | fetching events, asking whether there are some | memory alone |
//! | starting and cancelling operations, registering a buffer of one segment | memory, and waking the helper if it sleeps |
//! | waiting | a futex, once looking has brought nothing |
//! | match bits, descriptors, addresses, room for events, limits | memory alone |
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
//! Buffers lie in *arenas*: memory that the helper has made, that both have mapped, and that this side then seals: nobody can take
//! its pages away. [`Core::allocate`] cuts regions out of them, whose leases give slices as those of any region do. Other memory can be
//! registered at the price of a copy ([`Core::register_copying`]): it gets a shadow in an arena.
//!
//! The helper writes to the bytes of an operation in flight and to no others. So an operation has a transport's lease on its
//! bytes; each message of a receive buffer takes a part of it along, which the client may then read while the rest is still
//! being received into.
//!
//! # Trust
//!
//! The helper is trusted, as the system is, but mortal: it may be killed, stopped or restarted at any moment, and a newer one
//! may say what this version does not understand. None of that makes a call hang or panic. What it says is checked as far
//! as this process's own order hangs on it.
//!
//! # When the helper is gone
//!
//! A thread of the domain waits for the socket to be closed. Then every wait ends; events that lie in the queues can still be
//! taken; after them every operation in flight ends with an event of ENOTCONN, made from this side's table. A helper that
//! does not answer within [`HelperOptions::timeout`] counts as gone too; since it may still live, the memory of the operations
//! that were in flight stays leased until it has closed its socket.
//!
//! # Faults done better
//!
//! What motr-transport 14 lists as weak in Motr's user core, and how it is here:
//!
//! | fault | here |
//! | --- | --- |
//! | U1: one kernel crossing per operation, per question whether there are events, per NID | the table above: none of them crosses, while the helper is awake |
//! | U2: the process aborts on answers that it does not expect | the domain ends with an error; the process goes on |
//! | U3: locking memory for one object unlocks its neighbours' | memory is the helper's, in arenas; nothing is locked or unlocked by object |
//! | U4: an empty list of NIDs leaks | it is a value |
//! | U5: deadlines on the wall clock | on the monotonic clock, which both processes share |
//!
//! | module | holds |
//! | --- | --- |
//! | `options` | [`HelperOptions`] |
//! | `ucore` | [`Ucore`]: the domain |
//! | `machine` | a transfer machine: submitting, taking events, waiting, ending |
//! | `buffers`, `pieces` | registered buffers, the operation that each has, and its leases |
//! | `arenas` | memory that the helper reaches |
//! | `link` | a connection to a helper, the submission ring, and how it ends |
//! | `exchange`, `socket` | requests and replies; packets with descriptors |
//! | `watch` | the thread that notices the helper's end, and connects again |
//! | `waiters` | waking those who wait; a descriptor for event loops; waiting until the helper has carried out what was submitted |
//! | `refused` | the helper's refusals in the words of the Core interface |
//! | `points` | named points of all this, at which tests kill a client; a macro that is empty elsewhere |
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
