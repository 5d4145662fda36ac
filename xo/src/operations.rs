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

    /// Whether it names a large transfer.
    pub(crate) fn is_large(self) -> bool {
        self.slot() & LARGE != 0
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

/// In the slot of a large transfer's name: far above the number of operations there can be.
const LARGE: u32 = 1 << 31;

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

/// Slots that are used again, each for something that an [`OpId`] names.
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Is in the names of all.
    mark: u32,
}

struct Slot<T> {
    tenancy: u32,
    content: Option<T>,
}

impl<T> Default for Slots<T> {
    fn default() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new(), mark: 0 }
    }
}

impl<T> Slots<T> {
    /// Of what [`OpId::is_large`].
    pub(crate) fn large() -> Slots<T> {
        Slots { mark: LARGE, ..Slots::default() }
    }

    /// Enters what is made for the name it gets.
    pub(crate) fn enter(&mut self, make: impl FnOnce(OpId) -> T) -> (OpId, &mut T) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { tenancy: 0, content: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.tenancy = slot.tenancy.wrapping_add(1);
        let id = OpId::new(slot.tenancy, index | self.mark);
        (id, slot.content.insert(make(id)))
    }

    pub(crate) fn find(&mut self, id: OpId) -> Option<&mut T> {
        let slot = self.slots.get_mut((id.slot() ^ self.mark) as usize)?;
        if OpId::new(slot.tenancy, id.slot()) == id { slot.content.as_mut() } else { None }
    }

    pub(crate) fn leave(&mut self, id: OpId) -> Option<T> {
        self.find(id)?;
        let index = id.slot() ^ self.mark;
        let content = self.slots[index as usize].content.take();
        self.free.push(index);
        content
    }

    /// What is in this slot.
    pub(crate) fn in_slot(&self, slot: u32) -> Option<OpId> {
        let tenant = self.slots.get(slot as usize)?;
        tenant.content.as_ref().map(|_| OpId::new(tenant.tenancy, slot))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (OpId, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let id = OpId::new(slot.tenancy, index as u32);
            slot.content.as_mut().map(|content| (id, content))
        })
    }
}
