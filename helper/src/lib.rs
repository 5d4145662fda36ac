//! The helper's side of the driver protocol: many untrusted clients over one LNet.
//!
//! A [`Host`] is the state that all clients share; a [`Session`] is one client. Both are without
//! threads, sockets and clocks: the program that serves sockets passes each packet to
//! [`Session::request`], has the submission ring carried out by [`Session::drain`], and
//! [closes](Session::close) the session when the client is gone or breaks the rules
//! ([`Violation`]).
//!
//! ```
//! use std::sync::Arc;
//!
//! use nlx_driver_proto::{Hello, Reply, Request};
//! use nlx_helper::{ReplyPacket, Credentials, Host, Session, Violation};
//!
//! /// Returns the answer to a client's hello.
//! fn greet(host: &Arc<Host>, client: Credentials) -> Result<ReplyPacket, Violation> {
//!     let Ok(mut session) = Session::new(host, client) else { return Ok(ReplyPacket::default()) };
//!     let (mut packet, mut answer) = (Vec::new(), ReplyPacket::default());
//!     Request::Hello(Hello::new("example")).write(1, &mut packet);
//!     session.request(&packet, &mut answer)?;
//!     if let Ok((1, Reply::Welcome(welcome))) = Reply::read(&answer.packet) {
//!         println!("client {}: {} transfer machines at the most", welcome.client, welcome.tms_max);
//!     }
//!     Ok(answer)
//! }
//! ```
//!
//! # Refusals and clients that are cut off
//!
//! A request that a correct client can make, because of a limit, a race or missing knowledge, is
//! *refused*: an errno and a reason in the reply, or the last event of an operation; nothing has
//! changed then. A fault that no client can cause that keeps to the protocol is a [`Violation`],
//! and the client is cut off.
//!
//! | refused | cut off |
//! | --- | --- |
//! | a packet whose length, kind or field is wrong: ENOTTY, EBADR; another version: EPROTONOSUPPORT | a packet without a header |
//! | handles of other clients, stale or unknown handles: ENOENT | an entry of the ring that cannot be read |
//! | quotas: ENOMEM, counted | an event queue that is full: its client must provision it before it submits |
//! | the policy: EPERM, counted | a ring or event queue whose words contradict themselves |
//! | objects in use: EBUSY; taken names: EADDRINUSE, EEXIST | memory that has no page for the helper |
//! | memory that the client has not sealed: EPERM | descriptors beside a request: never received |
//! | what LNet or the system refuses: its errno | |
//!
//! # Memory
//!
//! ```text
//!   client                      helper                                         LNet
//!   arena  ═══════════════════  Region ── Buffer (client's name) ── MD ───────▶ clone of the Region
//!   event queue ══════════════  Producer ─ ClientSink ─ TmShared ─────────────▶ EQ
//!   submission ring ══════════  Consumer ─ Session
//! ```
//!
//! A buffer and an MD hold clones of the region. So memory stays mapped while LNet may touch it,
//! and that of the event queue while LNet may call back, whatever the client does. No client memory
//! is touched before the client has sealed it. Nothing waits for the memory or frees it explicitly:
//! it is freed with its last reference, and until then counted as left over ([`Leftovers`]). The
//! address of such a transfer machine is not assigned again meanwhile.
//!
//! # Faults done better
//!
//! The weaknesses of Motr's driver by motr-transport 14, and how this crate avoids them:
//!
//! | fault | here |
//! | --- | --- |
//! | D1: a failed start leaves the domain locked | a session belongs to one thread; there is no lock |
//! | D2: a failed start leaves the domain half made | the ring is made completely or not at all; a failed hello can be repeated |
//! | D3: tokens are addresses, good for every process | handles are indices into the session's tables, with a generation |
//! | D4: what was checked can change before it is used | packets and entries are copied once, and only the copy is used |
//! | D5: a stale token is an assertion | ENOENT |
//! | D6: deregistering a busy buffer is an assertion | EBUSY: it stays |
//! | D7: stopping a busy transfer machine frees what is written to | EBUSY; and the event queue owns everything that a callback touches |
//! | D8: a list is walked without its lock | tables belong to the session alone; state shared with LNet's threads is atomic, or under the producer lock |
//! | D9: no limits | [`ClientQuotas`] on everything, with counts of the helper, never the client's |
//! | D10: closing may wait for ever | closing never waits: what LNet holds is left over, and is freed when LNet releases it |
//! | D11: shared objects stay mapped while a thread waits | no thread waits in the helper; it holds references to everything that it relies on |
//! | D12: texts without an end | the only text is a name of 32 bytes; every length is checked |
//! | D13: pointers and word sizes, no versions | fixed-width layouts, a version and features in the hello |
//! | D14: two requests race on one object | one request at a time per client, and the ring before each; a buffer takes one operation |
//!
//! | module | holds |
//! | --- | --- |
//! | `host` | [`Host`] |
//! | `session` | [`Session`] |
//! | [`costs`] | costs of clients' objects: the estimates with which users are charged |
//! | `client_sink` | the destination of events of a client's transfer machine |
//! | `signals` | slow signals to event loops |
//! | `seal` | whether a client has sealed its memory |
//! | `shared_fds` | descriptors that a client has as well |
//! | `departed` | leftovers of departed clients |
//! | `handle_table` | handles of one client |
//! | `counters` | counters of a client |
//! | `policy` | [`Policy`], [`Rights`]: the users that may connect, and the rights of each |
//! | `porter` | the process that keeps and closes descriptors that `nlxd` must not have |
//! | `quotas` | [`ClientQuotas`]: limits of one client |
//! | [`accounts`] | [`Accounts`](accounts::Accounts): amounts that the clients of each user hold together, and fair shares of them |
//! | [`owners`] | [`Owners`](owners::Owners): subordinate uids |
//! | `portal_shares` | transfer machine ids of a portal, shared by the users |
//! | `status` | [`HostStatus`]: the state as an operator sees it |
//! | [`service`] | the threads and sockets around the sessions |
//! | `violation` | [`Violation`]: the reason why a client is cut off |
//! | `watched` | memory of queues that may have no pages |

#![deny(unsafe_code)]

pub mod accounts;
mod client_sink;
pub mod costs;
mod counters;
mod departed;
mod handle_table;
mod host;
pub mod owners;
#[allow(unsafe_code, reason = "the system gives descriptors as numbers")]
mod packets;
mod policy;
mod portal_shares;
pub mod porter;
mod quotas;
mod seal;
pub mod service;
mod session;
mod shared_fds;
mod signals;
mod status;
mod violation;
mod wakeups;
mod watched;

pub use departed::Departure;
pub use host::{Host, HostConfig};
pub use policy::{Credentials, Nids, Policy, PortalSet, Rights};
pub use quotas::ClientQuotas;
pub use session::{Attachment, BULK_BYTES_PER_UNIT, BULK_UNITS_MAX, Drained, ReplyPacket, SLICE, Session};
pub use status::{ClientStatus, HostStatus, Leftovers, TmStatus, Totals, USERS_MAX};
pub use violation::Violation;
