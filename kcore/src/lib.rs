//! The Core interface served by LNet: what Motr calls the kernel core, here in user space.
//!
//! [`Kcore`] turns operations of transfer machines into match entries, memory descriptors, PUTs and
//! GETs of LNet (S-413), and LNet's events into buffer events (S-411). It calls LNet only through
//! [`lnet_api::LNet`], and the network only through [`lnet_api::Drive`], so tests can replace the
//! engine by a scripted one.
//!
//! Invariants:
//!
//! - An address (NID, PID, portal, id) belongs to one transfer machine of the host; ids are
//!   assigned from the highest down (S-404).
//! - Space for every event of an operation is reserved before the operation starts, so no
//!   completion is ever lost (S-407).
//! - The event callback takes constant time, allocates nothing and calls no function of LNet. The
//!   event queue that calls it keeps everything alive that it touches (S-415).
//! - A buffer belongs to at most one operation. The association is set before LNet is called,
//!   because over the loopback the operation can end inside that call. It is cleared under the
//!   transfer machine's producer lock, before the last event is in the queue.
//!
//! ```
//! use std::sync::Arc;
//!
//! use lnet_api::{Drive, LNet};
//! use nlx_core::{Core, CoreError, TmOptions};
//! use nlx_kcore::Kcore;
//!
//! /// Starts a transfer machine on a node, and stops it again.
//! fn visit(lnet: Arc<dyn LNet>, drive: Arc<dyn Drive>) -> Result<(), CoreError> {
//!     let core = Kcore::new(lnet, drive);
//!     let tm = core.tm_start(&"0@lo:12345:31:*".parse()?, &TmOptions::default())?;
//!     println!("{}", tm.address());
//!     tm.stop()
//! }
//! ```
//!
//! A program that serves transfer machines to other programs uses [`LnetTm`] directly: a transfer
//! machine whose events go to an [`EventSink`] of that program. `nlx-helper` does so.
//!
//! # Faults fixed
//!
//! The weaknesses of Motr's core by motr-transport 14, and how this crate avoids them:
//!
//! | fault | here |
//! | --- | --- |
//! | K1: a callback wakes waiters of a transfer machine that may be gone | the event queue of LNet holds a reference to all that a callback touches, the waker included, and releases it when it is freed |
//! | K2: id 0 can be given | [`TmId`](nlx_core::TmId) is 1 to 4095 |
//! | K3: bulk PUTs name their sender | their header data is 0; header data from other implementations is ignored |
//! | K4: an unexpected event is an assertion | it is counted ([`Anomalies`]); the operation ends with an error if it was its last event, and goes on if not |
//! | K5: match bits may be those of a live buffer | after the wrap, counters in use are skipped; random ones are unique by their slot ([`MatchCounters`](nlx_core::MatchCounters)) |
//! | K6: segments must be aligned to pages | any alignment and length; registration refuses what exceeds the limits |
//! | K7: cutting a buffer to 0 bytes underflows | every number of an operation is checked against its buffer first |
//! | K8: descriptors with a weak checksum, without version, decoded in place | nlx's form has a version and a CRC ([`DescriptorForm`](nlx_core::DescriptorForm)); decoding returns a new value; random match bits are hard to guess |
//! | K9: a list of NIDs leaks half way | it is a value |
//! | K10: a wait with a pending signal spins | an interrupted wait continues until its deadline |
//! | K11: an event queue is made before the address is checked | the address is checked and taken first; ENOENT for an address of another host is documented ([`Core::tm_start`](nlx_core::Core::tm_start)) |
//! | K12: one list and one mutex for all transfer machines | a registry per node, hashed by NID, PID and portal; a bit set of ids makes the search independent of their number |
//! | K13: lax numbers, two validators that disagree | one strict parser ([`StartAddress`](nlx_core::StartAddress)) |
//!
//! # Where Motr's design and its code differ
//!
//! Rows of motr-transport 13; those that are not listed concern other layers.
//!
//! | row | here |
//! | --- | --- |
//! | 1, 2, 27: what a waiter sleeps on, and when it is woken | the waiter checks the queue, then sleeps; it is woken after unlock, by an object that outlives the transfer machine |
//! | 3, 4: header data and sender | 0 for bulk; a sender only for unsolicited messages |
//! | 5: most messages, least size | checked once, then kept by LNet's own descriptor |
//! | 6: the invariant | the count of needed events; the magic and the counter have types that cannot be wrong |
//! | 7, 8: id 0, no start address | the types cannot express either |
//! | 9: when needed events are given back | at the last event of the operation |
//! | 14: least size | of receive buffers only |
//! | 23: references to memory | an operation holds its regions until its last event |
//! | 24: local NIDs | LNet is asked every time |
//! | 25: event queues | one for each transfer machine |
//!
//! | module | holds |
//! | --- | --- |
//! | `kcore` | [`Kcore`]: the domain |
//! | `node` | the state that the domains of a node share |
//! | `registry` | the addresses in use, over all domains of a node |
//! | `buffers` | registered buffers |
//! | `local_sink` | waking the waiting thread and event loop; lost messages |
//! | `network` | LNet, and the state that all transfer machines over it share |
//! | `lnet_tm` | [`LnetTm`]: a transfer machine over LNet, its start and stop and its operations |
//! | `event_sink` | [`EventSink`]: the destination of its events |
//! | `machine` | a transfer machine whose events are taken in this process: waiting, room for events |
//! | `submit` | the set-up of each operation with LNet |
//! | `ring` | the size of the queue of events |
//! | `pending_teardown` | leftovers of a transfer machine that was dropped in use, until LNet releases its last MD |
//! | `shared` | the state that a transfer machine shares with its event callback |
//! | `flight` | operations in flight |
//! | `rules` | the meaning of each LNet event for its operation |
//! | `agreed` | the synchronisation rules |

#![forbid(unsafe_code)]

mod agreed;
mod buffers;
mod event_sink;
mod flight;
mod kcore;
mod lnet_tm;
mod local_sink;
mod machine;
mod network;
mod node;
mod pending_teardown;
mod registry;
mod ring;
mod rules;
mod shared;
mod submit;

#[cfg(all(test, loom))]
mod model;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use buffers::RegisteredBuffer;
pub use event_sink::{EventSink, LossSink, News};
pub use kcore::Kcore;
pub use lnet_tm::{LnetTm, Naming, TmLeftover};
pub use network::{Anomalies, AnomalyCounters, SharedNetwork};
