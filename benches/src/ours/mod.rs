//! The work of the rows, done by nlx.
//!
//! | module | holds |
//! | --- | --- |
//! | `bevq` | the queue of buffer events between two processes |
//! | `wake` | waking a waiter through its `Sleeper` |
//! | `lnet` | the LNet API over TCP |
//! | `nodes` | the two nodes of a measurement |
//! | `spin` | waiting for memory to change |

pub(crate) mod bevq;
pub(crate) mod lnet;
mod nodes;
mod spin;
pub(crate) mod wake;

use crate::server::Serve;

/// The servers of nlx's sides.
pub(crate) const SERVERS: &[(&str, Serve)] = &[
    (bevq::TAKER, bevq::take),
    (bevq::ECHO, bevq::echo),
    (lnet::pingpong::NAME, lnet::pingpong::serve),
    (lnet::bulk::NAME, lnet::bulk::serve),
    (lnet::rate::NAME, lnet::rate::serve),
];
