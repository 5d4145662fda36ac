//! The LNet API over TCP, between two processes: what the rows `tcp/…` measure.
//!
//! | module | holds |
//! | --- | --- |
//! | `station` | a node with buffers, and a thread that drives it while it waits |
//! | `pingpong` | 64-byte PUTs answered by PUTs |
//! | `bulk` | GETs and acknowledged PUTs of 1 MiB |
//! | `rate` | small PUTs, acknowledged or answered, 64 in flight |

pub(crate) mod bulk;
pub(crate) mod pingpong;
pub(crate) mod rate;
mod station;
