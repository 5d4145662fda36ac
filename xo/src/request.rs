//! Requests and their answers, over messages: with a deadline, and retries.
//!
//! A message can be lost without anybody being told: no receive buffer was posted at the moment (motr-transport 2.14), the
//! connection broke, the peer was started anew. A [`Requester`] sends a request again until it is answered, and a
//! [`Responder`] knows a request that it has seen. Both run on an application-driven transfer machine each, and in the thread
//! that calls them.
//!
//! ```
//! use nlx::request::{Requester, RequestOptions, Responder, ResponderOptions};
//! use nlx::{Domain, NodeConfig, TmOptions};
//!
//! let domain = Domain::in_process(&NodeConfig::new())?;
//! let tm = |address| domain.transfer_machine(address, TmOptions::default());
//! let mut server = Responder::new(tm("0@lo:12345:31:1")?, ResponderOptions::default())?;
//! let mut client = Requester::new(tm("0@lo:12345:31:*")?, RequestOptions::default())?;
//! std::thread::spawn(move || {
//!     while let Ok(Some(request)) = server.next(None) {
//!         let answer: Vec<u8> = request.iter().rev().copied().collect();
//!         server.answer(&request, &answer).expect("it is as long as the request");
//!     }
//! });
//! let server = client.machine().end_point("0@lo:12345:31:1")?;
//! assert_eq!(&*client.call(&server, b"stressed")?, b"desserts");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How often a request runs
//!
//! | [`Delivery`] | answered | not answered |
//! | --- | --- | --- |
//! | `AtMostOnce` | it has run once | it has run once, or not at all |
//! | `AtLeastOnce` | it has run once, or more often | it has run any number of times |
//!
//! For the first, a client opens a session with a server when it first calls it, which takes one more round trip. The server
//! remembers the last answer of each of the session's slots, of which a client has as many as it may have requests in
//! flight; so its memory is bounded, and the answer is still there when its request comes again. A server that has
//! forgotten the session, because it was started anew or had to make room, cannot tell whether a request has run: that is
//! [`RequestError::Forgotten`], and what to do about it is the program's to know. Later calls open a new session.
//!
//! Delays grow from [`RequestOptions::retry_after`] by doubling, each up to a quarter shorter by chance.
//!
//! # What it is not
//!
//! Not for bulk: a request and its answer are messages ([`RequestOptions::message_max`]). Large data travels by bulk
//! operations whose descriptors they carry; each descriptor works once, which [`Requester::call_offering`] minds. And both sides trust the network as LNet does: whoever can send messages can
//! send requests.

mod calls;
mod mailbox;
mod replies;
mod requester;
mod responder;
mod sessions;
mod terms;
mod wire;

pub use requester::{Answer, Finished, Requester};
pub use responder::{Request, Responder};
pub use terms::{
    CallId, Delivery, RequestCounters, RequestError, RequestOptions, ResponderCounters, ResponderOptions,
    SendFailure,
};
