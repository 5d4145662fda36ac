//! Registered buffers, and the operation that each has.
//!
//! Buffers stand in a table of their own that never moves, so that finding one takes no lock but its own.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lnet_region::{IoVec, ReadVec, copy};
use nlx_core::{BufferEvent, BufferHandle, CoreError, MatchCounter, Operation, Queue};
use nlx_driver_proto::{BUFFERS_MAX, BufferName};
use parking_lot::Mutex;

use crate::pieces::Pieces;

/// Slots of the first row. Each further row has twice as many.
const FIRST_ROW: u32 = 64;

/// Rows enough for every place there can be.
const ROWS: usize = 15;

const _: () = assert!(FIRST_ROW as u64 * ((1 << ROWS) - 1) >= BUFFERS_MAX as u64);

/// The table of a domain's buffers.
pub(crate) struct Buffers {
    rows: [OnceLock<Box<[Mutex<Slot>]>>; ROWS],
    /// Places that were ever used.
    used: AtomicU32,
}

/// Which places are free; whoever registers and deregisters has it alone.
#[derive(Debug, Default)]
pub(crate) struct Places {
    free: Vec<u32>,
}

/// A place for a buffer.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    generation: u32,
    buffer: Option<Buffer>,
}

/// A registered buffer.
#[derive(Debug)]
pub(crate) struct Buffer {
    handle: BufferHandle,
    /// The client's.
    memory: IoVec,
    /// What the helper sees instead, for memory that it does not reach.
    shadow: Option<IoVec>,
    /// The helper of today has not refused it.
    is_known: bool,
    operation: Option<InFlight>,
    /// Where the helper may write.
    incoming: Pieces,
    /// The same places of the client's memory, if there is a shadow.
    mirrored: Pieces,
}

/// An operation in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// The transfer machine, by the number that only this process knows.
    pub(crate) machine: u64,
    pub(crate) cookie: u64,
    pub(crate) queue: Queue,
    /// Event slots reserved.
    pub(crate) events: u32,
    pub(crate) counter: MatchCounter,
    pub(crate) started_ns: u64,
    /// What the helper reads.
    outgoing: Option<ReadVec>,
    /// The helper reads and writes the shadow.
    copied: bool,
}

/// Leases of an operation that is over on this side.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    _outgoing: Option<ReadVec>,
    _incoming: Pieces,
}

/// An event says what cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

impl Buffers {
    pub(crate) fn new() -> Buffers {
        Buffers { rows: [const { OnceLock::new() }; ROWS], used: AtomicU32::new(0) }
    }

    /// Places that were ever used: all buffers are below.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Ordering::Acquire)
    }

    /// The slot at this place, if it was ever used.
    pub(crate) fn at(&self, place: u32) -> Option<&Mutex<Slot>> {
        let (row, at) = row_of(place);
        self.rows.get(row)?.get()?.get(at)
    }

    /// The slot of this buffer.
    pub(crate) fn slot(&self, buffer: BufferHandle) -> Result<&Mutex<Slot>, CoreError> {
        self.at(place_of(buffer)).ok_or(CoreError::NoSuchBuffer { buffer })
    }

    /// Enters a buffer.
    pub(crate) fn enter(
        &self,
        places: &mut Places,
        memory: &IoVec,
        shadow: Option<IoVec>,
        limit: usize,
    ) -> Result<BufferHandle, CoreError> {
        // A helper that allows fewer than the one before knows no place beyond.
        let free = places.free.iter().rposition(|&place| (place as usize) < limit);
        let place = match free.map(|at| places.free.swap_remove(at)) {
            Some(place) => place,
            None => self.new_place(limit)?,
        };
        // Just made, or used before.
        let Some(slot) = self.at(place) else { return Err(too_many(limit)) };
        let mut slot = slot.lock();
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        let handle = BufferHandle(BufferName { place, generation: slot.generation }.value());
        slot.buffer = Some(Buffer {
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
        let place = self.used();
        if place as usize >= limit.min(BUFFERS_MAX as usize) {
            return Err(too_many(limit));
        }
        let (row, _) = row_of(place);
        self.rows[row].get_or_init(|| (0..FIRST_ROW << row).map(|_| Mutex::default()).collect());
        self.used.store(place + 1, Ordering::Release);
        Ok(place)
    }

    /// Forgets a buffer that no operation has. Its memory is to be dropped without a lock.
    pub(crate) fn leave(&self, places: &mut Places, handle: BufferHandle) -> Result<Buffer, CoreError> {
        let mut slot = self.slot(handle)?.lock();
        if slot.buffer(handle)?.operation.is_some() {
            return Err(CoreError::BufferBusy { buffer: handle });
        }
        let buffer = slot.buffer.take().ok_or(CoreError::NoSuchBuffer { buffer: handle })?;
        places.free.push(place_of(handle));
        Ok(buffer)
    }

    /// All that are registered: how each is called, and its memory. Nobody registers meanwhile.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (BufferHandle, IoVec)> {
        let slots = (0..self.used()).filter_map(|place| self.at(place));
        slots.filter_map(|slot| {
            let slot = slot.lock();
            slot.buffer.as_ref().map(|buffer| (buffer.handle, buffer.memory.clone()))
        })
    }

    /// From its next operation on the helper sees this of a buffer; nothing if it has refused it.
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

    /// The match counters of a transfer machine's passive operations in flight.
    pub(crate) fn counters(&self, machine: u64) -> impl Iterator<Item = MatchCounter> {
        let slots = (0..self.used()).filter_map(|place| self.at(place));
        slots.filter_map(move |slot| {
            let mut slot = slot.lock();
            let operation = slot.of_machine(machine)?.operation.as_ref()?;
            operation.queue.is_passive().then_some(operation.counter)
        })
    }
}

/// The place that a buffer's handle names.
pub(crate) fn place_of(handle: BufferHandle) -> u32 {
    handle.0 as u32
}

/// The row of a place, and where in it.
fn row_of(place: u32) -> (usize, usize) {
    // No overflow: places are 32 bits.
    let (place, first) = (u64::from(place), u64::from(FIRST_ROW));
    let row = (place / first + 1).ilog2();
    (row as usize, (place - first * ((1 << row) - 1)) as usize)
}

pub(crate) fn too_many(limit: usize) -> CoreError {
    CoreError::TooMany { objects: "registered buffers", limit }
}

impl Slot {
    /// The buffer with this handle.
    pub(crate) fn buffer(&mut self, handle: BufferHandle) -> Result<&mut Buffer, CoreError> {
        let buffer = self.buffer.as_mut().filter(|buffer| buffer.handle == handle);
        buffer.ok_or(CoreError::NoSuchBuffer { buffer: handle })
    }

    /// The buffer here, if it has an operation of this transfer machine.
    pub(crate) fn of_machine(&mut self, machine: u64) -> Option<&mut Buffer> {
        let is_its = |operation: &InFlight| operation.machine == machine;
        self.buffer.as_mut().filter(|buffer| buffer.operation.as_ref().is_some_and(is_its))
    }
}

impl InFlight {
    /// An operation of this transfer machine that is about to start.
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

impl Buffer {
    pub(crate) fn handle(&self) -> BufferHandle {
        self.handle
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// The operation that it has.
    pub(crate) fn operation(&self) -> Option<&InFlight> {
        self.operation.as_ref()
    }

    /// The client's memory, if the helper of today has refused it.
    pub(crate) fn unknown(&self) -> Option<&IoVec> {
        (!self.is_known).then_some(&self.memory)
    }

    /// Gives the first bytes to an operation, which gets leases on them: from here on the helper may be told.
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

    /// Bytes have come: they are the client's now.
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

    /// The operation is over, or was not started.
    pub(crate) fn end(&mut self) {
        self.operation = None;
        self.incoming.clear();
        self.mirrored.clear();
    }

    /// The operation is over on this side; with the helper it may go on.
    pub(crate) fn abandon(&mut self) -> Kept {
        let outgoing = self.operation.take().and_then(|operation| operation.outgoing);
        self.mirrored.clear();
        Kept { _outgoing: outgoing, _incoming: std::mem::take(&mut self.incoming) }
    }
}

impl InFlight {
    /// What this event says of the operation, if it can be.
    pub(crate) fn is_of(&self, machine: u64, event: &BufferEvent) -> bool {
        self.machine == machine && self.cookie == event.cookie
    }

    /// The last event of an operation that the helper has not ended.
    pub(crate) fn lost(&self, buffer: BufferHandle, now_ns: u64) -> BufferEvent {
        let ended = BufferEvent::failed(buffer, self.cookie, self.events, nix::errno::Errno::ENOTCONN);
        BufferEvent { time_ns: now_ns.saturating_sub(self.started_ns), ..ended }
    }
}
