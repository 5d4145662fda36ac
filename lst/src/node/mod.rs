//! The test node: what a console's requests do, the data services, and the test clients (lst 6 to 9).
//!
//! Nothing here has a socket, a thread or a clock. The caller brings requests, the results of its
//! transfers, and the time in nanoseconds of a clock that only counts up.
//!
//! | part | its caller |
//! | --- | --- |
//! | [`Framework`] | one thread at a time, under a lock: framework requests, the session's expiry |
//! | [`DataService`] | any number of threads, without that lock: PING and BRW requests |
//! | [`Unit`] | any thread, without that lock: one test client with one RPC at a time |
//!
//! ```
//! use lnet_proto::lst::{Features, LnetCounters, LstService, Name, Request, RequestBody, SessionId};
//! use nlx_lst::node::{Config, Framework, Outcome};
//!
//! let mut framework = Framework::new(Config::default());
//! let sid = SessionId::new("10.77.0.2@tcp".parse()?, 344_984)?;
//! let body = RequestBody::MakeSession { sid, force: 0, name: Name::new("example")? };
//! let request = Request::new(Features::BULK_LENGTH, 7, body).emit();
//! let outcome = framework.handle(LstService::MakeSession, &request, LnetCounters::default, 0);
//! let Outcome::Reply(answer) = outcome else { panic!("{outcome:?}") };
//! assert_eq!(answer.reply_id, 7);
//! assert_eq!(framework.next_ns(), Some(100_000_000_000), "the session expires");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the caller does
//! - It gives each framework request to [`Framework::handle`], one after the other, and sends the
//!   answer to the request's source. [`Outcome::Run`] also has units, which it hands to its driver
//!   threads. For [`Outcome::Fetch`] it GETs the list from the source and calls
//!   [`Framework::fetched`] before it handles the next request.
//! - After each of these calls and after [`Framework::expire`], which is due at
//!   [`Framework::next_ns`], it compares [`DataService::aborts`] with the last value. If it has
//!   changed, the driver threads abort the RPCs of units that [`Unit::is_aborted`], and the data
//!   threads the transfers that [`DataService::is_aborted`].
//! - It drives a unit from [`Unit::begin`] to [`Unit::ended`] until `begin` returns `None`, then drops
//!   it. A dropped unit has ended, whatever its state.

mod add_test;
mod config;
mod counters;
mod data;
mod framework;
mod handlers;
mod instance;
mod outcome;
mod progress;
mod report;
mod results;
mod session;
mod shared;
mod unit;

pub use config::{
    BATCHES_MAX, Config, INSTANCE_BYTES, INSTANCES_MAX, MEMORY_MAX, RPC_TIMEOUT_NS, SESSION_TIMEOUT_NS,
    UNIT_BYTES,
};
pub use counters::{Count, Counters, LANES};
pub use data::{DataService, Served, Transfer};
pub use framework::{Expired, Framework};
pub use instance::{TestInstance, Work};
pub use outcome::{Fetch, Outcome, ReplyMessage, RequestDropReason};
pub use report::{BatchReport, NodeReport, SessionReport};
pub use results::Results;
pub use session::{Client, SessionView};
pub use unit::{BulkBuffer, RpcEnd, Unit, UnitRpc, Units};
