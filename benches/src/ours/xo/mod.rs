//! The storage client's interface: what the rows `xo/…` measure.
//!
//! | module | holds |
//! | --- | --- |
//! | `party` | a domain with one transfer machine, and the peer it talks to |
//! | `pingpong` | 64-byte messages to and fro |
//! | `rate` | small messages with answers, 64 in flight |
//! | `bulk` | active receives and sends of 1 MiB between two processes |
//! | `local` | an active receive of 1 MiB within one process |

pub(crate) mod bulk;
pub(crate) mod local;
mod party;
pub(crate) mod pingpong;
pub(crate) mod rate;
