//! Events that the driver reports to the engine, collected under the connection's lock.

use lnet_proto::Header;

use crate::conn::{EndedOp, OpKey, Receipt};
use crate::op_data::OpData;

/// An event for the engine.
#[allow(
    clippy::large_enum_variant,
    reason = "they are in a list that is kept: a box would be an allocation for each"
)]
pub(super) enum Event {
    /// A whole message was received; its payload is in a receive buffer.
    Immediate { index: usize, receipt: Receipt, header: Header, payload: usize },
    /// The peer announces a payload.
    PutReq { operation: OpKey, header: Header },
    /// The peer requests data.
    GetReq { operation: OpKey, header: Header },
    /// An operation has ended.
    Ended(EndedOp<OpData>),
}
