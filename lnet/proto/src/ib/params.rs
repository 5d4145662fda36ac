//! The parameters that two nodes negotiate when they connect.

use std::mem::offset_of;

use static_assertions::const_assert_eq;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{ByteOrder, ProtoError};

use super::{MESSAGE_MAX, RDMA_FRAGMENTS_MAX};

/// A connection's parameters: requested in a CONNREQ, settled in a CONNACK, offered in a reject
/// record (lnet-wire 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnParams {
    /// Messages that may be in flight in each direction: the credits of the connection.
    pub queue_depth: u16,
    /// The maximum number of fragments of one RDMA transfer.
    pub max_fragments: u16,
    /// The maximum length of a message in bytes.
    pub max_message: u32,
}

impl ConnParams {
    /// The parameters that a node without settings requests (lnet-measured, o2ib).
    pub const DEFAULT: ConnParams =
        ConnParams { queue_depth: 8, max_fragments: RDMA_FRAGMENTS_MAX, max_message: MESSAGE_MAX as u32 };

    /// The parameters that a node offers for an interface that it does not have (lnet-wire 33).
    pub(crate) const UNKNOWN: ConnParams =
        ConnParams { queue_depth: 0, max_fragments: 0, ..ConnParams::DEFAULT };

    /// Checks the queue depth. With 0 no message could be sent (and with no fragments no payload).
    pub(crate) fn check_depth(&self, limit: u16) -> Result<(), ProtoError> {
        check("queue depth", self.queue_depth.into(), 1, limit.into())
    }

    pub(crate) fn check_fragments(&self, limit: u16) -> Result<(), ProtoError> {
        check("maximum number of RDMA fragments", self.max_fragments.into(), 1, limit.into())
    }

    pub(crate) fn check_message(&self, limit: u32) -> Result<(), ProtoError> {
        check("maximum message size", self.max_message, 0, limit)
    }

    /// Checks all three parameters.
    pub(crate) fn check_within(&self, limits: &ConnParams) -> Result<(), ProtoError> {
        self.check_depth(limits.queue_depth)?;
        self.check_fragments(limits.max_fragments)?;
        self.check_message(limits.max_message)
    }
}

fn check(field: &'static str, value: u32, min: u32, limit: u32) -> Result<(), ProtoError> {
    if (min..=limit).contains(&value) {
        return Ok(());
    }
    Err(ProtoError::Parameter { field, value, min, limit })
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawParams {
    queue_depth: U16,
    max_fragments: U16,
    max_message: U32,
}

const_assert_eq!(size_of::<RawParams>(), 8);
const_assert_eq!(offset_of!(RawParams, max_fragments), 50 - 48);
const_assert_eq!(offset_of!(RawParams, max_message), 52 - 48);

impl RawParams {
    pub(crate) fn new(params: &ConnParams) -> RawParams {
        RawParams {
            queue_depth: U16::new(params.queue_depth),
            max_fragments: U16::new(params.max_fragments),
            max_message: U32::new(params.max_message),
        }
    }

    pub(crate) fn parse(&self, order: ByteOrder) -> ConnParams {
        ConnParams {
            queue_depth: order.u16(self.queue_depth.get()),
            max_fragments: order.u16(self.max_fragments.get()),
            max_message: order.u32(self.max_message.get()),
        }
    }
}
