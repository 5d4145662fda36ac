//! Parsing and emitting of whole messages, head and body.

use std::mem::offset_of;

use static_assertions::const_assert_eq;
use zerocopy::little_endian::I32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::cursor::Cursor;
use crate::{ByteOrder, Header, MessageType, ProtoError};

use super::head::{Head, OBJECT, RawHead, parse_start};
use super::params::RawParams;
use super::{ConnParams, MESSAGE_MAX, MessageKind, RdmaDescriptor};

/// One message of the RDMA driver: one SEND, or the private data of a connection request or its
/// acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The head: version, credits, and the sender and receiver.
    pub head: Head,
    /// The content, by type of message.
    pub body: Body<'a>,
}

/// The content of a message (lnet-wire 32 and 35). The embedded LNet header is always the small
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// The active side requests a connection with these parameters.
    ConnReq(ConnParams),
    /// The passive side accepts; these parameters apply.
    ConnAck(ConnParams),
    /// A NOOP, which has only a head.
    Noop,
    /// A whole LNet message, of any type.
    Immediate {
        /// The LNet header.
        header: Header,
        /// The payload, with the length in the header, at most [`super::IMMEDIATE_MAX`].
        payload: &'a [u8],
    },
    /// A PUT or REPLY whose payload the receiver is to request.
    PutReq {
        /// The LNet header.
        header: Header,
        /// The cookie that the answer must echo.
        cookie: Cookie,
    },
    /// The answer to a PUT_REQ if no payload is wanted (status 0) or can be received (status below
    /// 0).
    PutNak(TransferStatus),
    /// The answer to a PUT_REQ if its payload is wanted.
    PutAck {
        /// Echo of the PUT_REQ's cookie.
        source: Cookie,
        /// The cookie that the PUT_DONE must echo.
        sink: Cookie,
        /// The destination and length of the write.
        descriptor: RdmaDescriptor<'a>,
    },
    /// The payload of a PUT_REQ has been written, or will not be.
    PutDone(TransferStatus),
    /// A GET whose data are to be written by RDMA.
    GetReq {
        /// The LNet header.
        header: Header,
        /// The cookie that the GET_DONE must echo.
        cookie: Cookie,
        /// The destination of the write: the whole of the initiator's buffer.
        descriptor: RdmaDescriptor<'a>,
    },
    /// The data of a GET_REQ have been written, or will not be.
    GetDone(TransferStatus),
}

/// Eight bytes that their owner chooses and the peer echoes. They have no byte order, and no
/// meaning for other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub [u8; 8]);

impl Cookie {
    /// Makes a cookie from a number.
    #[must_use]
    pub const fn new(number: u64) -> Cookie {
        Cookie(number.to_le_bytes())
    }

    /// Returns the number given to [`Cookie::new`]; meaningless for another node's cookie.
    #[must_use]
    pub const fn get(self) -> u64 {
        u64::from_le_bytes(self.0)
    }
}

/// The result of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferStatus {
    /// Echo of the cookie of the side that waits for this message.
    pub cookie: Cookie,
    /// The number of bytes transferred, or a negative errno.
    pub status: i32,
}

impl TransferStatus {
    /// Returns the number of bytes transferred.
    ///
    /// # Errors
    /// The errno, as a positive number.
    pub const fn outcome(&self) -> Result<u32, u32> {
        if self.status < 0 { Err(self.status.unsigned_abs()) } else { Ok(self.status.unsigned_abs()) }
    }
}

impl<'a> Message<'a> {
    /// Parses the message at the start of `bytes`, the received bytes: they may be longer than the
    /// message (the connection manager pads its private data), never shorter. Checksums are not
    /// checked, see [`super::verify_checksum`]; [`super::Link::check`] checks that the message
    /// belongs to its connection.
    ///
    /// # Errors
    /// All checks of lnet-wire 32 that are independent of the connection, each naming the field.
    pub fn parse(bytes: &'a [u8]) -> Result<Message<'a>, ProtoError> {
        let (order, version) = parse_start(OBJECT, bytes)?;
        let truncated = |needed| ProtoError::Truncated { object: OBJECT, length: bytes.len(), needed };
        let (raw, _) = RawHead::ref_from_prefix(bytes).map_err(|_| truncated(Head::LEN))?;
        let (kind, nob) = (raw.kind()?, raw.nob(order));
        check_len(kind, nob, kind.min_len())?;
        let message = bytes.get(..nob).ok_or_else(|| truncated(nob))?;
        let head = raw.parse(version, order)?;
        let reader = Reader { kind, nob, rest: message.get(Head::LEN..).unwrap_or_default() };
        Ok(Message { head, body: Body::parse(reader, order)? })
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        let variable = match self.body {
            Body::Immediate { payload, .. } => payload.len(),
            Body::PutAck { descriptor, .. } | Body::GetReq { descriptor, .. } => descriptor.fragments_len(),
            _ => 0,
        };
        self.body.kind().min_len() + variable
    }

    /// Writes the message to the start of `out`, little-endian; returns its length.
    ///
    /// # Errors
    /// [`ProtoError::Buffer`] if `out` is shorter than [`Message::encoded_len`], and the errors
    /// with which [`Message::parse`] would refuse the message. `out` is then unchanged.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, ProtoError> {
        if let Body::Immediate { header, payload } = &self.body {
            let wanted = MessageKind::Immediate.min_len() + header.payload_length as usize;
            let value = self.encoded_len();
            if value != wanted {
                let kind = MessageKind::Immediate;
                return Err(ProtoError::MessageLength { kind, value, min: wanted, limit: wanted });
            }
            let total = emit_immediate(&self.head, header, out)?;
            out[total - payload.len()..total].copy_from_slice(payload);
            return Ok(total);
        }
        let (kind, needed) = (self.body.kind(), self.encoded_len());
        check_len(kind, needed, kind.min_len())?;
        let header = self.body.checked_header()?;
        let head = RawHead::new(&self.head, kind, needed)?;
        let mut out = Cursor { out: reserve(out, needed)? };
        out.put(&head);
        if let Some(header) = header {
            out.put(&header);
        }
        self.body.emit_behind_header(&mut out);
        Ok(needed)
    }
}

/// Writes an IMMEDIATE message without its payload, which is the last [`Header::payload_length`]
/// bytes of the returned length: for payloads that are gathered from elsewhere.
///
/// # Errors
/// The errors of [`Message::emit`]. `out` is then unchanged.
pub fn emit_immediate(head: &Head, header: &Header, out: &mut [u8]) -> Result<usize, ProtoError> {
    let kind = MessageKind::Immediate;
    let total = kind.min_len() + header.payload_length as usize;
    check_len(kind, total, kind.min_len())?;
    let header = raw_header(header)?;
    let head = RawHead::new(head, kind, total)?;
    let mut out = Cursor { out: reserve(out, total)? };
    out.put(&head);
    out.put(&header);
    Ok(total)
}

impl<'a> Body<'a> {
    /// Returns the type of the message.
    #[must_use]
    pub const fn kind(&self) -> MessageKind {
        match self {
            Body::ConnReq(_) => MessageKind::ConnReq,
            Body::ConnAck(_) => MessageKind::ConnAck,
            Body::Noop => MessageKind::Noop,
            Body::Immediate { .. } => MessageKind::Immediate,
            Body::PutReq { .. } => MessageKind::PutReq,
            Body::PutNak(_) => MessageKind::PutNak,
            Body::PutAck { .. } => MessageKind::PutAck,
            Body::PutDone(_) => MessageKind::PutDone,
            Body::GetReq { .. } => MessageKind::GetReq,
            Body::GetDone(_) => MessageKind::GetDone,
        }
    }

    /// Returns the LNet header, in messages that have one.
    #[must_use]
    pub const fn header(&self) -> Option<&Header> {
        match self {
            Body::Immediate { header, .. } | Body::PutReq { header, .. } | Body::GetReq { header, .. } => {
                Some(header)
            }
            _ => None,
        }
    }

    fn parse(mut reader: Reader<'a>, order: ByteOrder) -> Result<Body<'a>, ProtoError> {
        Ok(match reader.kind {
            MessageKind::ConnReq => Body::ConnReq(reader.take::<RawParams>()?.parse(order)),
            MessageKind::ConnAck => Body::ConnAck(reader.take::<RawParams>()?.parse(order)),
            MessageKind::Noop => Body::Noop,
            MessageKind::Immediate => {
                let header = reader.header()?;
                Body::Immediate { header, payload: reader.payload(header.payload_length as usize)? }
            }
            MessageKind::PutReq => Body::PutReq { header: reader.header()?, cookie: reader.cookie()? },
            MessageKind::PutNak => Body::PutNak(reader.completion(order)?),
            MessageKind::PutAck => Body::PutAck {
                source: reader.cookie()?,
                sink: reader.cookie()?,
                descriptor: reader.descriptor(order)?,
            },
            MessageKind::PutDone => Body::PutDone(reader.completion(order)?),
            MessageKind::GetReq => Body::GetReq {
                header: reader.header()?,
                cookie: reader.cookie()?,
                descriptor: reader.descriptor(order)?,
            },
            MessageKind::GetDone => Body::GetDone(reader.completion(order)?),
        })
    }

    /// Returns the encoded LNet header, if there is one.
    fn checked_header(&self) -> Result<Option<[u8; Header::LEN]>, ProtoError> {
        let Some(header) = self.header() else { return Ok(None) };
        check_embedded(self.kind(), header)?;
        raw_header(header).map(Some)
    }

    fn emit_behind_header(&self, out: &mut Cursor<'_>) {
        match self {
            Body::ConnReq(params) | Body::ConnAck(params) => out.put(&RawParams::new(params)),
            Body::Noop | Body::Immediate { .. } => {}
            Body::PutReq { cookie, .. } => out.put(&cookie.0),
            Body::PutNak(completion) | Body::PutDone(completion) | Body::GetDone(completion) => {
                out.put(&RawCompletion { cookie: completion.cookie.0, status: I32::new(completion.status) });
            }
            Body::PutAck { source, sink, descriptor } => {
                out.put(&source.0);
                out.put(&sink.0);
                descriptor.emit(out);
            }
            Body::GetReq { cookie, descriptor, .. } => {
                out.put(&cookie.0);
                descriptor.emit(out);
            }
        }
    }
}

/// Reads the parts of a message behind its head.
struct Reader<'a> {
    kind: MessageKind,
    nob: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take<T: FromBytes + Immutable + KnownLayout + Unaligned>(&mut self) -> Result<&'a T, ProtoError> {
        let (value, rest) = T::ref_from_prefix(self.rest).map_err(|_| self.too_short(size_of::<T>()))?;
        self.rest = rest;
        Ok(value)
    }

    fn header(&mut self) -> Result<Header, ProtoError> {
        let header = Header::parse(self.take()?)?;
        check_embedded(self.kind, &header)?;
        Ok(header)
    }

    fn cookie(&mut self) -> Result<Cookie, ProtoError> {
        Ok(Cookie(*self.take::<RawCookie>()?))
    }

    fn completion(&mut self, order: ByteOrder) -> Result<TransferStatus, ProtoError> {
        let raw = self.take::<RawCompletion>()?;
        Ok(TransferStatus { cookie: Cookie(raw.cookie), status: order.u32(raw.status.get() as u32) as i32 })
    }

    fn payload(&self, length: usize) -> Result<&'a [u8], ProtoError> {
        self.rest.get(..length).ok_or_else(|| self.too_short(length))
    }

    fn descriptor(&self, order: ByteOrder) -> Result<RdmaDescriptor<'a>, ProtoError> {
        RdmaDescriptor::parse(self.rest, order, |needed| self.too_short(needed))
    }

    /// Returns the error of a message that ends before `needed` more bytes.
    fn too_short(&self, needed: usize) -> ProtoError {
        let min = self.nob - self.rest.len() + needed;
        ProtoError::MessageLength { kind: self.kind, value: self.nob, min, limit: MESSAGE_MAX }
    }
}

/// Checks the type of the embedded LNet message: a PUT_REQ announces a payload and a GET_REQ
/// requests one; an IMMEDIATE may contain any.
fn check_embedded(kind: MessageKind, header: &Header) -> Result<(), ProtoError> {
    let message = header.message_type();
    match (kind, message) {
        (MessageKind::PutReq, MessageType::Put | MessageType::Reply)
        | (MessageKind::GetReq, MessageType::Get)
        | (MessageKind::Immediate, _) => Ok(()),
        _ => Err(ProtoError::Embedded { kind, message }),
    }
}

fn check_len(kind: MessageKind, value: usize, min: usize) -> Result<(), ProtoError> {
    if (min..=MESSAGE_MAX).contains(&value) {
        return Ok(());
    }
    Err(ProtoError::MessageLength { kind, value, min, limit: MESSAGE_MAX })
}

fn raw_header(header: &Header) -> Result<[u8; Header::LEN], ProtoError> {
    let mut bytes = [0; Header::LEN];
    header.emit(&mut bytes)?;
    Ok(bytes)
}

fn reserve(out: &mut [u8], needed: usize) -> Result<&mut [u8], ProtoError> {
    let length = out.len();
    out.get_mut(..needed).ok_or(ProtoError::Buffer { object: OBJECT, length, needed })
}

/// The encoded form of a cookie.
pub(crate) type RawCookie = [u8; 8];

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawCompletion {
    cookie: RawCookie,
    status: I32,
}

const_assert_eq!(size_of::<RawCompletion>(), 12);
const_assert_eq!(offset_of!(RawCompletion, status), 56 - 48);
