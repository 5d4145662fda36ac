//! The work of the rows, done by nlx.
//!
//! | module | holds |
//! | --- | --- |
//! | `wake` | waking a waiter through its `Sleeper` |

pub(crate) mod wake;

use crate::server::Serve;

/// The servers of nlx's sides.
pub(crate) const SERVERS: &[(&str, Serve)] = &[];
