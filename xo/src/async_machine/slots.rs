//! A table of slots. Unlike the entries of [`nlx_sync::CompletionSlots`], a free slot stays allocated and is
//! reused, so that a start allocates nothing.

use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use super::slot::{CompletionSlot, Delivered, Left, wake};
use nlx_sync::Mutex;

/// The slots of a machine. Their number is the peak of operations in flight, which
/// [`crate::TmOptions::events_max`] limits.
#[derive(Debug)]
pub(crate) struct CompletionSlots<T>(Mutex<Table<T>>);

#[derive(Debug)]
struct Table<T> {
    slots: Vec<Arc<TableSlot<T>>>,
    free: Vec<u32>,
    closed: bool,
}

/// A slot with its index in the table. The operation that will deliver the value and the future
/// that returns it both hold the slot; the last of the two to act releases it.
#[derive(Debug)]
pub(crate) struct TableSlot<T> {
    slot: CompletionSlot<T>,
    index: u32,
    table: Weak<CompletionSlots<T>>,
}

impl<T> CompletionSlots<T> {
    pub(crate) fn new() -> Arc<CompletionSlots<T>> {
        Arc::new(CompletionSlots(Mutex::new(Table { slots: Vec::new(), free: Vec::new(), closed: false })))
    }

    /// Takes a free slot, or makes one, to wait for a value.
    pub(crate) fn take(self: &Arc<Self>) -> Arc<TableSlot<T>> {
        let mut table = self.0.lock();
        if let Some(index) = table.free.pop() {
            let slot = table.slots[index as usize].clone();
            slot.slot.begin();
            return slot;
        }
        let index = table.slots.len() as u32;
        let slot =
            Arc::new(TableSlot { slot: CompletionSlot::waiting(), index, table: Arc::downgrade(self) });
        if table.closed {
            // Operations can no longer start; a future that polls this slot ends at once.
            let _waker = slot.slot.close();
        } else {
            table.slots.push(slot.clone());
        }
        slot
    }

    /// Ends every wait: no value will come.
    pub(crate) fn close(&self) {
        let mut table = self.0.lock();
        table.closed = true;
        table.free.clear();
        let slots = std::mem::take(&mut table.slots);
        drop(table);
        for slot in slots {
            wake(slot.slot.close());
        }
    }

    fn give_back(&self, index: u32) {
        let mut table = self.0.lock();
        if !table.closed {
            table.free.push(index);
        }
    }
}

impl<T> TableSlot<T> {
    /// Brings the value and wakes the task; returns the value if the task has left.
    pub(crate) fn deliver(&self, value: T) -> Option<T> {
        match self.slot.deliver(value) {
            Delivered::Kept(waker) => {
                wake(waker);
                None
            }
            Delivered::Unwanted(value) => {
                self.give_back();
                Some(value)
            }
            Delivered::Surplus(value) => Some(value),
        }
    }

    /// Takes the value, or `None` if none will come. Either releases the slot.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Option<T>> {
        let polled = self.slot.poll(waker);
        if polled.is_ready() {
            self.give_back();
        }
        polled
    }

    /// Ends the wait early. Returns whether the value is still to come.
    pub(crate) fn leave(&self) -> bool {
        match self.slot.leave() {
            Left::ToCome => true,
            Left::Over(value) => {
                self.give_back();
                drop(value);
                false
            }
        }
    }

    /// Releases a slot whose operation was refused.
    pub(crate) fn unused(&self) {
        drop(self.slot.leave());
        self.give_back();
    }

    fn give_back(&self) {
        if let Some(table) = self.table.upgrade() {
            table.give_back(self.index);
        }
    }
}
