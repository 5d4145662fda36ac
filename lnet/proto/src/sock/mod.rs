//! The TCP driver's protocol (lnet-wire part E): everything two nodes exchange on a socket around LNet messages.
//!
//! On every connection the active side sends an [`AcceptorRequest`] and, without waiting, its [`Hello`]; the passive
//! side answers with its own hello. From then on both send messages: a [`Prefix`], then for an LNet message a
//! [`Header`](crate::Header) and the payload.
//!
//! | machine | role |
//! | --- | --- |
//! | [`Connector`] | the active side's handshake |
//! | [`Acceptor`] | the passive side's handshake |
//! | [`Decoder`] | messages in the stream behind it |
//! | [`AckQueue`] | zero-copy acks owed to a peer |
//! | [`Keepalive`] | when a silent peer is sent a sign of life |

mod acceptor;
mod checksum;
mod conn_type;
mod connector;
mod decoder;
mod hello;
mod intake;
mod keepalive;
mod prefix;
mod request;
mod zc;

pub use acceptor::{AcceptProgress, Acceptor, LocalInterface, LocalNode, Offer};
pub use checksum::{Crc32, MessageChecksum};
pub use conn_type::ConnType;
pub use connector::{Attempt, ConnectProgress, Connector, Established, Retry};
pub use decoder::{Decoder, Frame};
pub use hello::{Hello, InterfaceAddresses, Version};
pub use intake::WireBytes;
pub use keepalive::{KEEPALIVE_PAUSE_NS, Keepalive};
pub use prefix::{Prefix, PrefixKind};
pub use request::{AcceptorRequest, RequestVerdict, RequestVersion};
pub use zc::{ACK_RUNS_MAX, AckQueue, Acks, COOKIE_KEEPALIVE, COOKIE_NONE};

/// The TCP port nodes listen on (lnet-wire 20).
pub const PORT: u16 = 988;

/// The highest privileged source port; peers that accept `secure` connections alone close any other (lnet-wire 20).
pub const PRIVILEGED_PORT_MAX: u16 = 1023;

/// The lowest source port an active side tries (lnet-wire 20).
pub const PRIVILEGED_PORT_MIN: u16 = 512;

/// Messages of at least this many bytes, prefix and header included, go on a bulk connection (lnet-wire 25.4).
pub const MIN_BULK: usize = 1024;
