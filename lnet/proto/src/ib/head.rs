//! The 48-byte head of every message, and the two ends of a connection that it names.

use std::mem::offset_of;

use lnet_nid::Nid;
use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{nid4, to_nid4};
use crate::{ByteOrder, ProtoError};

use super::MessageKind;

/// The magic number of messages and reject records.
pub(crate) const MAGIC: u32 = 0x0be9_1b91;

/// The name of a message of unknown type in errors.
pub(crate) const OBJECT: &str = "o2iblnd message";

/// The version of the RDMA protocol, the same for all messages of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Version {
    /// Version 1: queues of fixed depth, and NOOPs that need a credit. Obsolete since Lustre 1.8.
    V1 = 0x11,
    /// Version 2, which nodes use.
    V2 = 0x12,
}

impl Version {
    /// Parses the version of `object`.
    pub(crate) fn parse(object: &'static str, value: u16) -> Result<Version, ProtoError> {
        match value {
            0x11 => Ok(Version::V1),
            0x12 => Ok(Version::V2),
            value => Err(ProtoError::Version { object, value: value.into(), min: 0x11, max: 0x12 }),
        }
    }
}

/// The sender and receiver of a message: the two interfaces of the connection, not the ends of the
/// LNet message in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// The protocol version of the connection.
    pub version: Version,
    /// Credits returned to the receiver.
    pub credits: u8,
    /// Checksum of the message's bytes as sent; 0 for none. Send 0. See [`super::verify_checksum`].
    pub checksum: u32,
    /// The sending interface.
    pub src: End,
    /// The receiving interface; its stamp is 0 in a CONNREQ if it is not known yet.
    pub dst: End,
}

/// One incarnation of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// The NID of the interface. It has a 4-byte address, as messages cannot encode others.
    pub nid: Nid,
    /// The incarnation of the interface: a number other than 0 that changes when the interface
    /// restarts.
    pub stamp: u64,
}

/// The two ends of a connection, named in all its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// The protocol version that both ends agreed on.
    pub version: Version,
    /// This node's interface.
    pub local: End,
    /// The peer's interface.
    pub peer: End,
}

impl Link {
    /// Returns the head of a message to the peer that returns `credits`.
    #[must_use]
    pub const fn head(&self, credits: u8) -> Head {
        Head { version: self.version, credits, checksum: 0, src: self.local, dst: self.peer }
    }

    /// Checks that a message from the peer belongs to this connection (lnet-wire 32, receive-time
    /// checks).
    ///
    /// # Errors
    /// [`ProtoError::WrongEnd`], [`ProtoError::Stale`]: the caller must close the connection.
    pub fn check(&self, head: &Head) -> Result<(), ProtoError> {
        check_nid("srcnid", head.src, self.peer)?;
        check_nid("dstnid", head.dst, self.local)?;
        check_stamp("srcstamp", head.src, self.peer)?;
        check_stamp("dststamp", head.dst, self.local)
    }
}

/// Checks that `got` is the interface `wanted`, in any incarnation.
pub(crate) fn check_nid(field: &'static str, got: End, wanted: End) -> Result<(), ProtoError> {
    let (got, wanted) = (got.nid, wanted.nid);
    if got == wanted { Ok(()) } else { Err(ProtoError::WrongEnd { field, got, wanted }) }
}

/// Checks that `got` is the incarnation `wanted`.
pub(crate) fn check_stamp(field: &'static str, got: End, wanted: End) -> Result<(), ProtoError> {
    let (got, wanted) = (got.stamp, wanted.stamp);
    if got == wanted { Ok(()) } else { Err(ProtoError::Stale { field, got, wanted }) }
}

impl Head {
    /// Length of a head in bytes.
    pub(crate) const LEN: usize = size_of::<RawHead>();
}

/// Parses byte order and version, which are in the first six bytes of every message and record.
pub(crate) fn parse_start(object: &'static str, bytes: &[u8]) -> Result<(ByteOrder, Version), ProtoError> {
    let Some([magic @ .., low, high]) = bytes.first_chunk::<6>() else {
        return Err(ProtoError::Truncated { object, length: bytes.len(), needed: 6 });
    };
    let order = ByteOrder::of_magic(*magic, MAGIC).ok_or(ProtoError::Magic {
        object,
        value: u32::from_le_bytes(*magic),
        expected: MAGIC,
    })?;
    Ok((order, Version::parse(object, order.u16(u16::from_le_bytes([*low, *high])))?))
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHead {
    magic: U32,
    version: U16,
    kind: u8,
    credits: u8,
    nob: U32,
    checksum: U32,
    src_nid: U64,
    src_stamp: U64,
    dst_nid: U64,
    dst_stamp: U64,
}

const_assert_eq!(size_of::<RawHead>(), 48);
const_assert_eq!(offset_of!(RawHead, version), 4);
const_assert_eq!(offset_of!(RawHead, kind), 6);
const_assert_eq!(offset_of!(RawHead, credits), 7);
const_assert_eq!(offset_of!(RawHead, nob), 8);
const_assert_eq!(offset_of!(RawHead, checksum), 12);
const_assert_eq!(offset_of!(RawHead, src_nid), 16);
const_assert_eq!(offset_of!(RawHead, src_stamp), 24);
const_assert_eq!(offset_of!(RawHead, dst_nid), 32);
const_assert_eq!(offset_of!(RawHead, dst_stamp), 40);

impl RawHead {
    /// The position of the checksum in a message.
    pub(crate) const CHECKSUM_AT: usize = offset_of!(RawHead, checksum);

    /// Makes the head of a message of `nob` bytes.
    pub(crate) fn new(head: &Head, kind: MessageKind, nob: usize) -> Result<RawHead, ProtoError> {
        check_sender(head.src.nid)?;
        Ok(RawHead {
            magic: U32::new(MAGIC),
            version: U16::new(head.version as u16),
            kind: kind as u8,
            credits: head.credits,
            nob: U32::new(nob as u32),
            checksum: U32::new(head.checksum),
            src_nid: U64::new(to_nid4("srcnid", head.src.nid)?),
            src_stamp: U64::new(head.src.stamp),
            dst_nid: U64::new(to_nid4("dstnid", head.dst.nid)?),
            dst_stamp: U64::new(head.dst.stamp),
        })
    }

    pub(crate) fn kind(&self) -> Result<MessageKind, ProtoError> {
        MessageKind::try_from(self.kind)
    }

    /// Returns the length that the message claims to have.
    pub(crate) fn nob(&self, order: ByteOrder) -> usize {
        order.u32(self.nob.get()) as usize
    }

    pub(crate) fn checksum(&self, order: ByteOrder) -> u32 {
        order.u32(self.checksum.get())
    }

    pub(crate) fn parse(&self, version: Version, order: ByteOrder) -> Result<Head, ProtoError> {
        Ok(Head {
            version,
            credits: self.credits,
            checksum: self.checksum(order),
            src: End {
                nid: check_sender(nid4("srcnid", order.u64(self.src_nid.get()))?)?,
                stamp: order.u64(self.src_stamp.get()),
            },
            dst: End {
                nid: nid4("dstnid", order.u64(self.dst_nid.get()))?,
                stamp: order.u64(self.dst_stamp.get()),
            },
        })
    }
}

fn check_sender(nid: Nid) -> Result<Nid, ProtoError> {
    if nid.is_any() || nid.is_loopback() {
        return Err(ProtoError::NotInterface { field: "srcnid", nid });
    }
    Ok(nid)
}
