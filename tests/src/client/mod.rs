//! A raw client of the helper process: it proves that `docs/driver-protocol.md` is sufficient to
//! write one, and serves attacks.
//!
//! It shares no code with nlx: every number in it comes from that document. It does not check its
//! requests, so that it can make any; and it returns any answer of the helper.
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | packets and entries of the submission ring, as bytes |
//! | [`socket`] | the socket, with descriptors |
//! | [`memory`] | mappings of memory that the helper made; the only module with `unsafe` |
//! | [`ring`] | the client's side of the submission ring |
//! | [`events`] | the client's side of an event queue |
//! | [`Client`] | a client made of these |
//! | [`pair`] | two clients with work for each other, which check every byte |
//! | [`points`] | the points at which a test kills a client |

mod attached;
pub mod events;
pub mod memory;
pub mod pair;
pub mod points;
pub mod ring;
pub mod socket;
pub mod wire;

pub use attached::{Arena, Client, TIME_LIMIT, Tm};
