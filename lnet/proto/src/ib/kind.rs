//! The types of message.

use std::fmt;

use crate::{Header, ProtoError};

use super::descriptor::RawDescriptor;
use super::head::Head;
use super::message::{RawCompletion, RawCookie};
use super::params::RawParams;

/// The ten types of message (lnet-wire 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MessageKind {
    /// The active side requests a connection.
    ConnReq = 0xc0,
    /// The passive side accepts the connection.
    ConnAck = 0xc1,
    /// A message without content, which returns credits or keeps the connection alive.
    Noop = 0xd0,
    /// An LNet message with its payload.
    Immediate = 0xd1,
    /// The source of a payload announces it.
    PutReq = 0xd2,
    /// The sink rejects the payload.
    PutNak = 0xd3,
    /// The sink sends the destination of the data.
    PutAck = 0xd4,
    /// The source has written the data, or failed.
    PutDone = 0xd5,
    /// The sink requests data and sends their destination.
    GetReq = 0xd6,
    /// The source has written the data, or failed.
    GetDone = 0xd7,
}

impl MessageKind {
    /// Returns the length in bytes of the shortest message of this type: without payload and RDMA
    /// fragments.
    #[must_use]
    pub const fn min_len(self) -> usize {
        Head::LEN
            + match self {
                MessageKind::ConnReq | MessageKind::ConnAck => size_of::<RawParams>(),
                MessageKind::Noop => 0,
                MessageKind::Immediate => Header::LEN,
                MessageKind::PutReq => Header::LEN + size_of::<RawCookie>(),
                MessageKind::PutNak | MessageKind::PutDone | MessageKind::GetDone => {
                    size_of::<RawCompletion>()
                }
                MessageKind::PutAck => 2 * size_of::<RawCookie>() + size_of::<RawDescriptor>(),
                MessageKind::GetReq => Header::LEN + size_of::<RawCookie>() + size_of::<RawDescriptor>(),
            }
    }
}

// The table of lnet-wire 32.
const _: () = {
    assert!(MessageKind::ConnReq.min_len() == 56 && MessageKind::ConnAck.min_len() == 56);
    assert!(MessageKind::Noop.min_len() == 48);
    assert!(MessageKind::Immediate.min_len() == 120);
    assert!(MessageKind::PutReq.min_len() == 128);
    assert!(MessageKind::PutNak.min_len() == 60 && MessageKind::PutDone.min_len() == 60);
    assert!(MessageKind::PutAck.min_len() == 72);
    assert!(MessageKind::GetReq.min_len() == 136);
    assert!(MessageKind::GetDone.min_len() == 60);
};

impl TryFrom<u8> for MessageKind {
    type Error = ProtoError;

    fn try_from(value: u8) -> Result<MessageKind, ProtoError> {
        Ok(match value {
            0xc0 => MessageKind::ConnReq,
            0xc1 => MessageKind::ConnAck,
            0xd0 => MessageKind::Noop,
            0xd1 => MessageKind::Immediate,
            0xd2 => MessageKind::PutReq,
            0xd3 => MessageKind::PutNak,
            0xd4 => MessageKind::PutAck,
            0xd5 => MessageKind::PutDone,
            0xd6 => MessageKind::GetReq,
            0xd7 => MessageKind::GetDone,
            _ => return Err(ProtoError::MessageKind { value }),
        })
    }
}

impl fmt::Display for MessageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MessageKind::ConnReq => "CONNREQ",
            MessageKind::ConnAck => "CONNACK",
            MessageKind::Noop => "NOOP",
            MessageKind::Immediate => "IMMEDIATE",
            MessageKind::PutReq => "PUT_REQ",
            MessageKind::PutNak => "PUT_NAK",
            MessageKind::PutAck => "PUT_ACK",
            MessageKind::PutDone => "PUT_DONE",
            MessageKind::GetReq => "GET_REQ",
            MessageKind::GetDone => "GET_DONE",
        })
    }
}
