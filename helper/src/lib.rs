//! The helper's side of the driver protocol: many clients, none of them trusted, over one LNet.
//!
//! A [`Host`] is what all clients share; a [`Session`] is one client. There is no thread, no socket and no clock in here:
//! whoever serves sockets gives each packet to [`Session::request`], lets the submission ring be carried out with
//! [`Session::drain`], and [closes](Session::close) the session when the client is gone or breaks the rules ([`Violation`]).
//!
//! ```
//! use std::sync::Arc;
//!
//! use nlx_driver_proto::{Hello, Reply, Request};
//! use nlx_helper::{Answer, Credentials, Host, Session, Violation};
//!
//! /// What a client hears to its hello.
//! fn greet(host: &Arc<Host>, client: Credentials) -> Result<Answer, Violation> {
//!     let Ok(mut session) = Session::new(host, client) else { return Ok(Answer::default()) };
//!     let (mut packet, mut answer) = (Vec::new(), Answer::default());
//!     Request::Hello(Hello::new("example")).write(1, &mut packet);
//!     session.request(&packet, &mut answer)?;
//!     if let Ok((1, Reply::Welcome(welcome))) = Reply::read(&answer.packet) {
//!         println!("client {}: {} transfer machines at the most", welcome.client, welcome.tms_max);
//!     }
//!     Ok(answer)
//! }
//! ```
//!
//! # What is refused, and who is cut off
//!
//! What a correct client can cause, by a limit, by a race or by not knowing better, is *refused*: an errno and a reason in the
//! reply, or the last event of an operation; nothing has changed then. What none can cause that keeps to the protocol is a
//! [`Violation`], and the client is cut off.
//!
//! | refused | cut off |
//! | --- | --- |
//! | a packet whose length, kind or field is wrong: ENOTTY, EBADR; another version: EPROTONOSUPPORT | a packet without a header |
//! | handles of others, of old, of nobody: ENOENT | an entry of the ring that cannot be read |
//! | quotas: ENOMEM, counted | an event queue that is full, for its client provisions it before it submits |
//! | the policy: EPERM, counted | a ring or event queue whose words contradict themselves |
//! | what is in use: EBUSY; what is taken: EADDRINUSE, EEXIST | memory that has no page for the helper |
//! | memory that the client has not sealed: EPERM | descriptors beside a request: never received |
//! | what LNet or the system refuses: its errno | |
//!
//! # Memory
//!
//! ```text
//!   client                      helper                                         LNet
//!   arena  ═══════════════════  Region ── Buffer (client's name) ── MD ───────▶ clone of the Region
//!   event queue ══════════════  Producer ─ Outlet (wakers, counts) ─ Shared ──▶ EQ
//!   submission ring ══════════  Consumer ─ Session
//! ```
//!
//! A buffer, and an MD, hold clones of the region: so memory stays mapped as long as LNet may touch it, and the event queue's
//! as long as LNet may call back, whatever becomes of the client. Nothing of any is touched before the client has sealed it.
//! Nothing waits for it or frees it: it goes with the last that has it, and until then is counted as left over ([`Leftovers`]).
//! The address of such a transfer machine is not given again meanwhile.
//!
//! # Faults done better
//!
//! What motr-transport 14 lists as weak in Motr's driver, and how it is here:
//!
//! | fault | here |
//! | --- | --- |
//! | D1: a failed start leaves the domain locked | a session belongs to one thread; there is no lock to leave |
//! | D2: a failed start leaves the domain half made | the ring is made whole or not at all; a hello that failed can be said again |
//! | D3: tokens are addresses, good for every process | handles are places in the session's own tables, with a generation |
//! | D4: what was checked can change before it is used | packets and entries are copied once, and only the copy is looked at |
//! | D5: a stale token is an assertion | ENOENT |
//! | D6: deregistering a busy buffer is an assertion | EBUSY: it stays |
//! | D7: stopping a busy transfer machine frees what is written to | EBUSY; and what a callback touches, the event queue owns |
//! | D8: a list is walked without its lock | tables are the session's alone; what LNet's threads share is atomic, or under the producer lock |
//! | D9: no limits | [`ClientQuotas`], on everything; one's own count, never the client's |
//! | D10: closing may wait for ever | it never waits: what LNet holds is left over, and goes when LNet lets go |
//! | D11: shared objects stay mapped while somebody waits | nobody waits in the helper; what it relies on it holds itself |
//! | D12: texts without an end | no texts but a name of 32 bytes; every length is checked |
//! | D13: pointers and word sizes, no versions | fixed-width layouts, a version and features in the hello |
//! | D14: two requests race on one object | one request at a time per client, and the ring before each; a buffer takes one operation |
//!
//! | module | holds |
//! | --- | --- |
//! | `host` | [`Host`] |
//! | `session` | [`Session`] |
//! | [`costs`] | what objects of clients cost: the estimates that users are charged with |
//! | `outlet` | where the events of a client's transfer machine go |
//! | `signals` | signals to event loops that take long |
//! | `seal` | whether a client has sealed its memory |
//! | `custody` | descriptors that a client has as well |
//! | `departed` | what clients that are gone have left |
//! | `slots` | handles of one client |
//! | `tally` | what is counted of it |
//! | `policy` | [`Policy`], [`Rights`]: who may use what |
//! | `porter` | the process that keeps and closes what `nlxd` must not have |
//! | `quotas` | [`ClientQuotas`]: how much of it |
//! | [`accounts`] | [`Accounts`](accounts::Accounts): what the clients of each user hold together, and fair shares of it |
//! | [`owners`] | [`Owners`](owners::Owners): subordinate uids |
//! | `portal_shares` | transfer machine ids of a portal, shared out by user |
//! | `status` | [`HostStatus`]: what an operator sees |
//! | [`service`] | threads and sockets around all of it |
//! | `violation` | [`Violation`]: why a client is cut off |
//! | `watched` | memory of queues that may have no pages |

#![deny(unsafe_code)]

pub mod accounts;
pub mod costs;
mod custody;
mod departed;
mod host;
mod outlet;
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
mod signals;
mod slots;
mod status;
mod tally;
mod violation;
mod wakeups;
mod watched;

pub use departed::Departure;
pub use host::{Host, HostConfig};
pub use policy::{Credentials, Nids, Policy, Portals, Rights};
pub use quotas::ClientQuotas;
pub use session::{Answer, Attachment, BULK_BYTES_PER_UNIT, BULK_UNITS_MAX, Drained, SLICE, Session};
pub use status::{ClientStatus, HostStatus, Leftovers, TmStatus, Totals, USERS_MAX};
pub use violation::Violation;
