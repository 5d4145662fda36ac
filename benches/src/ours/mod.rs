//! The work of the rows, done by nlx.
//!
//! | module | holds |
//! | --- | --- |
//! | `bevq` | the queue of buffer events between two processes |
//! | `wake` | waking a waiter through its `Sleeper` |
//! | `spin` | waiting for memory to change |

pub(crate) mod bevq;
mod spin;
pub(crate) mod wake;

use crate::server::Serve;

/// The servers of nlx's sides.
pub(crate) const SERVERS: &[(&str, Serve)] = &[(bevq::TAKER, bevq::take), (bevq::ECHO, bevq::echo)];
