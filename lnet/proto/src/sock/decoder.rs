//! Messages in the stream after the hellos (lnet-wire 25).

use crate::{ByteOrder, Header, ProtoError};

use super::{MessageChecksum, Prefix, PrefixKind, Version};

/// The checksum of a NOOP, if it has one: that of no bytes (lnet-wire 25.3).
const NOOP_CSUM: u32 = super::Crc32::EMPTY.get();

/// Finds the start of a message, and decodes everything in front of its payload.
///
/// The decoder keeps no bytes. Pass it the unread bytes of the stream; pass the bytes that it does
/// not consume again, with more behind them. After [`Frame::Lnet`] the next
/// [`Header::payload_length`] bytes of the stream are the payload, which the caller receives.
///
/// ```
/// use lnet_proto::ByteOrder;
/// use lnet_proto::sock::{Acks, Decoder, Frame, Prefix, Version};
///
/// let mut bytes = [0; Prefix::LEN];
/// Prefix::KEEPALIVE.emit(&mut bytes);
/// let decoder = Decoder::new(Version::V3, ByteOrder::Little);
/// assert_eq!(decoder.decode(&bytes[..10])?, None);
/// assert_eq!(decoder.decode(&bytes)?, Some((24, Frame::Noop(Prefix::KEEPALIVE))));
/// # Ok::<(), lnet_proto::ProtoError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    version: Version,
    order: ByteOrder,
}

/// The next message in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A NOOP: a message of the socket protocol without an LNet message.
    Noop(Prefix),
    /// An LNet message, whose payload follows.
    Lnet(Prefix, Header),
}

impl Decoder {
    /// The maximum number of bytes that [`Decoder::decode`] needs at once.
    pub const FRAME_MAX: usize = Prefix::LEN + Header::LARGE_LEN;

    /// Makes a decoder for a connection on which hellos of `version` were exchanged and whose peer
    /// writes in `order`.
    #[must_use]
    pub const fn new(version: Version, order: ByteOrder) -> Decoder {
        Decoder { version, order }
    }

    /// Returns the number of bytes in front of the payload of an LNet message on this connection.
    #[must_use]
    pub const fn frame_len(&self) -> usize {
        Prefix::LEN + self.version.header_len()
    }

    /// Decodes the message at the start of `bytes`: returns the number of bytes consumed, and the
    /// message. `None` if `bytes` ends inside prefix or header; [`Decoder::frame_len`] bytes are
    /// always enough.
    ///
    /// # Errors
    /// A prefix or header that breaks the protocol; the caller must close all connections to the
    /// peer.
    pub fn decode(&self, bytes: &[u8]) -> Result<Option<(usize, Frame)>, ProtoError> {
        let Some((prefix, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let prefix = Prefix::parse(prefix, self.order)?;
        let header = match (prefix.kind, self.version) {
            (PrefixKind::Noop, _) => {
                check_noop(&prefix)?;
                return Ok(Some((Prefix::LEN, Frame::Noop(prefix))));
            }
            (PrefixKind::Lnet, Version::V2 | Version::V3) => rest.first_chunk().map(Header::parse),
            (PrefixKind::Lnet, Version::V4) => rest.first_chunk().map(Header::parse_large),
        };
        let Some(header) = header else { return Ok(None) };
        Ok(Some((self.frame_len(), Frame::Lnet(prefix, header?))))
    }

    /// Starts the check of a message's checksum; `None` if it has none. `frame` is the bytes that
    /// [`Decoder::decode`] consumed for it.
    #[must_use]
    pub fn checksum(&self, frame: &[u8]) -> Option<MessageChecksum> {
        MessageChecksum::start(self.version, self.order, frame)
    }
}

fn check_noop(prefix: &Prefix) -> Result<(), ProtoError> {
    match prefix.csum {
        0 | NOOP_CSUM => Ok(()),
        value => Err(ProtoError::Checksum { object: "NOOP", value, expected: NOOP_CSUM }),
    }
}
