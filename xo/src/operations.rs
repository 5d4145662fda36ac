//! Operations in flight.

use std::fmt;
use std::sync::Arc;

use nlx_core::Queue;

use crate::owner::Owner;
use crate::{Buffer, EndPoint};

/// Names an operation of a transfer machine. No two operations that are in flight at a time have the same, and one that is
/// over is not taken for another (until 2³² more have used its slot).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(u64);

impl OpId {
    pub(crate) fn from_cookie(cookie: u64) -> OpId {
        OpId(cookie)
    }

    pub(crate) fn cookie(self) -> u64 {
        self.0
    }

    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }

    fn new(tenancy: u32, slot: u32) -> OpId {
        OpId(u64::from(tenancy) << 32 | u64::from(slot))
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.0 >> 32)
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpId({self})")
    }
}

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

/// The operations in flight: slots that are used again.
#[derive(Default)]
pub(crate) struct Operations {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    tenancy: u32,
    op: Option<Op>,
}

impl Operations {
    pub(crate) fn enter(&mut self, op: Op) -> OpId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { tenancy: 0, op: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.tenancy = slot.tenancy.wrapping_add(1);
        slot.op = Some(op);
        OpId::new(slot.tenancy, index)
    }

    pub(crate) fn find(&mut self, id: OpId) -> Option<&mut Op> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        if OpId::new(slot.tenancy, id.slot()) == id { slot.op.as_mut() } else { None }
    }

    pub(crate) fn leave(&mut self, id: OpId) -> Option<Op> {
        self.find(id)?;
        let op = self.slots[id.slot() as usize].op.take();
        self.free.push(id.slot());
        op
    }

    /// The operation in this slot.
    pub(crate) fn in_slot(&self, slot: u32) -> Option<OpId> {
        let tenant = self.slots.get(slot as usize)?;
        tenant.op.as_ref().map(|_| OpId::new(tenant.tenancy, slot))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (OpId, &mut Op)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let id = OpId::new(slot.tenancy, index as u32);
            slot.op.as_mut().map(|op| (id, op))
        })
    }
}
