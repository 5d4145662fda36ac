//! The LNet API over TCP, between two processes: what the rows `tcp/…` measure.
//!
//! | module | holds |
//! | --- | --- |
//! | `station` | a node with buffers, and a thread that drives it while it waits |
//! | `pingpong` | PUTs of 64 bytes or 4 KiB answered by PUTs |
//! | `cost` | what a connection costs in memory, and a message in allocations |
//! | `bulk` | GETs and acknowledged PUTs of 1 MiB |
//! | `rate` | small PUTs, acknowledged or answered, 64 in flight |

pub(crate) mod bulk;
pub(crate) mod cost;
pub(crate) mod pingpong;
pub(crate) mod rate;
mod station;
