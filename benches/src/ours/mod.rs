//! The work of the rows, done by nlx.
//!
//! | module | holds |
//! | --- | --- |
//! | `bevq` | the queue of buffer events between two processes |
//! | `wake` | waking a waiter, or the consumer of a queue |
//! | `engine` | the LNet engine alone, without a network |
//! | `kcore` | the Core interface over the engine alone |
//! | `lnet` | the LNet API over TCP |
//! | `xo` | the storage client's interface |
//! | `helper` | what the helper process adds |
//! | `nodes` | the two nodes of a measurement |
//! | `spin` | waiting for memory to change |

pub(crate) mod bevq;
pub(crate) mod engine;
pub(crate) mod helper;
pub(crate) mod kcore;
pub(crate) mod lnet;
mod nodes;
mod spin;
pub(crate) mod wake;
pub(crate) mod xo;

use crate::server::Serve;

/// The servers of nlx's sides.
pub(crate) const SERVERS: &[(&str, Serve)] = &[
    (bevq::TAKER, bevq::take),
    (bevq::ECHO, bevq::echo),
    (lnet::pingpong::NAME, lnet::pingpong::serve),
    (lnet::bulk::NAME, lnet::bulk::serve),
    (lnet::rate::NAME, lnet::rate::serve),
    (lnet::cost::CONNECTED, lnet::cost::serve_connected),
    (lnet::cost::PEERS, lnet::cost::serve_peers),
    (lnet::rate::ANSWERING, lnet::rate::serve_answers),
    (helper::process::NAME, helper::process::serve),
    (helper::clients::CROWD, helper::clients::serve_crowd),
    (helper::submit::TAKER, helper::submit::take),
    (helper::submit::ECHO, helper::submit::echo),
    (xo::pingpong::NAME, xo::pingpong::serve),
    (xo::rate::NAME, xo::rate::serve),
    (xo::bulk::GET_SERVER, xo::bulk::serve_get),
    (xo::bulk::PUT_SERVER, xo::bulk::serve_put),
];
