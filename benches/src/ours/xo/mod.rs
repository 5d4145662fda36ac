//! The storage client's interface: what the rows `xo/…` measure.
//!
//! | module | holds |
//! | --- | --- |
//! | `pair` | both sides, in-process or through helpers |
//! | `party` | a domain with one transfer machine, and its peer |
//! | `pingpong` | 64-byte messages in both directions |
//! | `several` | several machines of one node, whose handlers block or compute |
//! | `resting` | processor time of idle and almost idle programs |
//! | `rate` | small messages with answers, 64 in flight |
//! | `bulk` | active receives and sends of 1 MiB between two processes |
//! | `cost` | timeouts, registering, bytes and allocations, without a network |
//! | `local` | an active receive of 1 MiB within one process |

pub(crate) mod bulk;
pub(crate) mod cost;
pub(crate) mod local;
pub(crate) mod pair;
mod party;
pub(crate) mod pingpong;
pub(crate) mod rate;
pub(crate) mod resting;
pub(crate) mod several;
