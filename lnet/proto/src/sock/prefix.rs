//! The message prefix: 24 bytes in front of every message (lnet-wire 25.2).

use std::mem::offset_of;
use std::ops::Range;

use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::{ByteOrder, ProtoError};

use super::{Acks, COOKIE_KEEPALIVE, COOKIE_NONE};

/// The content behind a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PrefixKind {
    /// Nothing: the prefix carries zero-copy acks, or keeps the connection alive.
    Noop = 0xc0,
    /// An LNet header and its payload.
    Lnet = 0xc1,
}

/// The prefix of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// The content behind the prefix.
    pub kind: PrefixKind,
    /// Checksum of the message; 0 for none, which is what nodes send (lnet-wire 25.3).
    pub csum: u32,
    /// Cookie 0. In an LNet message it is the cookie that the receiver is to acknowledge, or 0. In
    /// a NOOP it is one of the two cookies that [`Prefix::acks`] interprets.
    pub zc_req: u64,
    /// Cookie 1: an acknowledged cookie, or 0.
    pub zc_ack: u64,
}

impl Prefix {
    /// Length of a prefix in bytes.
    pub const LEN: usize = size_of::<RawPrefix>();

    /// The position of the checksum.
    pub(crate) const CSUM_FIELD: Range<usize> = offset_of!(RawPrefix, csum)..offset_of!(RawPrefix, zc_req);

    /// The NOOP that keeps a connection alive (protocol versions 3 and 4).
    pub const KEEPALIVE: Prefix =
        Prefix { kind: PrefixKind::Noop, csum: 0, zc_req: COOKIE_NONE, zc_ack: COOKIE_KEEPALIVE };

    /// The prefix of an LNet message without a zero-copy request or acknowledgement.
    pub const LNET: Prefix =
        Prefix { kind: PrefixKind::Lnet, csum: 0, zc_req: COOKIE_NONE, zc_ack: COOKIE_NONE };

    /// Parses a prefix in its sender's byte order, known from the hello.
    ///
    /// # Errors
    /// [`ProtoError::PrefixType`].
    pub fn parse(bytes: &[u8; Prefix::LEN], order: ByteOrder) -> Result<Prefix, ProtoError> {
        let raw: RawPrefix = transmute!(*bytes);
        let kind = match order.u32(raw.kind.get()) {
            0xc0 => PrefixKind::Noop,
            0xc1 => PrefixKind::Lnet,
            value => return Err(ProtoError::PrefixType { value }),
        };
        Ok(Prefix {
            kind,
            csum: order.u32(raw.csum.get()),
            zc_req: order.u64(raw.zc_req.get()),
            zc_ack: order.u64(raw.zc_ack.get()),
        })
    }

    /// Writes the prefix, little-endian.
    pub fn emit(&self, out: &mut [u8; Prefix::LEN]) {
        *out = transmute!(RawPrefix {
            kind: U32::new(self.kind as u32),
            csum: U32::new(self.csum),
            zc_req: U64::new(self.zc_req),
            zc_ack: U64::new(self.zc_ack),
        });
    }

    /// Returns the local cookies that the peer acknowledges with this message.
    #[must_use]
    pub fn acks(&self) -> Acks {
        Acks::of(self)
    }

    /// Returns the cookie that is to be acknowledged once the message's payload is received, if
    /// there is one.
    #[must_use]
    pub fn wants_ack(&self) -> Option<u64> {
        match self.kind {
            PrefixKind::Lnet if self.zc_req != COOKIE_NONE => Some(self.zc_req),
            _ => None,
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPrefix {
    kind: U32,
    csum: U32,
    zc_req: U64,
    zc_ack: U64,
}

const_assert_eq!(size_of::<RawPrefix>(), 24);
const_assert_eq!(offset_of!(RawPrefix, csum), 4);
const_assert_eq!(offset_of!(RawPrefix, zc_req), 8);
const_assert_eq!(offset_of!(RawPrefix, zc_ack), 16);
