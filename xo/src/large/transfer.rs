//! A large transfer in flight.

use std::sync::{Arc, Weak};
use std::time::Duration;

use nlx_core::{Errno, Queue};
use parking_lot::{Mutex, MutexGuard};

use super::plan::TransferPlan;
use super::progress::PartsProgress;
use crate::event::OpOwner;
use crate::op::Op;
use crate::op_id::OpTable;
use crate::{Buffer, Event, Machine, Offer, OpId, Refused};

/// Maximum number of parts of an active transfer in flight: the number of messages that LNet sends
/// to a peer before the first is answered (`peer_credits`). Further parts would only wait.
pub(crate) const WINDOW: usize = 8;

/// The large transfers in flight at a machine.
pub(crate) struct Larges {
    table: Mutex<OpTable<Arc<LargeTransfer>>>,
    pub(super) window: usize,
}

impl Larges {
    pub(crate) fn new(window: usize) -> Larges {
        Larges { table: Mutex::new(OpTable::large()), window }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().len() == 0
    }

    pub(super) fn find(&self, op: OpId) -> Option<Arc<LargeTransfer>> {
        self.table.lock().find(op).cloned()
    }
}

/// A large transfer: the owner of the operations of its parts. Starts the next part when one has
/// ended, and produces the transfer's event after the last.
pub(super) struct LargeTransfer {
    id: OpId,
    plan: TransferPlan,
    started_ns: u64,
    deadline_ns: Option<u64>,
    /// The owner that gets the transfer's event instead of the client.
    owner: Option<Arc<dyn OpOwner>>,
    /// For the operations of the parts, each of which holds its owner.
    this: Weak<LargeTransfer>,
    /// Weak, so that a machine that cannot be stopped is freed.
    machine: Weak<Machine>,
    /// Not locked while the machine is called.
    state: Mutex<TransferState>,
}

struct TransferState {
    progress: PartsProgress,
    pieces: Pieces,
}

/// The buffer without its parts in flight. A buffer that is not large is its only part.
struct Pieces(Option<Buffer>);

impl Pieces {
    fn take(&mut self, part: usize) -> Option<Buffer> {
        match self.0.as_mut().and_then(Buffer::parts) {
            Some(parts) => parts.get_mut(part)?.take(),
            None => self.0.take(),
        }
    }

    fn put(&mut self, part: usize, buffer: Buffer) {
        match self.0.as_mut().and_then(Buffer::parts).and_then(|parts| parts.get_mut(part)) {
            Some(slot) => *slot = Some(buffer),
            None => self.0 = Some(buffer),
        }
    }
}

impl LargeTransfer {
    pub(super) fn enter(
        machine: &Machine,
        buffer: Buffer,
        plan: TransferPlan,
        owner: Option<Arc<dyn OpOwner>>,
        window: usize,
        started_ns: u64,
        deadline_ns: Option<u64>,
    ) -> Arc<LargeTransfer> {
        let progress = PartsProgress::new(plan.parts(), window);
        let state = Mutex::new(TransferState { progress, pieces: Pieces(Some(buffer)) });
        let make = |id| {
            let this = |this: &Weak<_>| LargeTransfer {
                id,
                plan,
                started_ns,
                deadline_ns,
                owner,
                this: this.clone(),
                machine: machine.this().clone(),
                state,
            };
            Arc::new_cyclic(this)
        };
        machine.larges().table.lock().enter(make).1.clone()
    }

    pub(super) fn id(&self) -> OpId {
        self.id
    }

    pub(super) fn queue(&self) -> Queue {
        self.plan.bulk.queue()
    }

    pub(super) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Starts the first parts, and returns the transfer's event if it has ended. Refuses the
    /// transfer if the first part is refused.
    pub(super) fn begin(
        &self,
        machine: &Machine,
        report: &mut impl FnMut(usize, Offer),
    ) -> Result<Option<Event>, Refused> {
        if let Some((part, buffer)) = self.take_next() {
            let timeout = self.remaining(machine);
            match machine.start_one(self.owned(self.plan.op(part, buffer, timeout))) {
                Ok(started) => {
                    report(part, started.offer);
                    self.has_started(machine, part, started.op);
                }
                Err(Refused { buffer, error }) => {
                    self.ended(machine, part, Some(buffer), Err(error.errno()));
                    self.leave(machine);
                    let whole = self.lock().pieces.0.take();
                    // The buffer is complete, because none of its parts was started.
                    return whole.map_or(Ok(None), |buffer| Err(Refused { buffer, error }));
                }
            }
        }
        Ok(self.go_on(machine, report))
    }

    /// Starts further parts up to the window. Returns the transfer's event if none is left.
    fn go_on(&self, machine: &Machine, report: &mut impl FnMut(usize, Offer)) -> Option<Event> {
        while let Some((part, buffer)) = self.take_next() {
            let timeout = self.remaining(machine);
            if timeout.is_some_and(|timeout| timeout.is_zero()) {
                self.ended(machine, part, Some(buffer), Err(Errno::ETIMEDOUT));
                continue;
            }
            // The transfer is in flight, so its other parts may start even if the machine is
            // stopping.
            match machine.start_one(self.owned(self.plan.op(part, buffer, timeout)).going_on()) {
                Ok(started) => {
                    report(part, started.offer);
                    self.has_started(machine, part, started.op);
                }
                Err(Refused { buffer, error }) => self.ended(machine, part, Some(buffer), Err(error.errno())),
            }
        }
        self.end(machine)
    }

    fn take_next(&self) -> Option<(usize, Buffer)> {
        let mut state = self.lock();
        let part = state.progress.start()?;
        let piece = state.pieces.take(part);
        debug_assert!(piece.is_some(), "a part is started once");
        piece.map(|buffer| (part, buffer))
    }

    fn owned(&self, op: Op) -> Op {
        match self.this.upgrade() {
            Some(this) => op.owned_by(this),
            None => unreachable!("the caller holds it"),
        }
    }

    /// Returns the time left of the timeout.
    fn remaining(&self, machine: &Machine) -> Option<Duration> {
        self.deadline_ns.map(|deadline_ns| Duration::from_nanos(deadline_ns.saturating_sub(machine.now_ns())))
    }

    fn has_started(&self, machine: &Machine, part: usize, op: OpId) {
        let cancel = self.lock().progress.started(part, op);
        cancel.into_iter().for_each(|op| machine.cancel_part(op));
    }

    /// Records that a part has ended, and puts its buffer back. The first failure cancels the other
    /// parts.
    fn ended(&self, machine: &Machine, part: usize, buffer: Option<Buffer>, outcome: Result<usize, Errno>) {
        let mut state = self.lock();
        buffer.into_iter().for_each(|buffer| state.pieces.put(part, buffer));
        let cancels = state.progress.ended(part, outcome);
        drop(state);
        cancels.into_iter().for_each(|op| machine.cancel_part(op));
    }

    pub(super) fn cancel(&self, machine: &Machine) {
        let cancels = self.lock().progress.fail(Errno::ECANCELED);
        cancels.into_iter().for_each(|op| machine.cancel_part(op));
    }

    /// Returns the transfer's event, once, when it has ended.
    fn end(&self, machine: &Machine) -> Option<Event> {
        let mut state = self.lock();
        let outcome = state.progress.end()?;
        let buffer = state.pieces.0.take();
        drop(state);
        buffer.map(|buffer| whole_event(self, buffer, outcome, machine.now_ns()))
    }

    /// Passes the transfer's event to its owner, if it has one; a returned event is the client's.
    pub(super) fn pass(&self, event: Event) -> Option<Event> {
        match &self.owner {
            None => Some(event),
            Some(owner) => owner.event(event),
        }
    }

    /// Removes the transfer from the machine's table: its event is where the client or the owner
    /// gets it, so the machine may stop.
    pub(super) fn leave(&self, machine: &Machine) {
        let left = machine.larges().table.lock().leave(self.id);
        debug_assert!(left.is_some(), "it leaves once");
    }

    /// Returns the result of a part. A part other than the last that received less than its length
    /// leaves a hole: EBADMSG.
    fn outcome(&self, part: usize, event: &Event) -> Result<usize, Errno> {
        event.status?;
        let last = part + 1 == self.plan.parts();
        if last || event.length == self.plan.part_length(part) {
            Ok(event.length)
        } else {
            Err(Errno::EBADMSG)
        }
    }

    fn lock(&self) -> MutexGuard<'_, TransferState> {
        self.state.lock()
    }
}

impl OpOwner for LargeTransfer {
    fn event(&self, event: Event) -> Option<Event> {
        // The thread that takes the event holds the machine.
        let machine = &*self.machine.upgrade()?;
        // The tag of each part of a large buffer is its index.
        let part = if self.plan.parts() == 1 { 0 } else { event.tag as usize };
        let outcome = self.outcome(part, &event);
        self.ended(machine, part, event.buffer, outcome);
        let whole = self.go_on(machine, &mut |_, _| {})?;
        let passed = self.pass(whole);
        if passed.is_none() {
            self.leave(machine);
        }
        passed
    }

    fn delivered(&self) {
        if let Some(machine) = self.machine.upgrade() {
            self.leave(&machine);
        }
    }
}

/// Returns the transfer's event, with its buffer.
fn whole_event(
    transfer: &LargeTransfer,
    buffer: Buffer,
    outcome: Result<usize, nlx_core::Errno>,
    now_ns: u64,
) -> Event {
    Event {
        op: transfer.id(),
        queue: transfer.queue(),
        status: outcome.map(drop),
        length: outcome.unwrap_or(0),
        offset: 0,
        sender: None,
        message: None,
        tag: buffer.tag(),
        buffer: Some(buffer),
        after: Duration::from_nanos(now_ns.saturating_sub(transfer.started_ns())),
        owner: None,
    }
}
