//! What a client and the helper process `nlxd` say to each other (S-3, S-6; in place of Motr's ioctls, motr-transport 7).
//!
//! There are three ways between the two:
//!
//! | way | from | carries |
//! | --- | --- | --- |
//! | a Unix socket of type `SOCK_SEQPACKET` | both | requests and replies ([`Request`], [`Reply`]), descriptors |
//! | the submission ring, in shared memory | client | operations, cancels, registrations: [`Submission`] |
//! | an event queue per transfer machine, in shared memory | helper | [`nlx_core::BufferEvent`] |
//!
//! This crate does no I/O: it turns values into bytes and back, and says which bytes are refused. Everything on the socket is
//! little-endian and of fixed width; both sides treat what they have not checked as hostile.
//!
//! | module | holds |
//! | --- | --- |
//! | `header` | [`Header`]: how each packet begins |
//! | `hello` | the first request, and what it agrees on |
//! | `request` | [`Request`] |
//! | `reply` | [`Reply`], [`Refusal`] |
//! | `submission` | [`Submission`], [`Entry`]: what goes through the ring |
//! | `limits` | every limit of the protocol |
//! | `error` | [`ProtoError`] |

#![forbid(unsafe_code)]

mod error;
mod header;
mod hello;
mod limits;
mod reply;
mod request;
mod submission;

pub use error::ProtoError;
pub use header::{Header, Kind};
pub use hello::{Features, Hello, Welcome};
pub use limits::{
    DESCRIPTORS_MAX, NAME_MAX, NIDS_MAX, PACKET_MAX, RING_SLOTS_MAX, SEGMENTS_MAX, SOCKET_PATH, VERSION,
};
pub use reply::{Reason, Refusal, Reply};
pub use request::{Request, Segment, StartTm};
pub use submission::{Entry, Submission};
