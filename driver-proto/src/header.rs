//! How each packet begins.

use std::mem::offset_of;

use static_assertions::{const_assert, const_assert_eq};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{OutcomeLayout, RegisterLayout, SegmentLayout};
use crate::object::Object;
use crate::{NIDS_MAX, PACKET_MAX, ProtoError, SEGMENTS_MAX};

const PACKET: Object = Object("a packet");

/// The first 16 bytes of every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// A [`Kind`]; of a reply with [`Header::REPLY`] set.
    pub kind: U16,
    /// Always 0.
    pub flags: U16,
    /// Bytes of the packet, these included.
    pub length: U32,
    /// The client's number for the request; its reply has the same.
    pub id: U64,
}

const_assert_eq!(size_of::<Header>(), Header::LEN);
const_assert_eq!(offset_of!(Header, kind), 0);
const_assert_eq!(offset_of!(Header, flags), 2);
const_assert_eq!(offset_of!(Header, length), 4);
const_assert_eq!(offset_of!(Header, id), 8);

// The longest request and the longest reply.
const_assert!(
    Header::LEN + size_of::<RegisterLayout>() + SEGMENTS_MAX * size_of::<SegmentLayout>() <= PACKET_MAX
);
const_assert!(Header::LEN + size_of::<OutcomeLayout>() + NIDS_MAX * nlx_core::Nid::WIRE_LEN <= PACKET_MAX);

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// The first request.
    Hello = 1,
    /// Make memory for buffers.
    CreateArena = 2,
    // 3 was one of version 1.
    /// Give memory back.
    ReleaseArena = 4,
    /// Make a buffer of several segments ready; one of a single segment goes through the ring.
    Register = 5,
    /// Start a transfer machine.
    StartTm = 6,
    /// Stop it.
    StopTm = 7,
    /// A descriptor for an event loop.
    TmDescriptor = 8,
    /// Nothing: the reply comes when all is done that stood in the ring before.
    Sync = 9,
    /// The node's NIDs.
    Nids = 10,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::Hello,
        Kind::CreateArena,
        Kind::ReleaseArena,
        Kind::Register,
        Kind::StartTm,
        Kind::StopTm,
        Kind::TmDescriptor,
        Kind::Sync,
        Kind::Nids,
    ];

    /// The one with this number.
    #[must_use]
    pub fn from_value(value: u16) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u16 == value)
    }

    /// Descriptors that come with its reply, unless it is refused. None come with a request.
    #[must_use]
    pub const fn reply_descriptors(self) -> usize {
        match self {
            Kind::Hello => 2,
            Kind::CreateArena | Kind::StartTm | Kind::TmDescriptor => 1,
            _ => 0,
        }
    }
}

impl Header {
    /// Bytes of it.
    pub const LEN: usize = 16;
    /// Set in the kind of every reply.
    pub const REPLY: u16 = 0x8000;

    /// The header of a packet of so many bytes.
    pub(crate) fn new(kind: u16, id: u64, length: usize) -> Header {
        debug_assert!(length <= PACKET_MAX);
        // No packet is longer than 32 bits can say.
        Header { kind: kind.into(), flags: 0.into(), length: (length as u32).into(), id: id.into() }
    }

    /// The header of a packet, and what follows it.
    ///
    /// # Errors
    /// [`ProtoError::Length`] (ENOTTY) if the packet is not as long as it says, [`ProtoError::Field`] (EBADR) for flags.
    pub fn read(packet: &[u8]) -> Result<(Header, &[u8]), ProtoError> {
        let (header, body): (&Header, _) = PACKET.prefix(packet)?;
        let told = header.length.get() as usize;
        if told != packet.len() || told > PACKET_MAX {
            return Err(PACKET.length(packet.len(), told.min(PACKET_MAX)));
        }
        match header.flags.get() {
            0 => Ok((*header, body)),
            flags => Err(PACKET.field("the flags", flags, "0")),
        }
    }

    /// What the first bytes of a packet say of it, true or not: to answer one that cannot be read.
    #[must_use]
    pub fn peek(packet: &[u8]) -> Option<Header> {
        Header::read_from_prefix(packet).ok().map(|(header, _)| header)
    }

    /// Puts the header before what has been written behind its place.
    pub(crate) fn seal(kind: u16, id: u64, packet: &mut [u8]) {
        let header = Header::new(kind, id, packet.len());
        packet[..Header::LEN].copy_from_slice(header.as_bytes());
    }
}
