//! The header of a packet.

use std::mem::offset_of;

use static_assertions::{const_assert, const_assert_eq};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::{OutcomeLayout, RegisterLayout, SegmentLayout};
use crate::object::Object;
use crate::{NIDS_MAX, PACKET_MAX, PacketError, SEGMENTS_MAX};

const PACKET: Object = Object("a packet");

/// The first 16 bytes of every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// A [`Kind`]; in a reply with [`Header::REPLY`] set.
    pub kind: U16,
    /// Always 0.
    pub flags: U16,
    /// Length of the packet in bytes, with the header.
    pub length: U32,
    /// The client's number for the request; the reply repeats it.
    pub id: U64,
}

const_assert_eq!(size_of::<Header>(), Header::LEN);
const_assert_eq!(offset_of!(Header, kind), 0);
const_assert_eq!(offset_of!(Header, flags), 2);
const_assert_eq!(offset_of!(Header, length), 4);
const_assert_eq!(offset_of!(Header, id), 8);

// The longest request and the longest reply fit.
const_assert!(
    Header::LEN + size_of::<RegisterLayout>() + SEGMENTS_MAX * size_of::<SegmentLayout>() <= PACKET_MAX
);
const_assert!(Header::LEN + size_of::<OutcomeLayout>() + NIDS_MAX * nlx_core::Nid::WIRE_LEN <= PACKET_MAX);

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// First request: version, features and name of the client.
    Hello = 1,
    /// Creates an arena.
    CreateArena = 2,
    // 3 was used by version 1.
    /// Releases an arena.
    ReleaseArena = 4,
    /// Registers a buffer of several segments; one of a single segment goes through the ring.
    Register = 5,
    /// Starts a transfer machine.
    StartTm = 6,
    /// Stops a transfer machine.
    StopTm = 7,
    /// Requests a descriptor for an event loop.
    TmDescriptor = 8,
    /// Does nothing: the reply comes when all earlier entries of the ring have been processed.
    Sync = 9,
    /// Requests the node's NIDs.
    Nids = 10,
}

impl Kind {
    /// All kinds.
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

    /// Returns the kind with this number.
    #[must_use]
    pub fn from_value(value: u16) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u16 == value)
    }

    /// Returns the number of descriptors that come with its reply, unless it is refused. A request
    /// has none.
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
    /// Length of the header in bytes.
    pub const LEN: usize = 16;
    /// Flag in the kind of every reply.
    pub const REPLY: u16 = 0x8000;

    /// Creates the header of a packet of `length` bytes.
    pub(crate) fn new(kind: u16, id: u64, length: usize) -> Header {
        debug_assert!(length <= PACKET_MAX);
        // PACKET_MAX fits 32 bits.
        Header { kind: kind.into(), flags: 0.into(), length: (length as u32).into(), id: id.into() }
    }

    /// Splits a packet into its header and its body.
    ///
    /// # Errors
    /// [`PacketError::Length`] (ENOTTY) if the length in the header is wrong, [`PacketError::Field`]
    /// (EBADR) for flags.
    pub fn read(packet: &[u8]) -> Result<(Header, &[u8]), PacketError> {
        let (header, body): (&Header, _) = PACKET.prefix(packet)?;
        let stated = header.length.get() as usize;
        if stated != packet.len() || stated > PACKET_MAX {
            return Err(PACKET.length(packet.len(), stated.min(PACKET_MAX)));
        }
        match header.flags.get() {
            0 => Ok((*header, body)),
            flags => Err(PACKET.field("the flags", flags, "0")),
        }
    }

    /// Returns the header of a packet, unchecked: for the answer to a packet that is refused.
    #[must_use]
    pub fn peek(packet: &[u8]) -> Option<Header> {
        Header::read_from_prefix(packet).ok().map(|(header, _)| header)
    }

    /// Writes the header into the space before the body.
    pub(crate) fn seal(kind: u16, id: u64, packet: &mut [u8]) {
        let header = Header::new(kind, id, packet.len());
        packet[..Header::LEN].copy_from_slice(header.as_bytes());
    }
}
