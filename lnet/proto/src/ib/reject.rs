//! The record with which the passive side rejects a connection.

use std::fmt;
use std::mem::offset_of;

use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ProtoError;
use crate::cursor::Cursor;

use super::head::{MAGIC, parse_start};
use super::params::RawParams;
use super::{ConnParams, Version};

/// The name of a reject record in errors.
const OBJECT: &str = "reject record";

/// The reason for a rejection and the acceptable parameters: private data of a reject (lnet-wire
/// 33).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reject {
    /// The version in which the passive side answers.
    pub version: Version,
    /// The reason for the rejection.
    pub reason: RejectReason,
    /// The incarnation of the requested interface; 0 if there is none.
    pub stamp: u64,
    /// The parameters that the passive side would accept; zeros if it has no such interface.
    /// Records of version 1 have no parameters.
    pub params: Option<ConnParams>,
}

/// The reason why the passive side rejects a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RejectReason {
    /// The passive side is connecting itself, and its attempt wins.
    ConnRace = 1,
    /// The passive side lacks memory or another resource.
    NoResources = 2,
    /// The passive side does not understand the request or has no such interface.
    Fatal = 3,
    /// The passive side supports another version.
    ConnUncompat = 4,
    /// The request names an earlier incarnation of the interface, or the active side has restarted
    /// since.
    ConnStale = 5,
    /// The request has too many RDMA fragments.
    RdmaFrags = 6,
    /// The request has too great a queue depth.
    MsgQueueSize = 7,
    /// Reserved; not used.
    InvalidSrvId = 8,
    /// The interface is not ready yet.
    Early = 9,
}

impl Reject {
    /// Length in bytes of a record with parameters.
    pub const LEN: usize = SHORT_LEN + size_of::<RawParams>();

    /// Parses a record in either byte order. Padding of the connection manager is ignored.
    ///
    /// # Errors
    /// An error for each field, with its name.
    pub fn parse(bytes: &[u8]) -> Result<Reject, ProtoError> {
        let (order, version) = parse_start(OBJECT, bytes)?;
        let (raw, rest) = RawReject::ref_from_prefix(bytes).map_err(|_| ProtoError::Truncated {
            object: OBJECT,
            length: bytes.len(),
            needed: SHORT_LEN,
        })?;
        let params = RawParams::ref_from_prefix(rest).ok().filter(|_| version > Version::V1);
        Ok(Reject {
            version,
            reason: RejectReason::try_from(raw.reason)?,
            stamp: order.u64(raw.stamp.get()),
            params: params.map(|(params, _)| params.parse(order)),
        })
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        if self.written_params().is_some() { Reject::LEN } else { SHORT_LEN }
    }

    /// Writes the record to the start of `out`, little-endian; returns its length.
    ///
    /// # Errors
    /// [`ProtoError::Buffer`] if `out` is shorter than [`Reject::encoded_len`]; [`Reject::LEN`] is
    /// always enough.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, ProtoError> {
        let (length, needed) = (out.len(), self.encoded_len());
        let Some(out) = out.get_mut(..needed) else {
            return Err(ProtoError::Buffer { object: OBJECT, length, needed });
        };
        let mut out = Cursor { out };
        out.put(&RawReject {
            magic: U32::new(MAGIC),
            version: U16::new(self.version as u16),
            reason: self.reason as u8,
            unused: 0,
            stamp: U64::new(self.stamp),
        });
        if let Some(params) = self.written_params() {
            out.put(&RawParams::new(&params));
        }
        Ok(needed)
    }

    const fn written_params(&self) -> Option<ConnParams> {
        match self.version {
            Version::V1 => None,
            Version::V2 => self.params,
        }
    }
}

impl TryFrom<u8> for RejectReason {
    type Error = ProtoError;

    fn try_from(value: u8) -> Result<RejectReason, ProtoError> {
        Ok(match value {
            1 => RejectReason::ConnRace,
            2 => RejectReason::NoResources,
            3 => RejectReason::Fatal,
            4 => RejectReason::ConnUncompat,
            5 => RejectReason::ConnStale,
            6 => RejectReason::RdmaFrags,
            7 => RejectReason::MsgQueueSize,
            8 => RejectReason::InvalidSrvId,
            9 => RejectReason::Early,
            _ => return Err(ProtoError::RejectReason { value }),
        })
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RejectReason::ConnRace => "it is connecting itself",
            RejectReason::NoResources => "it has no resources",
            RejectReason::Fatal => "it cannot make sense of the request, or has no such interface",
            RejectReason::ConnUncompat => "it speaks another version",
            RejectReason::ConnStale => "one of the two nodes has restarted",
            RejectReason::RdmaFrags => "too many RDMA fragments",
            RejectReason::MsgQueueSize => "too deep a queue",
            RejectReason::InvalidSrvId => "invalid service",
            RejectReason::Early => "its interface is not ready yet",
        })
    }
}

/// Length in bytes of a record without parameters.
const SHORT_LEN: usize = size_of::<RawReject>();

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReject {
    magic: U32,
    version: U16,
    reason: u8,
    unused: u8,
    stamp: U64,
}

const_assert_eq!(SHORT_LEN, 16);
const_assert_eq!(Reject::LEN, 24);
const_assert_eq!(offset_of!(RawReject, version), 4);
const_assert_eq!(offset_of!(RawReject, reason), 6);
const_assert_eq!(offset_of!(RawReject, stamp), 8);
