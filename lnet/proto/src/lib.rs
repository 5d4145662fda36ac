//! LNet's wire layouts and sans-I/O protocol state machines.
//!
//! Input is bytes, output is values and bytes. The crate has no socket, thread or clock; it does
//! not allocate memory because of a length that a peer claims, and it checks each length before
//! use. Each layout has a raw form, whose size and offsets are asserted at compile time, and a
//! parsed form for callers; parsing and emitting again gives the same bytes. Numbers in the
//! documentation such as "lnet-wire 22.2" name chapters of the wire specification.
//!
//! The *meaning* of messages (matching, credits, events) is implemented by the engine; connections,
//! timers and the choice of a connection by the LNet drivers.
//!
//! ```
//! use lnet_nid::{MatchBits, Nid, ProcessId};
//! use lnet_proto::{Body, Header, MAX_PAYLOAD, WireHandle};
//!
//! let header = Header {
//!     dest: ProcessId::lnet("10.0.0.1@tcp".parse()?),
//!     src: ProcessId::lnet("10.0.0.2@tcp".parse()?),
//!     payload_length: 0,
//!     body: Body::Get {
//!         return_wmd: WireHandle::new(1, 2),
//!         match_bits: MatchBits::PING,
//!         portal: 0,
//!         src_offset: 0,
//!         sink_length: MAX_PAYLOAD,
//!     },
//! };
//! let mut bytes = [0; Header::LEN];
//! header.emit(&mut bytes)?;
//! assert_eq!(Header::parse(&bytes)?, header);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | lnet-wire | holds |
//! | --- | --- | --- |
//! | `header` | 6, 7, 9 | [`Header`], [`Body`]: the LNet message header, small (72 bytes) and large (96 bytes) |
//! | `handle` | 5 | [`WireHandle`]: the 16 opaque bytes that identify the operation of an answer |
//! | `limits` | 8 | limits that all nodes share |
//! | `order` | 0 | [`ByteOrder`], [`Decoded`] |
//! | [`ping`] | 15 to 17 | the ping info, which answers a ping GET and fills a push PUT |
//! | [`sock`] | 20 to 28 | the TCP driver: handshakes, framing, zero-copy acks, keepalives |
//! | `sock::request` | 20, 21 | [`sock::AcceptorRequest`] |
//! | `sock::hello`, `sock::conn_type` | 22, 23 | [`sock::Hello`], [`sock::Version`], [`sock::ConnType`] |
//! | `sock::acceptor`, `sock::connector` | 22.5, 24, 27 | [`sock::Acceptor`], [`sock::Connector`] |
//! | `sock::prefix`, `sock::decoder`, `sock::checksum` | 25 | [`sock::Prefix`], [`sock::Decoder`], [`sock::Crc32`] |
//! | `sock::zc` | 26 | [`sock::Acks`], [`sock::AckQueue`] |
//! | `sock::keepalive` | 28 | [`sock::Keepalive`] |
//! | [`ib`] | 31 to 37 | the RDMA driver: messages, descriptors, reject records, negotiation |
//! | `ib::head`, `ib::kind`, `ib::message` | 32, 35 | [`ib::Message`], [`ib::Head`], [`ib::Link`] |
//! | `ib::params` | 32, 34 | [`ib::ConnParams`] |
//! | `ib::descriptor` | 32, 37 | [`ib::RdmaDescriptor`] |
//! | `ib::checksum` | 32 | [`ib::checksum()`], [`ib::verify_checksum`] |
//! | `ib::reject` | 33 | [`ib::Reject`] |
//! | `ib::connector`, `ib::listener` | 33, 34 | [`ib::Connector`], [`ib::AcceptRules`] |
//! | [`lst`] | lst 2 to 8 | the self-test: requests, replies, statistics |
//! | `error` | | [`ProtoError`] |

#![forbid(unsafe_code)]

mod cursor;
mod error;
mod handle;
mod header;
pub mod ib;
mod limits;
pub mod lst;
mod order;
pub mod ping;
pub mod sock;

pub use error::ProtoError;
pub use handle::WireHandle;
pub use header::{Body, Header, MessageType};
pub use limits::{MAX_FRAGMENTS, MAX_PAYLOAD, PING_PORTAL};
pub use order::{ByteOrder, Decoded};
