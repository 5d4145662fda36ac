//! The RDMA driver's protocol (lnet-wire part F): the messages that two nodes exchange around RDMA
//! writes.
//!
//! The connection manager carries a CONNREQ to the passive side, and its CONNACK, or a [`Reject`]
//! record, back. After that each SEND is one [`Message`] of at most [`MESSAGE_MAX`] bytes. Data
//! that does not fit into one is written by RDMA to the memory that a [`RdmaDescriptor`] names.
//!
//! | type | role |
//! | --- | --- |
//! | [`Message`], [`Body`] | the ten messages |
//! | [`Head`], [`Link`] | sender and receiver, and their check |
//! | [`RdmaDescriptor`], [`RdmaFragment`] | the destination of an RDMA write |
//! | [`Reject`] | the reason of a rejection |
//! | [`Connector`] | the active side: what to request, and what to try after a rejection |
//! | [`AcceptRules`], [`ConnOffer`] | the passive side: the request, and the answer |
//! | [`checksum`], [`verify_checksum`] | message checksums, which are obsolete |
//!
//! Nodes send in their own byte order, which the magic number shows; this crate sends little-endian
//! and reads both. The driver keeps the credits of a connection.
//!
//! A large PUT, in the view of a sink that requests all of it:
//!
//! ```
//! use lnet_nid::{MatchBits, ProcessId};
//! use lnet_proto::ib::{Body, Cookie, RdmaDescriptor, End, RdmaFragment, Link, MESSAGE_MAX, Message, Version};
//! use lnet_proto::{Header, MAX_PAYLOAD, WireHandle};
//!
//! let source = End { nid: "10.0.0.1@o2ib".parse()?, stamp: 11 };
//! let sink = End { nid: "10.0.0.2@o2ib".parse()?, stamp: 22 };
//! let header = Header {
//!     dest: ProcessId::lnet(sink.nid),
//!     src: ProcessId::lnet(source.nid),
//!     payload_length: MAX_PAYLOAD,
//!     body: lnet_proto::Body::Put {
//!         ack_wmd: WireHandle::NONE,
//!         match_bits: MatchBits(7),
//!         hdr_data: 0,
//!         portal: 4,
//!         offset: 0,
//!     },
//! };
//! let mut wire = [0; MESSAGE_MAX];
//!
//! // The source announces its data ...
//! let link = Link { version: Version::V2, local: source, peer: sink };
//! let request = Message { head: link.head(0), body: Body::PutReq { header, cookie: Cookie::new(1) } };
//! let length = request.emit(&mut wire)?;
//!
//! // ... and the sink answers with their destination.
//! let link = Link { version: Version::V2, local: sink, peer: source };
//! let received = Message::parse(&wire[..length])?;
//! link.check(&received.head)?;
//! let Body::PutReq { header, cookie } = received.body else { panic!("no PUT_REQ") };
//! let memory = [RdmaFragment { length: header.payload_length, address: 0x7f00_0000 }];
//! let answer = Body::PutAck { source: cookie, sink: Cookie::new(9), descriptor: RdmaDescriptor::new(0x1234, &memory)? };
//! let length = Message { head: link.head(0), body: answer }.emit(&mut wire)?;
//! assert_eq!(length, 84);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checksum;
mod connector;
mod descriptor;
mod head;
mod kind;
mod listener;
mod message;
mod params;
mod reject;

pub use checksum::{CharSign, checksum, verify_checksum};
pub use connector::{AfterRejection, Attempt, Connector, Established, RETRIES_MAX, Rejection};
pub use descriptor::{RdmaDescriptor, RdmaFragment};
pub use head::{End, Head, Link, Version};
pub use kind::MessageKind;
pub use listener::{AcceptRules, ConnOffer, Destination, Known, LocalInterface, RequestRefusal};
pub use message::{Body, Cookie, Message, TransferStatus, emit_immediate};
pub use params::ConnParams;
pub use reject::{Reject, RejectReason};

/// The port of the connection manager's service on which nodes listen (lnet-wire 31).
pub const SERVICE: u16 = 987;

/// The highest privileged source port (lnet-wire 31).
pub const PRIVILEGED_PORT_MAX: u16 = 1023;

/// The maximum length of a message, and so the size of a receive buffer, in bytes (lnet-wire 31).
pub const MESSAGE_MAX: usize = 4096;

/// The maximum payload of an IMMEDIATE message in bytes (lnet-wire 35).
pub const IMMEDIATE_MAX: usize = MESSAGE_MAX - MessageKind::Immediate.min_len();

/// The maximum number of fragments in an RDMA descriptor: the pages of the largest payload, and one
/// more for an unaligned start (lnet-wire 32).
pub const RDMA_FRAGMENTS_MAX: u16 = 257;

/// The queue depth of every connection of version 1 (lnet-wire 36).
pub const QUEUE_DEPTH_V1: u16 = 8;
