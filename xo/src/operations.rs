//! The operations of a transfer machine: the table of those in flight, their deadlines and
//! statistics, the queue of events, and the machine's state.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nlx_core::{BufferEvent, BufferHandle, CoreError, CoreTm, Errno, Operation, Queue};
use nlx_sync::Deadlines;
use parking_lot::Mutex;

use crate::end_point::EndPoints;
use crate::event::OpOwner;
use crate::op::{Op, OpAction};
use crate::op_id::OpTable;
use crate::quotas::{LimitedObject, QuotaUsage};
use crate::statistics::TmStatistics;
use crate::{Buffer, EndPoint, Error, Event, Message, OpId, QueueStatistics, Refused, TmState};

/// The reason for the cancellation of an operation. The first reason is kept (X1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Cancelled,
    TimedOut,
}

/// An operation in flight.
struct InFlight {
    queue: Queue,
    buffer: Buffer,
    /// Bytes to send; 0 for an operation that receives.
    length: usize,
    /// The peer of a message that is being sent: keeps its end point in use.
    _to: Option<EndPoint>,
    reason: Option<Reason>,
    /// The transport has accepted the request to cancel it.
    cancel_sent: bool,
    /// The owner that gets its events instead of the client.
    owner: Option<Arc<dyn OpOwner>>,
}

/// An event, and the owner that gets it instead of the client.
pub(crate) type Owned = (Arc<dyn OpOwner>, Event);

/// The operations of a transfer machine, shared by its threads.
pub(crate) struct Operations {
    table: Mutex<Table>,
    /// The earliest deadline of an operation, `u64::MAX` without one: a thread that takes events
    /// reads it without the lock to see that no operation has timed out. Changed under the lock.
    earliest_ns: AtomicU64,
}

/// The state behind the lock of [`Operations`]. The lock is not held while the transport is called
/// to start, cancel or wait, while a buffer is dropped, or while code of the client is called.
struct Table {
    state: TmState,
    /// The machine is stopping because a callback has panicked.
    failing: bool,
    ops: OpTable<InFlight>,
    deadlines: Deadlines,
    statistics: TmStatistics,
    /// Events that a stop has taken, for later waits.
    backlog: VecDeque<Event>,
    /// Events taken from the transport in one call, which come next.
    fetched: Fetched,
    /// Operations in flight, by queue.
    posted: [usize; Queue::COUNT],
}

impl Table {
    /// Returns whether events are queued here.
    fn has_events(&self) -> bool {
        !self.backlog.is_empty() || !self.fetched.is_empty()
    }
}

/// Events taken from the transport in one call: 1.4 KB in each machine. A larger number would
/// reduce the share of the call in the cost of an event only a little further.
const FETCHED_MAX: usize = 16;

/// Events taken from the transport together, not yet translated.
struct Fetched {
    events: [BufferEvent; FETCHED_MAX],
    /// The indices of the events that are left.
    left: Range<usize>,
}

impl Fetched {
    fn new() -> Fetched {
        Fetched { events: [BufferEvent::ZERO; FETCHED_MAX], left: 0..0 }
    }

    fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Takes up to `most` events from the transport; called when none is left. Returns whether
    /// there were any.
    fn refill(&mut self, tm: &dyn CoreTm, most: usize) -> Result<bool, CoreError> {
        self.left = 0..tm.events_get(&mut self.events[..most.min(FETCHED_MAX)])?;
        Ok(!self.left.is_empty())
    }

    /// Removes and returns the oldest event that is left.
    fn pop(&mut self) -> Option<BufferEvent> {
        self.left.next().map(|index| self.events[index])
    }
}

/// The result of [`Operations::next`].
pub(crate) struct NextEvent {
    pub(crate) event: Option<Event>,
    pub(crate) state: TmState,
    /// The machine is stopping because a callback has panicked.
    pub(crate) is_failing: bool,
}

impl Operations {
    pub(crate) fn new() -> Operations {
        let table = Table {
            state: TmState::Started,
            failing: false,
            ops: OpTable::default(),
            deadlines: Deadlines::default(),
            statistics: TmStatistics::default(),
            backlog: VecDeque::new(),
            fetched: Fetched::new(),
            posted: [0; Queue::COUNT],
        };
        Operations { table: Mutex::new(table), earliest_ns: AtomicU64::new(u64::MAX) }
    }

    pub(crate) fn state(&self) -> TmState {
        self.table.lock().state
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.table.lock().ops.len()
    }

    pub(crate) fn posted(&self, queue: Queue) -> usize {
        self.table.lock().posted[queue.index()]
    }

    /// Returns the counters, and resets them to 0 if `reset`.
    pub(crate) fn statistics(&self, reset: bool) -> [QueueStatistics; Queue::COUNT] {
        self.table.lock().statistics.read(reset)
    }

    /// Adds missing receive buffers to the failures of a queue.
    pub(crate) fn count_failures(&self, queue: Queue, failures: u64) {
        let mut table = self.table.lock();
        let counters = table.statistics.of(queue);
        // The client may ask for any number of buffers.
        counters.failures = counters.failures.saturating_add(failures);
    }

    /// Enters an operation with its buffer, and returns what to pass to the transport.
    #[inline]
    pub(crate) fn enter(
        &self,
        op: Op,
        deadline_ns: Option<u64>,
        usage: &QuotaUsage,
    ) -> Result<Operation, Refused> {
        self.enter_in(&mut self.table.lock(), op, deadline_ns, usage)
    }

    /// Enters several operations, each with its deadline, and passes each result to `entered`, in
    /// order; operations refused before are passed through.
    pub(crate) fn enter_all(
        &self,
        ops: impl Iterator<Item = Result<(Op, Option<u64>), Refused>>,
        usage: &QuotaUsage,
        mut entered: impl FnMut(Result<Operation, Refused>),
    ) {
        let table = &mut *self.table.lock();
        for op in ops {
            entered(op.and_then(|(op, deadline_ns)| self.enter_in(table, op, deadline_ns, usage)));
        }
    }

    #[inline]
    fn enter_in(
        &self,
        table: &mut Table,
        op: Op,
        deadline_ns: Option<u64>,
        usage: &QuotaUsage,
    ) -> Result<Operation, Refused> {
        let kind = op.kind();
        let Op { buffer, action, length, owner, going_on, .. } = op;
        let state = table.state;
        if state != TmState::Started && !(going_on && state == TmState::Stopping) {
            return Err(Refused { buffer, error: Error::NotStarted { state } });
        }
        if let Err(error) = usage.check(LimitedObject::Operations, table.ops.len() as u64) {
            return Err(Refused { buffer, error });
        }
        let (handle, queue) = (buffer.handle(), kind.queue());
        let length = if queue.receives() { 0 } else { length };
        let to = if let OpAction::Send(to) = action { Some(to) } else { None };
        let op = InFlight { queue, buffer, length, _to: to, reason: None, cancel_sent: false, owner };
        let (id, _) = table.ops.enter(|_| op);
        table.statistics.of(queue).adds += 1;
        table.posted[queue.index()] += 1;
        if let Some(deadline_ns) = deadline_ns {
            self.set_deadline(table, id, deadline_ns);
        }
        Ok(Operation { buffer: handle, cookie: id.cookie(), kind })
    }

    /// Removes an operation that the transport refused. Returns its buffer, unless the operation
    /// has ended with an event.
    pub(crate) fn withdraw(&self, id: OpId) -> Option<Buffer> {
        let table = &mut *self.table.lock();
        let op = self.remove(table, id)?;
        let adds = &mut table.statistics.of(op.queue).adds;
        // The counters may have been reset in between.
        *adds = adds.saturating_sub(1);
        Some(op.buffer)
    }

    /// Marks an operation in flight as cancelled, and returns its buffer's handle. Returns `None`
    /// if the operation has ended or, unless `again`, is being cancelled already.
    pub(crate) fn cancel(&self, id: OpId, again: bool) -> Option<BufferHandle> {
        let Table { ops, statistics, .. } = &mut *self.table.lock();
        let found = ops.find(id).filter(|found| again || found.reason.is_none())?;
        found.reason.get_or_insert(Reason::Cancelled);
        statistics.of(found.queue).cancels += 1;
        Some(found.buffer.handle())
    }

    /// Marks all operations as cancelled, and returns those whose cancel the transport has not
    /// accepted yet.
    pub(crate) fn cancel_all(&self) -> Vec<(OpId, BufferHandle)> {
        let Table { ops, statistics, .. } = &mut *self.table.lock();
        let mut found = Vec::new();
        for (id, op) in ops.iter_mut().filter(|(_, op)| !op.cancel_sent) {
            if op.reason.is_none() {
                op.reason = Some(Reason::Cancelled);
                statistics.of(op.queue).cancels += 1;
            }
            found.push((id, op.buffer.handle()));
        }
        found
    }

    /// Records that the transport has accepted the cancel.
    pub(crate) fn cancel_sent(&self, id: OpId) {
        if let Some(op) = self.table.lock().ops.find(id) {
            op.cancel_sent = true;
        }
    }

    /// Returns the earlier of this deadline and the earliest one of an operation.
    pub(crate) fn earlier(&self, deadline_ns: Option<u64>) -> Option<u64> {
        let earliest_ns = self.earliest_ns.load(Ordering::Acquire);
        Some(earliest_ns.min(deadline_ns.unwrap_or(u64::MAX))).filter(|earlier_ns| *earlier_ns != u64::MAX)
    }

    /// Returns whether no deadline comes before this one.
    pub(crate) fn is_earliest(&self, deadline_ns: u64) -> bool {
        self.earliest_ns.load(Ordering::SeqCst) >= deadline_ns
    }

    /// Returns the next operation whose deadline has passed, to be cancelled, and removes its
    /// deadline.
    pub(crate) fn next_expired(&self, now_ns: u64) -> Option<(OpId, BufferHandle)> {
        let table = &mut *self.table.lock();
        let (_, slot) = table.deadlines.first().filter(|(deadline_ns, _)| *deadline_ns <= now_ns)?;
        table.deadlines.remove(slot);
        self.note_earliest(table);
        let id = table.ops.in_slot(slot)?;
        let op = table.ops.find(id)?;
        op.reason.get_or_insert(Reason::TimedOut);
        Some((id, op.buffer.handle()))
    }

    /// Sets a new deadline for a timed out operation that the transport did not find: either its
    /// last event is queued, or it has not been started yet.
    pub(crate) fn expire_again(&self, id: OpId, deadline_ns: u64) {
        let table = &mut *self.table.lock();
        if table.ops.find(id).is_some() {
            self.set_deadline(table, id, deadline_ns);
        }
    }

    fn set_deadline(&self, table: &mut Table, id: OpId, deadline_ns: u64) {
        table.deadlines.set(id.slot(), deadline_ns);
        self.note_earliest(table);
    }

    fn note_earliest(&self, table: &Table) {
        let earliest_ns = table.deadlines.first().map_or(u64::MAX, |(deadline_ns, _)| deadline_ns);
        self.earliest_ns.store(earliest_ns, Ordering::SeqCst);
    }

    /// Removes an operation that has ended.
    fn remove(&self, table: &mut Table, id: OpId) -> Option<InFlight> {
        if table.deadlines.remove(id.slot()) {
            self.note_earliest(table);
        }
        let op = table.ops.leave(id)?;
        table.posted[op.queue.index()] -= 1;
        Some(op)
    }

    /// Returns the next event: one that a stop has taken, or one of the transport's. If none is at
    /// hand, takes several from the transport in one call, unless `sleeps` says that another thread
    /// may sleep there: an event wakes that thread only while it is in the transport's queue.
    /// `sleeps` is called under the lock, and a thread that goes to sleep checks for events after
    /// it has announced itself.
    pub(crate) fn next(
        &self,
        tm: &dyn CoreTm,
        end_points: &EndPoints,
        sleeps: impl Fn() -> bool,
    ) -> Result<NextEvent, CoreError> {
        let table = &mut *self.table.lock();
        let event = match table.backlog.pop_front() {
            None => {
                let most = || if sleeps() { 1 } else { FETCHED_MAX };
                self.take(table, tm, end_points, most)?
            }
            kept => kept,
        };
        let Table { state, failing, .. } = *table;
        Ok(NextEvent { event, state, is_failing: failing && state == TmState::Stopping })
    }

    /// Moves events of the transport into the backlog, up to one that has an owner, which it
    /// returns with the owner. Also returns whether it moved any.
    ///
    /// # Errors
    /// [`CoreError::QueueCorrupt`] if the transport's further events are lost.
    pub(crate) fn keep_events(
        &self,
        tm: &dyn CoreTm,
        end_points: &EndPoints,
    ) -> Result<(bool, Option<Owned>), CoreError> {
        let table = &mut *self.table.lock();
        let mut found = false;
        while let Some(mut event) = self.take(table, tm, end_points, || FETCHED_MAX)? {
            if let Some(owner) = event.owner.take() {
                return Ok((found, Some((owner, event))));
            }
            table.backlog.push_back(event);
            found = true;
        }
        Ok((found, None))
    }

    /// Adds an event to the backlog.
    pub(crate) fn keep(&self, event: Event) {
        self.table.lock().backlog.push_back(event);
    }

    /// Returns whether events are queued here.
    pub(crate) fn has_events(&self) -> bool {
        self.table.lock().has_events()
    }

    /// Returns whether events are queued here, or the machine has ended.
    pub(crate) fn has_news(&self) -> bool {
        let table = &*self.table.lock();
        table.has_events() || matches!(table.state, TmState::Stopped | TmState::Failed)
    }

    /// Takes one event of the transport's; if none is at hand, takes up to `most` from the
    /// transport. Called under the lock, so that the events of an operation keep their order,
    /// whichever thread takes them.
    fn take(
        &self,
        table: &mut Table,
        tm: &dyn CoreTm,
        end_points: &EndPoints,
        most: impl Fn() -> usize,
    ) -> Result<Option<Event>, CoreError> {
        loop {
            if table.fetched.is_empty() && !table.fetched.refill(tm, most())? {
                return Ok(None);
            }
            // Copied: it is small, and translating it changes the table.
            let Some(raw) = table.fetched.pop() else { return Ok(None) };
            if table.ops.find(OpId::from_cookie(raw.cookie)).is_some() {
                return Ok(self.event(table, &raw, end_points));
            }
            tracing::error!(cookie = raw.cookie, "dropped an event of an operation that has ended");
        }
    }

    /// Translates an event of the transport into one for the client (motr-transport 9.5).
    fn event(&self, table: &mut Table, raw: &BufferEvent, end_points: &EndPoints) -> Option<Event> {
        let op = OpId::from_cookie(raw.cookie);
        let found = table.ops.find(op)?;
        let (queue, tag, owner) = (found.queue, found.buffer.tag(), found.owner.clone());
        let (mut status, mut length) = (status_of(found, raw), 0);
        let mut message = None;
        if status.is_ok() {
            length = if queue.receives() { raw.length as usize } else { found.length };
        }
        if queue == Queue::MessageReceive && status.is_ok() {
            match Message::lend(&found.buffer, raw.offset as usize, length) {
                Ok(lent) => message = Some(lent),
                Err(error) => (status, length) = (Err(error.errno()), 0),
            }
        }
        let after = Duration::from_nanos(raw.time_ns);
        table.statistics.event(queue, status, length, raw.unlinked().then_some(after));
        let ended = if raw.unlinked() { self.remove(table, op) } else { None };
        Some(Event {
            op,
            queue,
            status,
            length,
            offset: raw.offset as usize,
            sender: raw.sender().map(|address| end_points.find(address)),
            message,
            buffer: ended.map(|op| op.buffer),
            tag,
            after,
            owner,
        })
    }

    /// Refuses operations from now on. Returns false if the machine is stopped already.
    pub(crate) fn begin_stop(&self, failing: bool) -> bool {
        let table = &mut *self.table.lock();
        if table.state == TmState::Started {
            table.state = TmState::Stopping;
        }
        table.failing |= failing && table.state == TmState::Stopping;
        table.state == TmState::Stopping
    }

    /// Records that the machine has ended. Returns its state before, and its final state.
    pub(crate) fn end_stop(&self) -> (TmState, TmState) {
        let table = &mut *self.table.lock();
        let (before, after) = (table.state, if table.failing { TmState::Failed } else { TmState::Stopped });
        if before == TmState::Stopping {
            table.state = after;
        }
        (before, after)
    }

    /// Records that the machine could not be started.
    pub(crate) fn fail(&self) {
        self.table.lock().state = TmState::Failed;
    }
}

/// Returns the status that the client sees. A timeout cancels the operation, so ECANCELED becomes
/// ETIMEDOUT if the deadline was the reason (X1).
fn status_of(op: &InFlight, raw: &BufferEvent) -> Result<(), Errno> {
    match raw.status() {
        Err(Errno::ECANCELED) if op.reason == Some(Reason::TimedOut) => Err(Errno::ETIMEDOUT),
        status => status,
    }
}
