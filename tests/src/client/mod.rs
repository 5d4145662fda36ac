//! A client of the helper process made of raw bytes: a proof that `docs/driver-protocol.md` is enough to write one, and a
//! weapon.
//!
//! It shares no code with nlx: every number in it stands in that document. It checks nothing before it asks, so that it
//! can ask for anything; and whatever the helper answers it hands on.
//!
//! | module | holds |
//! | --- | --- |
//! | [`wire`] | packets and entries of the submission ring, as bytes |
//! | [`socket`] | the socket, with descriptors |
//! | [`memory`] | memory that the helper made, mapped; the one place that needs `unsafe` |
//! | [`ring`] | the client's side of the submission ring |
//! | [`events`] | the client's side of an event queue |
//! | [`Client`] | all of them together |
//! | [`pair`] | two clients with work for each other, every byte of it looked at |
//! | [`points`] | where a test kills it |

mod attached;
pub mod events;
pub mod memory;
pub mod pair;
pub mod points;
pub mod ring;
pub mod socket;
pub mod wire;

pub use attached::{Arena, Client, PATIENCE, Tm};
