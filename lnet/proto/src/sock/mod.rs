//! The TCP driver's protocol (lnet-wire part E): everything that two nodes exchange on a socket
//! around LNet messages.
//!
//! On every connection the active side sends an [`AcceptorRequest`] and, without waiting, its
//! [`Hello`]; the passive side answers with its own hello. After that both send messages: a
//! [`Prefix`], then for an LNet message a [`Header`](crate::Header) and the payload.
//!
//! | type | role |
//! | --- | --- |
//! | [`Connector`] | the active side's handshake |
//! | [`Acceptor`] | the passive side's handshake |
//! | [`Decoder`] | messages in the stream after the handshake |
//! | [`AckQueue`] | zero-copy acks to be sent to a peer |
//! | [`Keepalive`] | when a silent peer is sent a keepalive |

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

pub use acceptor::{AcceptProgress, Acceptor, ConnOffer, LocalInterface, LocalNode};
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

/// The TCP port on which nodes listen (lnet-wire 20).
pub const PORT: u16 = 988;

/// The highest privileged source port; peers that accept only `secure` connections close any other
/// (lnet-wire 20).
pub const PRIVILEGED_PORT_MAX: u16 = 1023;

/// The lowest source port that an active side tries (lnet-wire 20).
pub const PRIVILEGED_PORT_MIN: u16 = 512;

/// Messages of at least this length in bytes, including prefix and header, go on a bulk connection
/// (lnet-wire 25.4).
pub const MIN_BULK: usize = 1024;
