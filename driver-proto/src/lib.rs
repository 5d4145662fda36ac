//! The protocol between a client and the helper process `nlxd` (S-3, S-6; in place of Motr's
//! ioctls, motr-transport 7).
//!
//! There are three channels between the two:
//!
//! | channel | from | carries |
//! | --- | --- | --- |
//! | a Unix socket of type `SOCK_SEQPACKET` | both | requests and replies ([`Request`], [`Reply`]), descriptors |
//! | the submission ring, in shared memory | client | operations, cancels, registrations: [`Submission`] |
//! | an event queue per transfer machine, in shared memory | helper | [`nlx_core::BufferEvent`] |
//!
//! This crate does no I/O: it converts values to bytes and back, and refuses invalid bytes. All
//! data on the socket and in the ring is little-endian and of fixed width; fields without a meaning
//! must be 0, so that later versions can give them one. `docs/driver-protocol.md` describes the
//! protocol for clients that do not use this crate.
//!
//! | module | holds |
//! | --- | --- |
//! | `header` | [`Header`], [`Kind`]: the start of each packet |
//! | `hello`, `welcome` | [`Hello`], [`Welcome`]: the first request and its reply |
//! | `request` | [`Request`] |
//! | `reply`, `refusal` | [`Reply`], [`Refusal`], [`Reason`] |
//! | `buffer` | [`BufferName`], [`Segment`]: names of buffers, and their memory |
//! | `submission`, `entry` | [`Submission`], [`Entry`]: entries of the ring, as bytes and as values |
//! | `layout` | the bytes of every message |
//! | `limits` | every limit of the protocol |
//! | `error` | [`PacketError`] |
//!
//! ```
//! use nlx_driver_proto::{Header, PacketError, Refusal, Reply, Request};
//!
//! let mut packet = Vec::new();
//! Request::StopTm { tm: 7 }.write(1, &mut packet);
//! assert_eq!(Request::read(&packet)?, (1, Request::StopTm { tm: 7 }));
//!
//! // A packet that is not a request is answered with the errno of Motr's driver.
//! packet[0] = 99;
//! let error = Request::read(&packet).unwrap_err();
//! let header = Header::peek(&packet).expect("it has one");
//! let mut answer = Vec::new();
//! Reply::Refused(Refusal::from(&error)).write(header.kind.get(), header.id.get(), &mut answer);
//! assert!(matches!(Reply::read(&answer)?, (1, Reply::Refused(refusal)) if refusal.errno == error.errno()));
//! # Ok::<(), PacketError>(())
//! ```

#![forbid(unsafe_code)]

mod buffer;
mod entry;
mod error;
mod header;
mod hello;
mod layout;
mod limits;
mod object;
mod refusal;
mod reply;
mod request;
mod submission;
mod welcome;

pub use buffer::{BufferName, Segment};
pub use entry::Entry;
pub use error::PacketError;
pub use header::{Header, Kind};
pub use hello::{Features, Hello};
pub use limits::{
    ARENA_BYTES_MAX, BUFFERS_MAX, DESCRIPTORS_MAX, EVENTS_MAX, NAME_MAX, NIDS_MAX, PACKET_MAX,
    RING_SLOTS_MAX, SEGMENTS_MAX, SOCKET_PATH, VERSION,
};
pub use refusal::{Reason, Refusal};
pub use reply::Reply;
pub use request::{Request, StartTm};
pub use submission::Submission;
pub use welcome::Welcome;
