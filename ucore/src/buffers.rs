//! Registered buffers, and the operation of each.
//!
//! The table never moves, so that finding a buffer takes only the lock of its slot. It is not
//! `nlx_sync::Slots`, because each buffer has a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lnet_region::{IoVec, ReadVec, copy};
use nlx_core::{BufferEvent, BufferHandle, CoreError, MatchCounter, Operation, Queue};
use nlx_driver_proto::{BUFFERS_MAX, BufferName};
use parking_lot::Mutex;

use crate::pieces::Pieces;

/// Slots of the first row. Each further row has twice the number.
const FIRST_ROW: u32 = 64;

/// Number of rows that hold every possible slot.
const ROWS: usize = 15;

const _: () = assert!(FIRST_ROW as u64 * ((1 << ROWS) - 1) >= BUFFERS_MAX as u64);

/// The table of a domain's buffers.
pub(crate) struct BufferTable {
    rows: [OnceLock<Box<[Mutex<BufferSlot>]>>; ROWS],
    /// Number of slots that were ever used.
    used: AtomicU32,
}

/// The free slots, under the lock of the registry.
#[derive(Debug, Default)]
pub(crate) struct FreeSlots {
    free: Vec<u32>,
}

/// An entry of the table: its generation, and the buffer if one is registered.
#[derive(Debug, Default)]
pub(crate) struct BufferSlot {
    generation: u32,
    buffer: Option<RegisteredBuffer>,
}

/// A registered buffer: its memory, its leases, and the operation in flight.
#[derive(Debug)]
pub(crate) struct RegisteredBuffer {
    handle: BufferHandle,
    /// The client's memory.
    memory: IoVec,
    /// The arena memory that the helper uses instead, if it cannot access `memory`.
    shadow: Option<IoVec>,
    /// Set unless the current helper has refused the buffer.
    is_known: bool,
    operation: Option<InFlight>,
    /// Leases on the bytes that the helper may write.
    incoming: Pieces,
    /// Leases on the same ranges of the client's memory, if there is a shadow.
    mirrored: Pieces,
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The number of its transfer machine in this process.
    pub(crate) machine: u64,
    pub(crate) cookie: u64,
    pub(crate) queue: Queue,
    /// Event slots reserved.
    pub(crate) events: u32,
    pub(crate) counter: MatchCounter,
    pub(crate) started_ns: u64,
    /// Lease on the bytes that the helper reads.
    outgoing: Option<ReadVec>,
    /// Set if the helper reads and writes the shadow.
    copied: bool,
}

/// Leases of an operation that is over on this side.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    _outgoing: Option<ReadVec>,
    _incoming: Pieces,
}

/// The error of an event that a correct helper does not produce.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

impl BufferTable {
    pub(crate) fn new() -> BufferTable {
        BufferTable { rows: [const { OnceLock::new() }; ROWS], used: AtomicU32::new(0) }
    }

    /// Returns the number of slots that were ever used: all buffers are below it.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire)
    }

    /// Returns the slot with this index, if it was ever used.
    pub(crate) fn at(&self, index: u32) -> Option<&Mutex<BufferSlot>> {
        let (row, at) = row_of(index);
        self.rows.get(row)?.get()?.get(at)
    }

    /// Returns the slot of this buffer.
    pub(crate) fn slot(&self, buffer: BufferHandle) -> Result<&Mutex<BufferSlot>, CoreError> {
        self.at(place_of(buffer)).ok_or(CoreError::NoSuchBuffer { buffer })
    }

    /// Adds a buffer.
    pub(crate) fn enter(
        &self,
        free_slots: &mut FreeSlots,
        memory: &IoVec,
        shadow: Option<IoVec>,
        limit: usize,
    ) -> Result<BufferHandle, CoreError> {
        // Indices beyond the limit of the current helper are not reused: it may allow fewer than
        // the one before.
        let free = free_slots.free.iter().rposition(|&index| (index as usize) < limit);
        let index = match free.map(|at| free_slots.free.swap_remove(at)) {
            Some(index) => index,
            None => self.new_place(limit)?,
        };
        // Exists: the slot was just made, or used before.
        let Some(slot) = self.at(index) else { return Err(too_many(limit)) };
        let mut slot = slot.lock();
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        let handle = BufferHandle(BufferName { index, generation: slot.generation }.value());
        slot.buffer = Some(RegisteredBuffer {
            handle,
            memory: memory.clone(),
            shadow,
            is_known: true,
            operation: None,
            incoming: Pieces::default(),
            mirrored: Pieces::default(),
        });
        Ok(handle)
    }

    fn new_place(&self, limit: usize) -> Result<u32, CoreError> {
        let index = self.used();
        if index as usize >= limit.min(BUFFERS_MAX as usize) {
            return Err(too_many(limit));
        }
        let (row, _) = row_of(index);
        self.rows[row].get_or_init(|| (0..FIRST_ROW << row).map(|_| Mutex::default()).collect());
        self.used.store(index + 1, Ordering::Release);
        Ok(index)
    }

    /// Removes a buffer that no operation has. The caller must drop its memory without a lock.
    pub(crate) fn leave(
        &self,
        free_slots: &mut FreeSlots,
        handle: BufferHandle,
    ) -> Result<RegisteredBuffer, CoreError> {
        let mut slot = self.slot(handle)?.lock();
        if slot.buffer(handle)?.operation.is_some() {
            return Err(CoreError::BufferBusy { buffer: handle });
        }
        let buffer = slot.buffer.take().ok_or(CoreError::NoSuchBuffer { buffer: handle })?;
        free_slots.free.push(place_of(handle));
        Ok(buffer)
    }

    /// Iterates over all registered buffers: handle and memory. The caller prevents registrations
    /// meanwhile.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (BufferHandle, IoVec)> {
        let slots = (0..self.used()).filter_map(|index| self.at(index));
        slots.filter_map(|slot| {
            let slot = slot.lock();
            slot.buffer.as_ref().map(|buffer| (buffer.handle, buffer.memory.clone()))
        })
    }

    /// Sets the shadow of a buffer from its next operation on; `None` if the helper has refused the
    /// buffer.
    pub(crate) fn set_shadow(&self, handle: BufferHandle, shadow: Option<IoVec>) {
        let replaced = self.slot(handle).ok().and_then(|slot| {
            let mut slot = slot.lock();
            let buffer = slot.buffer(handle).ok()?;
            buffer.is_known = shadow.is_some();
            std::mem::replace(&mut buffer.shadow, shadow)
        });
        // Memory is dropped without a lock.
        drop(replaced);
    }

    /// Returns the match counters of a transfer machine's passive operations in flight.
    pub(crate) fn counters(&self, machine: u64) -> impl Iterator<Item = MatchCounter> {
        let slots = (0..self.used()).filter_map(|index| self.at(index));
        slots.filter_map(move |slot| {
            let mut slot = slot.lock();
            let operation = slot.of_machine(machine)?.operation.as_ref()?;
            operation.queue.is_passive().then_some(operation.counter)
        })
    }
}

/// Returns the slot index of a buffer's handle.
pub(crate) fn place_of(handle: BufferHandle) -> u32 {
    handle.0 as u32
}

/// Returns the row of a slot, and the position in it.
fn row_of(index: u32) -> (usize, usize) {
    // No overflow: indices have 32 bits.
    let (index, first) = (u64::from(index), u64::from(FIRST_ROW));
    let row = (index / first + 1).ilog2();
    (row as usize, (index - first * ((1 << row) - 1)) as usize)
}

pub(crate) fn too_many(limit: usize) -> CoreError {
    CoreError::TooMany { objects: "registered buffers", limit }
}

impl BufferSlot {
    /// Returns the buffer with this handle.
    pub(crate) fn buffer(&mut self, handle: BufferHandle) -> Result<&mut RegisteredBuffer, CoreError> {
        let buffer = self.buffer.as_mut().filter(|buffer| buffer.handle == handle);
        buffer.ok_or(CoreError::NoSuchBuffer { buffer: handle })
    }

    /// Returns the buffer of this slot, if it has an operation of this transfer machine.
    pub(crate) fn of_machine(&mut self, machine: u64) -> Option<&mut RegisteredBuffer> {
        let is_its = |operation: &InFlight| operation.machine == machine;
        self.buffer.as_mut().filter(|buffer| buffer.operation.as_ref().is_some_and(is_its))
    }
}

impl InFlight {
    /// Creates the record of an operation that is about to start.
    pub(crate) fn new(
        operation: &Operation,
        machine: u64,
        counter: MatchCounter,
        started_ns: u64,
    ) -> InFlight {
        let (queue, events) = (operation.kind.queue(), operation.kind.events_max());
        InFlight {
            machine,
            cookie: operation.cookie,
            queue,
            events,
            counter,
            started_ns,
            outgoing: None,
            copied: false,
        }
    }
}

impl RegisteredBuffer {
    pub(crate) fn handle(&self) -> BufferHandle {
        self.handle
    }

    /// Returns the buffer's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Returns the buffer's operation.
    pub(crate) fn operation(&self) -> Option<&InFlight> {
        self.operation.as_ref()
    }

    /// Returns the client's memory, if the current helper has refused the buffer.
    pub(crate) fn unknown(&self) -> Option<&IoVec> {
        (!self.is_known).then_some(&self.memory)
    }

    /// Starts an operation on the first bytes, with leases on them. After that the operation may be
    /// sent to the helper.
    pub(crate) fn begin(&mut self, mut operation: InFlight, length: usize) -> Result<(), CoreError> {
        if self.operation.is_some() {
            return Err(CoreError::BufferBusy { buffer: self.handle });
        }
        if !self.is_known {
            return Err(CoreError::Foreign { bytes: self.memory.len() });
        }
        let seen = self.shadow.as_ref().unwrap_or(&self.memory);
        operation.copied = self.shadow.is_some();
        if operation.queue.receives() {
            if operation.copied {
                self.mirrored.take(&self.memory, length)?;
            }
            self.incoming.take(seen, length).inspect_err(|_| self.mirrored.clear())?;
        } else {
            if operation.copied {
                copy(&self.memory.outgoing(0..length)?, &mut seen.incoming(0..length)?);
                point!(ShadowFilled);
            }
            operation.outgoing = Some(seen.outgoing(0..length)?);
        }
        self.operation = Some(operation);
        point!(Leased);
        Ok(())
    }

    /// Returns received bytes to the client.
    pub(crate) fn receive(&mut self, offset: u64, length: u64) -> Result<(), Impossible> {
        if length == 0 {
            return Ok(());
        }
        let came = self.incoming.cut(offset, length).ok_or(Impossible)?;
        if self.operation.as_ref().is_some_and(|operation| operation.copied) {
            let mut target = self.mirrored.cut(offset, length).ok_or(Impossible)?;
            copy(&came.into_read(), &mut target);
            point!(ShadowCopied);
        }
        Ok(())
    }

    /// Ends the operation, or undoes its start.
    pub(crate) fn end(&mut self) {
        self.operation = None;
        self.incoming.clear();
        self.mirrored.clear();
    }

    /// Ends the operation on this side; the helper may still carry it out.
    pub(crate) fn abandon(&mut self) -> Kept {
        let outgoing = self.operation.take().and_then(|operation| operation.outgoing);
        self.mirrored.clear();
        Kept { _outgoing: outgoing, _incoming: std::mem::take(&mut self.incoming) }
    }
}

impl InFlight {
    /// Returns whether this event belongs to the operation.
    pub(crate) fn is_of(&self, machine: u64, event: &BufferEvent) -> bool {
        self.machine == machine && self.cookie == event.cookie
    }

    /// Returns the last event of an operation that the helper has not ended.
    pub(crate) fn lost(&self, buffer: BufferHandle, now_ns: u64) -> BufferEvent {
        let ended = BufferEvent::failed(buffer, self.cookie, self.events, nix::errno::Errno::ENOTCONN);
        BufferEvent { time_ns: now_ns.saturating_sub(self.started_ns), ..ended }
    }
}
