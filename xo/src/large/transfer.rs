//! A large transfer in flight.

use std::sync::{Arc, Weak};
use std::time::Duration;

use nlx_core::{Errno, Queue};
use parking_lot::{Mutex, MutexGuard};

use super::plan::Plan;
use super::progress::Progress;
use crate::event::Owner;
use crate::op::Op;
use crate::op_id::Slots;
use crate::{Buffer, Event, Machine, Offer, OpId, Refused};

/// Parts of an active transfer that are in flight at a time: as many messages as LNet sends to a peer before it has
/// answered the first (`peer_credits`), so that more would only wait.
pub(crate) const WINDOW: usize = 8;

/// The large transfers of a machine that have not ended.
pub(crate) struct Larges {
    table: Mutex<Slots<Arc<Transfer>>>,
    pub(super) window: usize,
}

impl Larges {
    pub(crate) fn new(window: usize) -> Larges {
        Larges { table: Mutex::new(Slots::large()), window }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().len() == 0
    }

    pub(super) fn find(&self, op: OpId) -> Option<Arc<Transfer>> {
        self.table.lock().find(op).cloned()
    }
}

/// Owns the operations of its parts: starts the next when one has ended, and gives the event of the whole after the last.
pub(super) struct Transfer {
    id: OpId,
    plan: Plan,
    started_ns: u64,
    deadline_ns: Option<u64>,
    /// Who gets the event of the whole.
    owner: Option<Arc<dyn Owner>>,
    /// What the operations hold.
    this: Weak<Transfer>,
    /// Weak, so that a machine that cannot be stopped is freed.
    machine: Weak<Machine>,
    /// Never locked while a machine is called.
    inner: Mutex<Inner>,
}

struct Inner {
    progress: Progress,
    pieces: Pieces,
}

/// The buffer, but for its parts in flight. One that is no large buffer is its own only part.
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
            Some(place) => *place = Some(buffer),
            None => self.0 = Some(buffer),
        }
    }
}

impl Transfer {
    pub(super) fn enter(
        machine: &Machine,
        buffer: Buffer,
        plan: Plan,
        owner: Option<Arc<dyn Owner>>,
        window: usize,
        started_ns: u64,
        deadline_ns: Option<u64>,
    ) -> Arc<Transfer> {
        let progress = Progress::new(plan.parts(), window);
        let inner = Mutex::new(Inner { progress, pieces: Pieces(Some(buffer)) });
        let make = |id| {
            let this = |this: &Weak<_>| Transfer {
                id,
                plan,
                started_ns,
                deadline_ns,
                owner,
                this: this.clone(),
                machine: machine.this().clone(),
                inner,
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

    /// Starts the first parts, and gives the last event if it came to that. Refused, if already the first part is.
    pub(super) fn begin(
        &self,
        machine: &Machine,
        told: &mut impl FnMut(usize, Offer),
    ) -> Result<Option<Event>, Refused> {
        if let Some((part, buffer)) = self.take_next() {
            let timeout = self.remaining(machine);
            match machine.start_one(self.owned(self.plan.op(part, buffer, timeout))) {
                Ok(started) => {
                    told(part, started.offer);
                    self.has_started(machine, part, started.op);
                }
                Err(Refused { buffer, error }) => {
                    self.ended(machine, part, Some(buffer), Err(error.errno()));
                    self.leave(machine);
                    let whole = self.lock().pieces.0.take();
                    // It is whole: none of its parts has been started.
                    return whole.map_or(Ok(None), |buffer| Err(Refused { buffer, error }));
                }
            }
        }
        Ok(self.go_on(machine, told))
    }

    /// Starts as many parts as there may be in flight. Gives the event of the whole when there is none left.
    fn go_on(&self, machine: &Machine, told: &mut impl FnMut(usize, Offer)) -> Option<Event> {
        while let Some((part, buffer)) = self.take_next() {
            let timeout = self.remaining(machine);
            if timeout.is_some_and(|timeout| timeout.is_zero()) {
                self.ended(machine, part, Some(buffer), Err(Errno::ETIMEDOUT));
                continue;
            }
            // The transfer is in flight, and so its other parts may start though the machine is to stop.
            match machine.start_one(self.owned(self.plan.op(part, buffer, timeout)).going_on()) {
                Ok(started) => {
                    told(part, started.offer);
                    self.has_started(machine, part, started.op);
                }
                Err(Refused { buffer, error }) => self.ended(machine, part, Some(buffer), Err(error.errno())),
            }
        }
        self.end(machine)
    }

    fn take_next(&self) -> Option<(usize, Buffer)> {
        let mut inner = self.lock();
        let part = inner.progress.start()?;
        let piece = inner.pieces.take(part);
        debug_assert!(piece.is_some(), "a part is started once");
        piece.map(|buffer| (part, buffer))
    }

    fn owned(&self, op: Op) -> Op {
        match self.this.upgrade() {
            Some(this) => op.owned_by(this),
            None => unreachable!("whoever calls has it"),
        }
    }

    /// What is left of the timeout.
    fn remaining(&self, machine: &Machine) -> Option<Duration> {
        self.deadline_ns.map(|deadline_ns| Duration::from_nanos(deadline_ns.saturating_sub(machine.now_ns())))
    }

    fn has_started(&self, machine: &Machine, part: usize, op: OpId) {
        let cancel = self.lock().progress.started(part, op);
        cancel.into_iter().for_each(|op| machine.cancel_part(op));
    }

    /// A part is over: its buffer is here again. The first failure ends the others.
    fn ended(&self, machine: &Machine, part: usize, buffer: Option<Buffer>, outcome: Result<usize, Errno>) {
        let mut inner = self.lock();
        buffer.into_iter().for_each(|buffer| inner.pieces.put(part, buffer));
        let cancels = inner.progress.ended(part, outcome);
        drop(inner);
        cancels.into_iter().for_each(|op| machine.cancel_part(op));
    }

    pub(super) fn cancel(&self, machine: &Machine) {
        let cancels = self.lock().progress.fail(Errno::ECANCELED);
        cancels.into_iter().for_each(|op| machine.cancel_part(op));
    }

    /// The event of the whole, given once.
    fn end(&self, machine: &Machine) -> Option<Event> {
        let mut inner = self.lock();
        let outcome = inner.progress.end()?;
        let buffer = inner.pieces.0.take();
        drop(inner);
        buffer.map(|buffer| whole_event(self, buffer, outcome, machine.now_ns()))
    }

    /// Gives the event of the whole to its owner; what remains is the client's.
    pub(super) fn pass(&self, event: Event) -> Option<Event> {
        match &self.owner {
            None => Some(event),
            Some(owner) => owner.event(event),
        }
    }

    /// The event of the whole is where somebody takes it: the machine may end.
    pub(super) fn leave(&self, machine: &Machine) {
        let left = machine.larges().table.lock().leave(self.id);
        debug_assert!(left.is_some(), "it leaves once");
    }

    /// What a part's event says. A part that is filled short leaves a hole, unless it is the last.
    fn outcome(&self, part: usize, event: &Event) -> Result<usize, Errno> {
        event.status?;
        let last = part + 1 == self.plan.parts();
        if last || event.length == self.plan.part_length(part) {
            Ok(event.length)
        } else {
            Err(Errno::EBADMSG)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Owner for Transfer {
    fn event(&self, event: Event) -> Option<Event> {
        // Who takes the event has the machine.
        let machine = &*self.machine.upgrade()?;
        // The parts of a large buffer are tagged with their places.
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

    fn given(&self) {
        if let Some(machine) = self.machine.upgrade() {
            self.leave(&machine);
        }
    }
}

/// The event of the whole; its buffer goes with it.
fn whole_event(
    transfer: &Transfer,
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
