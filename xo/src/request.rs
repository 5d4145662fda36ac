//! Requests and their answers over messages, with deadlines and retries.
//!
//! A message can be lost without an error at the sender: no receive buffer was posted at that
//! moment (motr-transport 2.14), the connection broke, or the peer was restarted. A [`Requester`]
//! sends a request again until it is answered, and a [`Responder`] recognises a request that it has
//! seen. Each runs on a transfer machine without callbacks, in the thread that calls it. The protocol
//! is that of `nlx_service::rpc`.
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
//!         server.answer(&request, &answer).expect("the answer fits into a message");
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
//! For `AtMostOnce`, a client opens a session at its first call of a server, which takes one more
//! round trip. The server remembers the last answer of each slot of the session, and a client has a
//! slot for each request that it may have in flight; so the server's memory is bounded, and the
//! answer is still stored when its request is repeated. A server that has forgotten the session,
//! because it was restarted or had to make room, cannot know whether a request has run: the call
//! ends with [`RequestError::Forgotten`], and the program decides what to do. Later calls open a
//! new session.
//!
//! The first retry comes when the network and the server should have answered, at least after
//! [`RequestOptions::retry_after`]; the delays double, each randomly shortened by up to a quarter. A
//! server that still works on a request asks for more time before the deadline (an *early reply*), up
//! to [`RequestOptions::deadline_max`].
//!
//! # Limits
//!
//! Requests are not for bulk: a request and its answer are messages
//! ([`RequestOptions::message_max`]). Large data travels by bulk operations, whose descriptors the
//! messages carry; each descriptor works once, which [`Requester::call_offering`] takes into
//! account. Both sides trust the network as LNet does: any node that can send messages can send
//! requests.

mod mailbox;
mod replies;
mod requester;
mod responder;

pub use requester::{Answer, Finished, Requester};
pub use responder::{Request, Responder};
use std::time::Duration;

pub use nlx_service::rpc::{
    CallId, Delivery, RequestCounters, RequestError, RequestOptions, ResponderCounters, ResponderOptions,
    SendFailure,
};

use crate::Error;

/// The timeout of sending an answer; a client that waits for it repeats its request.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

impl From<Error> for RequestError {
    fn from(error: Error) -> RequestError {
        RequestError::System { errno: error.errno(), text: error.to_string() }
    }
}

/// Returns a random number other than 0, for ids that no other program has.
fn random() -> Result<u64, Error> {
    getrandom::u64().map(|number| number.max(1)).map_err(|_| Error::Random)
}
