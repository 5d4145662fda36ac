//! The protocol of requests and answers: deadlines, retries, and answers exactly once.
//!
//! Two state machines without a clock, a network or memory for messages: [`Calls`] is the client's
//! side, [`Server`] the server's. Their drivers send and receive the messages, over whatever network
//! they have, and pass the time. `nlx::request` drives them over a transfer machine, and [`Rpc`] drives
//! servers on a [`Service`](crate::Service). `docs/service.md` describes the protocol.

mod calls;
mod estimate;
mod handler;
mod server;
mod sessions;
mod terms;
mod wire;

use std::time::Duration;

pub use calls::{Action, Calls, EndedCall};
pub use estimate::{BIN_NS, BINS};
pub use handler::{BULK_MIN_NS, Decision, Rpc, RpcHandler, RpcRequest, RpcState};
pub use server::{EARLY_ASK_NS, EARLY_MARGIN_NS, EARLY_MAX, MessageDecision, RUNNING_MAX, RequestId, Server};
pub use terms::{
    CallId, Delivery, NewCall, RequestCounters, RequestError, RequestOptions, ResponderCounters,
    ResponderOptions, SendFailure,
};
pub use wire::{ClientId, HEADER, Header, Kind, SLOTS};

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a number of which every bit depends on every bit of the seed; different seeds have
/// different numbers. (The steps of splitmix64.)
fn mixed(seed: u64) -> u64 {
    let mut mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}
