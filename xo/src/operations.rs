//! The operations of a transfer machine: those in flight and what always changes with them, the events that wait to be given,
//! and whether more may start.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nlx_core::{BufferEvent, BufferHandle, CoreError, CoreTm, Errno, Operation, Queue};
use parking_lot::Mutex;

use crate::deadlines::Deadlines;
use crate::end_point::EndPoints;
use crate::event::Owner;
use crate::op::{Op, What};
use crate::op_id::Slots;
use crate::quotas::{Ledger, Object};
use crate::statistics::Statistics;
use crate::{Buffer, EndPoint, Error, Event, Message, OpId, QueueStatistics, Refused, TmState};

/// Why an operation is to end before its time. The first reason stays (X1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Cancelled,
    TimedOut,
}

/// An operation in flight.
struct InFlight {
    queue: Queue,
    buffer: Buffer,
    /// Bytes to be sent; for what receives, 0.
    length: usize,
    /// The peer of a message that is being sent: counted while it is.
    _to: Option<EndPoint>,
    reason: Option<Reason>,
    /// The transport has been told to cancel it.
    cancel_sent: bool,
    /// Who gets its events instead of the client.
    owner: Option<Arc<dyn Owner>>,
}

/// An event and who gets it instead of the client.
pub(crate) type Owned = (Arc<dyn Owner>, Event);

/// What the threads of a transfer machine share of its operations.
pub(crate) struct Operations {
    table: Mutex<Table>,
    /// The earliest deadline of an operation, `u64::MAX` without one: a thread that takes events need not lock to learn that
    /// nothing has timed out. Changed under the lock.
    earliest_ns: AtomicU64,
}

/// Never locked while the transport is called to start, cancel or wait, nor while a buffer is dropped or anything of the
/// client's is called.
struct Table {
    state: TmState,
    /// It is stopping because a callback has panicked.
    failing: bool,
    ops: Slots<InFlight>,
    deadlines: Deadlines,
    statistics: Statistics,
    /// Events that a stop has taken, to be given out by the waits after it.
    backlog: VecDeque<Event>,
    /// Events that were taken from the transport in one call, to be given out next.
    fetched: Fetched,
    /// Operations in flight, by queue.
    posted: [usize; Queue::COUNT],
}

impl Table {
    /// Whether events wait to be given out.
    fn has_events(&self) -> bool {
        !self.backlog.is_empty() || !self.fetched.is_empty()
    }
}

/// Events of the transport's that are taken in one call: 1.4 KB of each machine. With more of them, what a call costs is a
/// smaller part still of what an event costs.
const FETCHED_MAX: usize = 16;

/// Events that have been taken from the transport together, and not looked at yet.
struct Fetched {
    events: [BufferEvent; FETCHED_MAX],
    /// Those that are left.
    left: Range<usize>,
}

impl Fetched {
    fn new() -> Fetched {
        Fetched { events: [BufferEvent::ZERO; FETCHED_MAX], left: 0..0 }
    }

    fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Takes up to `most` events from the transport, where nothing is left. Whether there were any.
    fn refill(&mut self, tm: &dyn CoreTm, most: usize) -> Result<bool, CoreError> {
        self.left = 0..tm.events_get(&mut self.events[..most.min(FETCHED_MAX)])?;
        Ok(!self.left.is_empty())
    }

    /// The oldest event that is left.
    fn pop(&mut self) -> Option<BufferEvent> {
        self.left.next().map(|place| self.events[place])
    }
}

/// What [`Operations::next`] has found.
pub(crate) struct Next {
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
            ops: Slots::default(),
            deadlines: Deadlines::default(),
            statistics: Statistics::default(),
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

    /// The counters; from 0 again afterwards, if that is wanted.
    pub(crate) fn statistics(&self, reset: bool) -> [QueueStatistics; Queue::COUNT] {
        self.table.lock().statistics.read(reset)
    }

    /// Counts what a queue lacked as failures.
    pub(crate) fn count_failures(&self, queue: Queue, failures: u64) {
        let mut table = self.table.lock();
        let counters = table.statistics.of(queue);
        // What is wanted may be any number.
        counters.failures = counters.failures.saturating_add(failures);
    }

    /// Moves the buffer into an operation: gives what the transport is to be told.
    #[inline]
    pub(crate) fn enter(
        &self,
        op: Op,
        deadline_ns: Option<u64>,
        ledger: &Ledger,
    ) -> Result<Operation, Refused> {
        self.enter_in(&mut self.table.lock(), op, deadline_ns, ledger)
    }

    /// The same of several, each with its deadline, unless it is refused already; `entered` is told of each in order.
    pub(crate) fn enter_all(
        &self,
        ops: impl Iterator<Item = Result<(Op, Option<u64>), Refused>>,
        ledger: &Ledger,
        mut entered: impl FnMut(Result<Operation, Refused>),
    ) {
        let table = &mut *self.table.lock();
        for op in ops {
            entered(op.and_then(|(op, deadline_ns)| self.enter_in(table, op, deadline_ns, ledger)));
        }
    }

    #[inline]
    fn enter_in(
        &self,
        table: &mut Table,
        op: Op,
        deadline_ns: Option<u64>,
        ledger: &Ledger,
    ) -> Result<Operation, Refused> {
        let kind = op.kind();
        let Op { buffer, what, length, owner, going_on, .. } = op;
        let state = table.state;
        if state != TmState::Started && !(going_on && state == TmState::Stopping) {
            return Err(Refused { buffer, error: Error::NotStarted { state } });
        }
        if let Err(error) = ledger.check(Object::Operations, table.ops.len() as u64) {
            return Err(Refused { buffer, error });
        }
        let (handle, queue) = (buffer.handle(), kind.queue());
        let length = if queue.receives() { 0 } else { length };
        let to = if let What::Send(to) = what { Some(to) } else { None };
        let op = InFlight { queue, buffer, length, _to: to, reason: None, cancel_sent: false, owner };
        let (id, _) = table.ops.enter(|_| op);
        table.statistics.of(queue).adds += 1;
        table.posted[queue.index()] += 1;
        if let Some(deadline_ns) = deadline_ns {
            self.set_deadline(table, id, deadline_ns);
        }
        Ok(Operation { buffer: handle, cookie: id.cookie(), kind })
    }

    /// Takes back an operation that was refused: its buffer, unless it has ended with an event.
    pub(crate) fn withdraw(&self, id: OpId) -> Option<Buffer> {
        let table = &mut *self.table.lock();
        let op = self.remove(table, id)?;
        let adds = &mut table.statistics.of(op.queue).adds;
        // The counters may have been reset since.
        *adds = adds.saturating_sub(1);
        Some(op.buffer)
    }

    /// Notes that an operation in flight is cancelled; gives its buffer. `None` if it is over or, unless `again`, is to end
    /// already.
    pub(crate) fn cancel(&self, id: OpId, again: bool) -> Option<BufferHandle> {
        let Table { ops, statistics, .. } = &mut *self.table.lock();
        let found = ops.find(id).filter(|found| again || found.reason.is_none())?;
        found.reason.get_or_insert(Reason::Cancelled);
        statistics.of(found.queue).cancels += 1;
        Some(found.buffer.handle())
    }

    /// Notes that all are cancelled; gives those that the transport has not been told to cancel.
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

    /// The transport has been told to cancel it.
    pub(crate) fn cancel_sent(&self, id: OpId) {
        if let Some(op) = self.table.lock().ops.find(id) {
            op.cancel_sent = true;
        }
    }

    /// This deadline or that of an operation, whichever is earlier.
    pub(crate) fn earlier(&self, deadline_ns: Option<u64>) -> Option<u64> {
        let earliest_ns = self.earliest_ns.load(Ordering::Acquire);
        Some(earliest_ns.min(deadline_ns.unwrap_or(u64::MAX))).filter(|earlier_ns| *earlier_ns != u64::MAX)
    }

    /// Whether no deadline comes before this one.
    pub(crate) fn is_earliest(&self, deadline_ns: u64) -> bool {
        self.earliest_ns.load(Ordering::SeqCst) >= deadline_ns
    }

    /// The next operation that has timed out by now, and is to be cancelled.
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

    /// The transport did not know an operation that has timed out: its last event waits to be taken, or it has not been
    /// started yet.
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

    /// An operation is over.
    fn remove(&self, table: &mut Table, id: OpId) -> Option<InFlight> {
        if table.deadlines.remove(id.slot()) {
            self.note_earliest(table);
        }
        let op = table.ops.leave(id)?;
        table.posted[op.queue.index()] -= 1;
        Some(op)
    }

    /// The next event: one that a stop has taken, or of the transport's. Where there is none at hand, several are taken from the
    /// transport at once unless `sleeps` says that another thread may sleep there: an event wakes it only as long as it lies
    /// in the transport's queue. It is asked under the lock, and a thread that goes to sleep looks for events after it has
    /// said so.
    pub(crate) fn next(
        &self,
        tm: &dyn CoreTm,
        end_points: &EndPoints,
        sleeps: impl Fn() -> bool,
    ) -> Result<Next, CoreError> {
        let table = &mut *self.table.lock();
        let event = match table.backlog.pop_front() {
            None => {
                let most = || if sleeps() { 1 } else { FETCHED_MAX };
                self.take(table, tm, end_points, most)?
            }
            kept => kept,
        };
        let Table { state, failing, .. } = *table;
        Ok(Next { event, state, is_failing: failing && state == TmState::Stopping })
    }

    /// Takes events from the transport for the waits to come, up to one that has an owner, which it gives with it. Also
    /// gives whether there were others.
    pub(crate) fn keep_events(&self, tm: &dyn CoreTm, end_points: &EndPoints) -> (bool, Option<Owned>) {
        let table = &mut *self.table.lock();
        let mut found = false;
        // Where they are lost, who waits for them hears of it.
        while let Ok(Some(mut event)) = self.take(table, tm, end_points, || FETCHED_MAX) {
            if let Some(owner) = event.owner.take() {
                return (found, Some((owner, event)));
            }
            table.backlog.push_back(event);
            found = true;
        }
        (found, None)
    }

    /// Keeps an event for the waits to come.
    pub(crate) fn keep(&self, event: Event) {
        self.table.lock().backlog.push_back(event);
    }

    /// Whether events wait here to be given out.
    pub(crate) fn has_events(&self) -> bool {
        self.table.lock().has_events()
    }

    /// Whether events wait here, or the machine has ended.
    pub(crate) fn has_news(&self) -> bool {
        let table = &*self.table.lock();
        table.has_events() || matches!(table.state, TmState::Stopped | TmState::Failed)
    }

    /// Takes an event of the transport's, and up to `most` from the transport where none is at hand. Under the lock, so that the
    /// events of an operation keep their order whoever takes them.
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
            // Copied: it is small, and what is made of it changes the table.
            let Some(raw) = table.fetched.pop() else { return Ok(None) };
            if table.ops.find(OpId::from_cookie(raw.cookie)).is_some() {
                return Ok(self.event(table, &raw, end_points));
            }
            tracing::error!(cookie = raw.cookie, "an event of an operation that is over");
        }
    }

    /// What the transport's event means to the client (motr-transport 9.5).
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

    /// Takes no more operations. False if it is stopped already.
    pub(crate) fn begin_stop(&self, failing: bool) -> bool {
        let table = &mut *self.table.lock();
        if table.state == TmState::Started {
            table.state = TmState::Stopping;
        }
        table.failing |= failing && table.state == TmState::Stopping;
        table.state == TmState::Stopping
    }

    /// The machine has ended; gives its state before, and the one that it ends in.
    pub(crate) fn end_stop(&self) -> (TmState, TmState) {
        let table = &mut *self.table.lock();
        let (before, after) = (table.state, if table.failing { TmState::Failed } else { TmState::Stopped });
        if before == TmState::Stopping {
            table.state = after;
        }
        (before, after)
    }

    /// The machine has not started after all.
    pub(crate) fn fail(&self) {
        self.table.lock().state = TmState::Failed;
    }
}

/// A timeout is carried out by cancelling; the client learns which of the two it was (X1).
fn status_of(op: &InFlight, raw: &BufferEvent) -> Result<(), Errno> {
    match raw.status() {
        Err(Errno::ECANCELED) if op.reason == Some(Reason::TimedOut) => Err(Errno::ETIMEDOUT),
        status => status,
    }
}
