//! Operations in flight.

use std::sync::Arc;

use nlx_core::Queue;

use crate::event::Owner;
use crate::op_id::Slots;
use crate::{Buffer, EndPoint};

/// Why an operation is to end before its time. The first reason stays (X1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Cancelled,
    TimedOut,
}

/// An operation in flight.
pub(crate) struct Op {
    pub(crate) queue: Queue,
    pub(crate) buffer: Buffer,
    /// Bytes to be sent; for what receives, 0.
    pub(crate) length: usize,
    /// The peer of a message that is being sent: counted while it is.
    pub(crate) _to: Option<EndPoint>,
    pub(crate) reason: Option<Reason>,
    /// The transport has been told to cancel it.
    pub(crate) cancel_sent: bool,
    /// Who gets its events instead of the client.
    pub(crate) owner: Option<Arc<dyn Owner>>,
}

/// The operations in flight.
pub(crate) type Operations = Slots<Op>;
