//! Transfer machines.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::thread::JoinHandle;
use std::time::Duration;

use nlx_core::{Address, CoreTm, Descriptor, Queue};
use parking_lot::{Condvar, Mutex, ReentrantMutex};

use crate::deadlines::Deadlines;
use crate::domain::{Given, Inner};
use crate::end_point::EndPoints;
use crate::large::{self, Larges};
use crate::operations::{Op, Operations, Reason};
use crate::provision::Provisioner;
use crate::quotas::Object;
use crate::start::Wanted;
use crate::statistics::Statistics;
use crate::thread::is_event_thread;
use crate::wait::Backlog;
use crate::{Buffer, EndPoint, Error, OpId, QueueStatistics, Receive, Refused, Started, TmEvent, TmState};

/// A transfer machine: an address, and the operations that go on there. It stops with abort when this is dropped; with
/// callbacks, they have ended then.
///
/// What it can do stands at [`Machine`], as which callbacks see it.
pub struct TransferMachine {
    machine: Arc<Machine>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TransferMachine {
    pub(crate) fn new(machine: Machine) -> TransferMachine {
        TransferMachine { machine: Arc::new(machine), thread: Mutex::default() }
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    pub(crate) fn has_thread(&self, thread: JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }
}

impl Deref for TransferMachine {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Drop for TransferMachine {
    fn drop(&mut self) {
        let stopped = self.machine.stop_at_drop();
        if let Some(thread) = self.thread.get_mut().take()
            && stopped
            && !is_event_thread()
        {
            // What a callback's panic was has been told.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for TransferMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransferMachine({}, {}, {} in flight)", self.address(), self.state(), self.in_flight())
    }
}

/// Who is told of a transfer machine's events.
pub(crate) type Observer = Box<dyn Fn(&Machine, &TmEvent) + Send + Sync>;

/// What a transfer machine can do, in the hands of its owner ([`TransferMachine`]) and of its callbacks.
///
/// All methods take `&self` and may be called from any thread; several threads may wait, and share the events.
pub struct Machine {
    pub(crate) tm: Box<dyn CoreTm>,
    pub(crate) domain: Arc<Inner>,
    pub(crate) end_points: EndPoints,
    own: EndPoint,
    pub(crate) inner: Mutex<State>,
    /// The earliest deadline of an operation, `u64::MAX` without one: whoever has events to take need not lock to learn that
    /// nothing has timed out.
    pub(crate) earliest_ns: AtomicU64,
    /// Who holds it sleeps in the transport; others that want to wait, wait for it. What the client is called back with while
    /// it is held may wait itself, and stop the machine.
    pub(crate) turn: ReentrantMutex<()>,
    /// Threads that wait, and the program's loop while it sleeps.
    pub(crate) waiters: AtomicUsize,
    /// The program's loop is about to sleep, or sleeps.
    pub(crate) armed: AtomicBool,
    pub(crate) observer: Option<Observer>,
    /// Dropped messages that the observer has been told of.
    pub(crate) dropped_told: AtomicU64,
    pub(crate) larges: Larges,
    /// With an event thread: whether it has called its last callback.
    pub(crate) callbacks: Option<Callbacks>,
    /// Where its receive buffers come from.
    pub(crate) provisioner: Option<Provisioner>,
    _given: Given,
}

/// What the threads of a transfer machine share. Never locked while the transport is called to start, cancel or wait, nor
/// while a buffer is dropped or anything of the client's is called.
pub(crate) struct State {
    pub(crate) state: TmState,
    /// It is stopping because a callback has panicked.
    pub(crate) failing: bool,
    pub(crate) operations: Operations,
    pub(crate) deadlines: Deadlines,
    pub(crate) statistics: Statistics,
    pub(crate) backlog: Backlog,
    /// Operations in flight, by queue.
    pub(crate) posted: [usize; Queue::COUNT],
}

/// The end of an event thread's callbacks.
#[derive(Default)]
pub(crate) struct Callbacks {
    pub(crate) ended: Mutex<bool>,
    pub(crate) end: Condvar,
}

static_assertions::assert_impl_all!(TransferMachine: Send, Sync);

impl Machine {
    pub(crate) fn new(
        tm: Box<dyn CoreTm>,
        domain: Arc<Inner>,
        observer: Option<Observer>,
        callbacks: bool,
        given: Given,
    ) -> Machine {
        let end_points = EndPoints::default();
        let own = end_points.find(tm.address());
        let state = State {
            state: TmState::Started,
            failing: false,
            operations: Operations::default(),
            deadlines: Deadlines::default(),
            statistics: Statistics::default(),
            backlog: Backlog::default(),
            posted: [0; Queue::COUNT],
        };
        Machine {
            tm,
            domain,
            end_points,
            own,
            inner: Mutex::new(state),
            earliest_ns: AtomicU64::new(u64::MAX),
            turn: ReentrantMutex::new(()),
            waiters: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            observer,
            dropped_told: AtomicU64::new(0),
            larges: Larges::new(large::WINDOW),
            callbacks: callbacks.then(Callbacks::default),
            provisioner: None,
            _given: given,
        }
    }

    /// Its address, with the id it was given.
    pub fn address(&self) -> Address {
        self.tm.address()
    }

    /// Itself as an end point: a message sent there comes back.
    pub fn own_end_point(&self) -> &EndPoint {
        &self.own
    }

    /// The peer at this address, `nid:pid:portal:tmid`. Two texts of one address give the same end point.
    ///
    /// # Errors
    /// EINVAL for a text that is no address, `*` included (MT-70); ESHUTDOWN unless the transfer machine is started.
    pub fn end_point(&self, address: &str) -> Result<EndPoint, Error> {
        self.domain.check_here()?;
        let address: Address = address.parse()?;
        match self.state() {
            TmState::Started => {
                self.check_end_points(address)?;
                Ok(self.end_points.find(address))
            }
            state => Err(Error::NotStarted { state }),
        }
    }

    fn check_end_points(&self, address: Address) -> Result<(), Error> {
        let ledger = self.domain.ledger();
        if !ledger.limits(Object::EndPoints) || self.end_points.is_used(address) {
            return Ok(());
        }
        ledger.check(Object::EndPoints, self.end_points.in_use() as u64)
    }

    /// How many addresses have end points in use, its own included.
    pub fn end_points(&self) -> usize {
        if self.domain.is_here() { self.end_points.in_use() } else { 0 }
    }

    /// Its state; in a forked child it has failed.
    pub fn state(&self) -> TmState {
        self.look_at(|inner| inner.state).unwrap_or(TmState::Failed)
    }

    /// Operations whose last event has not been given.
    pub fn in_flight(&self) -> usize {
        self.look_at(|inner| inner.operations.len()).unwrap_or(0)
    }

    /// The same, of one queue.
    pub fn posted(&self, queue: Queue) -> usize {
        self.look_at(|inner| inner.posted[queue.index()]).unwrap_or(0)
    }

    fn look_at<T>(&self, look: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.domain.is_here().then(|| look(&mut self.inner.lock()))
    }

    /// Messages to it that were dropped since it started because no receive buffer took them (X13). The observer is told as
    /// well ([`crate::TmEvent::NoBuffer`]).
    pub fn dropped_messages(&self) -> u64 {
        self.tm.dropped()
    }

    /// The counters of each queue, at [`Queue::index`].
    pub fn statistics(&self) -> [QueueStatistics; Queue::COUNT] {
        self.look_at(|inner| inner.statistics.read(false)).unwrap_or_default()
    }

    /// The counters, which begin anew from 0 at the same moment.
    pub fn take_statistics(&self) -> [QueueStatistics; Queue::COUNT] {
        self.look_at(|inner| inner.statistics.read(true)).unwrap_or_default()
    }

    /// Takes messages into a buffer, one after the other. Each is an event with a [`crate::Message`]; the last event brings
    /// the buffer back.
    ///
    /// # Errors
    /// Those of every operation: ETIME for a timeout of 0, EBUSY while a message lends bytes of the buffer out, EINVAL for
    /// numbers that do not fit the buffer or a buffer of another domain, ENOMEM without room for events, ESHUTDOWN unless
    /// started, or what LNet says.
    pub fn receive(
        &self,
        buffer: Buffer,
        receive: Receive,
        timeout: Option<Duration>,
    ) -> Result<OpId, Refused> {
        self.start(Wanted::receive(buffer, receive, timeout)).map(|started| started.op)
    }

    /// Sends the first `length` bytes of a buffer as a message. Success means that they have left.
    ///
    /// # Errors
    /// As [`Machine::receive`]; EHOSTUNREACH if no network leads there.
    pub fn send(
        &self,
        buffer: Buffer,
        length: usize,
        to: &EndPoint,
        timeout: Option<Duration>,
    ) -> Result<OpId, Refused> {
        self.start(Wanted::send(buffer, length, to, timeout)).map(|started| started.op)
    }

    /// Lets whoever gets the descriptor write into a buffer, once. The buffer can be reached when this returns.
    ///
    /// # Errors
    /// As [`Machine::receive`].
    pub fn passive_receive(
        &self,
        buffer: Buffer,
        timeout: Option<Duration>,
    ) -> Result<(OpId, Descriptor), Refused> {
        self.start(Wanted::passive_receive(buffer, timeout)).map(Started::passive)
    }

    /// Lets whoever gets the descriptor read the first `length` bytes of a buffer, once. The buffer can be reached when this
    /// returns.
    ///
    /// # Errors
    /// As [`Machine::receive`].
    pub fn passive_send(
        &self,
        buffer: Buffer,
        length: usize,
        timeout: Option<Duration>,
    ) -> Result<(OpId, Descriptor), Refused> {
        self.start(Wanted::passive_send(buffer, length, timeout)).map(Started::passive)
    }

    /// Reads a peer's buffer, all that it sends. The event has ENODATA if a peer that runs nlx has no such buffer any more: the
    /// descriptor was used, or its buffer cancelled. Of a peer that runs LNet in the kernel that is known over RDMA
    /// alone, of reads that are longer than a message; others end at their timeout.
    ///
    /// # Errors
    /// As [`Machine::receive`]; EPERM if the peer's buffer receives, EFBIG if it sends more than fits, EINVAL for bytes
    /// that are no descriptor.
    pub fn active_receive(
        &self,
        buffer: Buffer,
        descriptor: &Descriptor,
        timeout: Option<Duration>,
    ) -> Result<OpId, Refused> {
        self.start(Wanted::active_receive(buffer, descriptor, timeout)).map(|started| started.op)
    }

    /// Writes the first `length` bytes of a buffer into a peer's buffer. Success means that they have arrived. The event has
    /// ENODATA if a peer that runs nlx has no such buffer any more; a peer that runs LNet in the kernel does not say so,
    /// and the write ends at its timeout.
    ///
    /// # Errors
    /// As [`Machine::receive`]; EPERM if the peer's buffer sends, EFBIG if it has room for less, EINVAL for bytes that
    /// are no descriptor.
    pub fn active_send(
        &self,
        buffer: Buffer,
        length: usize,
        descriptor: &Descriptor,
        timeout: Option<Duration>,
    ) -> Result<OpId, Refused> {
        self.start(Wanted::active_send(buffer, length, descriptor, timeout)).map(|started| started.op)
    }

    /// Asks for the end of an operation. Its last event still comes: with ECANCELED, or as it would have been if the
    /// operation won. False, without any effect, if the operation has had its last event already.
    pub fn cancel(&self, op: OpId) -> bool {
        if !self.domain.is_here() {
            return false;
        }
        if op.is_large() {
            return self.cancel_large(op);
        }
        self.cancel_if(op, |_| true)
    }

    /// Cancels an operation of the library's own, unless that has been done.
    pub(crate) fn cancel_part(&self, op: OpId) {
        self.cancel_if(op, |op| op.reason.is_none());
    }

    /// Asks for the end of an operation that is in flight and is as wanted.
    fn cancel_if(&self, op: OpId, wanted: impl FnOnce(&Op) -> bool) -> bool {
        let handle = {
            let mut inner = self.inner.lock();
            let State { operations, statistics, .. } = &mut *inner;
            let Some(found) = operations.find(op).filter(|found| wanted(found)) else { return false };
            found.reason.get_or_insert(Reason::Cancelled);
            statistics.of(found.queue).cancels += 1;
            found.buffer.handle()
        };
        // ENOENT means that the last event waits to be taken.
        let _ = self.tm.cancel(handle, op.cookie());
        true
    }

    /// A moment on the transport's clock.
    pub(crate) fn deadline(&self, timeout: Duration) -> u64 {
        after(self.domain.core().now_ns(), timeout)
    }
}

/// The moment this much later; never, if it is too far away to count.
pub(crate) fn after(now_ns: u64, timeout: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({}, {}, {} in flight)", self.address(), self.state(), self.in_flight())
    }
}
