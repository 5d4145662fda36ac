//! The anchors with which nlx is compared: plain loops that reuse nothing of nlx, as fast as
//! possible.
//!
//! | module | holds |
//! | --- | --- |
//! | `flag` | one cache line that two cores write alternately |
//! | `ring` | rtrb, one event at a time and in chunks |
//! | `wake` | waking a thread through a bare eventfd or futex |
//! | `socket` | the settings of all raw sockets |
//! | `pingpong` | messages of 64 bytes and 4 KiB over TCP |
//! | `bulk` | 1 MiB GETs and PUTs over TCP |
//! | `rate` | small acknowledged requests over TCP |
//! | `packets` | records in packets of a Unix socket |
//! | `memory` | memcpy |
//! | `lookup` | a hash table: look-ups, and growth |
//! | `perftest` | perftest's programs, in the guest (with the feature `verbs`) |
//! | `limit` | agreed figures, and one heap allocation |

pub(crate) mod bulk;
pub(crate) mod flag;
pub(crate) mod limit;
pub(crate) mod lookup;
pub(crate) mod memory;
pub(crate) mod packets;
#[cfg(feature = "verbs")]
pub(crate) mod perftest;
pub(crate) mod pingpong;
pub(crate) mod rate;
pub(crate) mod ring;
mod socket;
pub(crate) mod wake;

use crate::server::Serve;

pub(crate) use socket::CONGESTION;

/// The anchors' servers.
pub(crate) const SERVERS: &[(&str, Serve)] = &[
    (pingpong::SERVER, pingpong::serve),
    (bulk::SERVER, bulk::serve),
    (rate::SERVER, rate::serve),
    (packets::SERVER, packets::serve),
    (memory::OWNER, memory::serve),
];
