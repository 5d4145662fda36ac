//! The LNet message header, in its two sizes (lnet-wire 6 and 7).

use std::fmt;
use std::mem::offset_of;

use lnet_nid::{MatchBits, Nid, Pid, ProcessId};
use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute};

use crate::error::{nid4, nid20, to_nid4};
use crate::{MAX_PAYLOAD, ProtoError, WireHandle};

/// The header of every LNet message: source, destination, length, and the operation.
///
/// Always little-endian, on every node. The portal is a plain number because it comes from the
/// wire; one that is not a valid [`lnet_nid::Portal`] matches nothing (lnet-wire 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Final destination.
    pub dest: ProcessId,
    /// Original source; routers do not change it.
    pub src: ProcessId,
    /// Length of the payload in bytes: 0 for ACK and GET, at most [`MAX_PAYLOAD`] for PUT and
    /// REPLY.
    pub payload_length: u32,
    /// The part that depends on the type of message.
    pub body: Body,
}

/// The part of a header that depends on the type of message (lnet-wire 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// An acknowledgement, from the target of a PUT.
    Ack {
        /// Echo of the PUT's `ack_wmd`.
        dst_wmd: WireHandle,
        /// The PUT's match bits.
        match_bits: MatchBits,
        /// Bytes accepted by the target.
        mlength: u32,
    },
    /// A PUT: the initiator sends data.
    Put {
        /// The handle that the ACK must echo; [`WireHandle::NONE`] if no ACK is requested.
        ack_wmd: WireHandle,
        /// The bits that the target matches.
        match_bits: MatchBits,
        /// Header data: 64 bits for the target's event.
        hdr_data: u64,
        /// Portal index.
        portal: u32,
        /// Offset into the target's buffer, in bytes; used only where the initiator manages it.
        offset: u32,
    },
    /// A GET: the initiator requests data.
    Get {
        /// The handle that the REPLY must echo.
        return_wmd: WireHandle,
        /// The bits that the target matches.
        match_bits: MatchBits,
        /// Portal index.
        portal: u32,
        /// Offset into the target's buffer, in bytes; used only where the initiator manages it.
        src_offset: u32,
        /// The maximum number of bytes requested.
        sink_length: u32,
    },
    /// The reply to a GET, with the data.
    Reply {
        /// Echo of the GET's `return_wmd`.
        dst_wmd: WireHandle,
    },
}

/// The four types of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum MessageType {
    /// See [`Body::Ack`].
    Ack = 0,
    /// See [`Body::Put`].
    Put = 1,
    /// See [`Body::Get`].
    Get = 2,
    /// See [`Body::Reply`].
    Reply = 3,
}

impl Header {
    /// Length in bytes of the header with 64-bit NIDs.
    pub const LEN: usize = size_of::<SmallHeader>();
    /// Length in bytes of the header with 20-byte NIDs.
    pub const LARGE_LEN: usize = size_of::<LargeHeader>();

    /// Returns the type of the message.
    #[must_use]
    pub fn message_type(&self) -> MessageType {
        self.body.message_type()
    }

    /// Parses a header with 64-bit NIDs. Bytes that the message's type does not use are ignored.
    ///
    /// # Errors
    /// Violations of lnet-wire 9 rows 1 to 3, and invalid NIDs.
    pub fn parse(bytes: &[u8; Header::LEN]) -> Result<Header, ProtoError> {
        let raw: SmallHeader = transmute!(*bytes);
        raw.parse(|field, nid| nid4(field, nid.get()))
    }

    /// Writes the header with 64-bit NIDs, unused bytes as zero.
    ///
    /// # Errors
    /// [`ProtoError::LargeNid`] for a NID that has no such form, [`ProtoError::PayloadLength`] as
    /// for [`Header::parse`]. `out` is then unchanged.
    pub fn emit(&self, out: &mut [u8; Header::LEN]) -> Result<(), ProtoError> {
        *out = transmute!(RawHeader::of(self, |field, nid| to_nid4(field, nid).map(U64::new))?);
        Ok(())
    }

    /// Parses a header with 20-byte NIDs, as [`Header::parse`] does.
    ///
    /// # Errors
    /// The errors of [`Header::parse`].
    pub fn parse_large(bytes: &[u8; Header::LARGE_LEN]) -> Result<Header, ProtoError> {
        let raw: LargeHeader = transmute!(*bytes);
        raw.parse(nid20)
    }

    /// Writes the header with 20-byte NIDs, unused bytes as zero.
    ///
    /// # Errors
    /// [`ProtoError::PayloadLength`] as for [`Header::parse`]. `out` is then unchanged.
    pub fn emit_large(&self, out: &mut [u8; Header::LARGE_LEN]) -> Result<(), ProtoError> {
        *out = transmute!(RawHeader::of(self, |_, nid| Ok(nid.to_wire()))?);
        Ok(())
    }

    fn checked(self) -> Result<Header, ProtoError> {
        let message = self.message_type();
        let (value, limit) = (self.payload_length, message.max_payload());
        if value > limit { Err(ProtoError::PayloadLength { message, value, limit }) } else { Ok(self) }
    }
}

impl MessageType {
    /// Returns the maximum payload in bytes of a message of this type (lnet-wire 9, rows 1 and 2).
    #[must_use]
    pub const fn max_payload(self) -> u32 {
        match self {
            MessageType::Ack | MessageType::Get => 0,
            MessageType::Put | MessageType::Reply => MAX_PAYLOAD,
        }
    }
}

impl TryFrom<u32> for MessageType {
    type Error = ProtoError;

    fn try_from(value: u32) -> Result<MessageType, ProtoError> {
        match value {
            0 => Ok(MessageType::Ack),
            1 => Ok(MessageType::Put),
            2 => Ok(MessageType::Get),
            3 => Ok(MessageType::Reply),
            _ => Err(ProtoError::MessageType { value }),
        }
    }
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MessageType::Ack => "ACK",
            MessageType::Put => "PUT",
            MessageType::Get => "GET",
            MessageType::Reply => "REPLY",
        })
    }
}

impl Body {
    /// Returns the type of the message.
    #[must_use]
    pub fn message_type(&self) -> MessageType {
        match self {
            Body::Ack { .. } => MessageType::Ack,
            Body::Put { .. } => MessageType::Put,
            Body::Get { .. } => MessageType::Get,
            Body::Reply { .. } => MessageType::Reply,
        }
    }

    fn parse(message_type: u32, bytes: [u8; BODY_LEN]) -> Result<Body, ProtoError> {
        Ok(match MessageType::try_from(message_type)? {
            MessageType::Ack => {
                let raw: RawAck = transmute!(bytes);
                let match_bits = MatchBits(raw.match_bits.get());
                Body::Ack { dst_wmd: raw.dst_wmd, match_bits, mlength: raw.mlength.get() }
            }
            MessageType::Put => {
                let raw: RawPut = transmute!(bytes);
                Body::Put {
                    ack_wmd: raw.ack_wmd,
                    match_bits: MatchBits(raw.match_bits.get()),
                    hdr_data: raw.hdr_data.get(),
                    portal: raw.portal.get(),
                    offset: raw.offset.get(),
                }
            }
            MessageType::Get => {
                let raw: RawGet = transmute!(bytes);
                Body::Get {
                    return_wmd: raw.return_wmd,
                    match_bits: MatchBits(raw.match_bits.get()),
                    portal: raw.portal.get(),
                    src_offset: raw.src_offset.get(),
                    sink_length: raw.sink_length.get(),
                }
            }
            MessageType::Reply => {
                let raw: RawReply = transmute!(bytes);
                Body::Reply { dst_wmd: raw.dst_wmd }
            }
        })
    }

    fn emit(&self) -> [u8; BODY_LEN] {
        match *self {
            Body::Ack { dst_wmd, match_bits, mlength } => transmute!(RawAck {
                dst_wmd,
                match_bits: U64::new(match_bits.0),
                mlength: U32::new(mlength),
                unused: [0; 12],
            }),
            Body::Put { ack_wmd, match_bits, hdr_data, portal, offset } => transmute!(RawPut {
                ack_wmd,
                match_bits: U64::new(match_bits.0),
                hdr_data: U64::new(hdr_data),
                portal: U32::new(portal),
                offset: U32::new(offset),
            }),
            Body::Get { return_wmd, match_bits, portal, src_offset, sink_length } => transmute!(RawGet {
                return_wmd,
                match_bits: U64::new(match_bits.0),
                portal: U32::new(portal),
                src_offset: U32::new(src_offset),
                sink_length: U32::new(sink_length),
                unused: [0; 4],
            }),
            Body::Reply { dst_wmd } => transmute!(RawReply { dst_wmd, unused: [0; 24] }),
        }
    }
}

/// Length in bytes of the part of a header that depends on the type of message.
const BODY_LEN: usize = 40;

/// The layout of a header, with NIDs of either form.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader<N> {
    dest_nid: N,
    src_nid: N,
    dest_pid: U32,
    src_pid: U32,
    message_type: U32,
    payload_length: U32,
    body: [u8; BODY_LEN],
}

type SmallHeader = RawHeader<U64>;
type LargeHeader = RawHeader<[u8; Nid::WIRE_LEN]>;

const_assert_eq!(size_of::<SmallHeader>(), 72);
const_assert_eq!(offset_of!(SmallHeader, dest_pid), 16);
const_assert_eq!(offset_of!(SmallHeader, message_type), 24);
const_assert_eq!(offset_of!(SmallHeader, body), 32);
const_assert_eq!(size_of::<LargeHeader>(), 96);
const_assert_eq!(offset_of!(LargeHeader, dest_pid), 40);
const_assert_eq!(offset_of!(LargeHeader, message_type), 48);
const_assert_eq!(offset_of!(LargeHeader, body), 56);

impl<N> RawHeader<N> {
    fn parse(self, nid: impl Fn(&'static str, &N) -> Result<Nid, ProtoError>) -> Result<Header, ProtoError> {
        Header {
            dest: ProcessId::new(nid("dest_nid", &self.dest_nid)?, Pid(self.dest_pid.get())),
            src: ProcessId::new(nid("src_nid", &self.src_nid)?, Pid(self.src_pid.get())),
            payload_length: self.payload_length.get(),
            body: Body::parse(self.message_type.get(), self.body)?,
        }
        .checked()
    }

    fn of(
        header: &Header,
        nid: impl Fn(&'static str, Nid) -> Result<N, ProtoError>,
    ) -> Result<RawHeader<N>, ProtoError> {
        header.checked()?;
        Ok(RawHeader {
            dest_nid: nid("dest_nid", header.dest.nid)?,
            src_nid: nid("src_nid", header.src.nid)?,
            dest_pid: U32::new(header.dest.pid.0),
            src_pid: U32::new(header.src.pid.0),
            message_type: U32::new(header.message_type() as u32),
            payload_length: U32::new(header.payload_length),
            body: header.body.emit(),
        })
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawAck {
    dst_wmd: WireHandle,
    match_bits: U64,
    mlength: U32,
    unused: [u8; 12],
}

const_assert_eq!(size_of::<RawAck>(), BODY_LEN);
const_assert_eq!(offset_of!(RawAck, mlength), 56 - 32);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPut {
    ack_wmd: WireHandle,
    match_bits: U64,
    hdr_data: U64,
    portal: U32,
    offset: U32,
}

const_assert_eq!(size_of::<RawPut>(), BODY_LEN);
const_assert_eq!(offset_of!(RawPut, hdr_data), 56 - 32);
const_assert_eq!(offset_of!(RawPut, portal), 64 - 32);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawGet {
    return_wmd: WireHandle,
    match_bits: U64,
    portal: U32,
    src_offset: U32,
    sink_length: U32,
    unused: [u8; 4],
}

const_assert_eq!(size_of::<RawGet>(), BODY_LEN);
const_assert_eq!(offset_of!(RawGet, portal), 56 - 32);
const_assert_eq!(offset_of!(RawGet, sink_length), 64 - 32);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReply {
    dst_wmd: WireHandle,
    unused: [u8; 24],
}

const_assert_eq!(size_of::<RawReply>(), BODY_LEN);
