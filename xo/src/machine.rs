//! Transfer machines: their types, their addresses and counters, and their receive buffers.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use nlx_core::{Address, CoreTm, Errno, Queue};
use nlx_sync::deadline_after;
use parking_lot::Mutex;

use crate::domain::{CountedObject, DomainInner};
use crate::end_point::EndPoints;
use crate::large::{self, Larges};
use crate::operations::Operations;
use crate::provision::Provisioner;
use crate::quotas::LimitedObject;
use crate::thread::{Callbacks, is_event_thread};
use crate::waiters::MachineWaiters;
use crate::{Buffer, Colour, EndPoint, Error, OpId, QueueStatistics, Refused, TmEvent, TmState};

pub(crate) mod start;
pub(crate) mod stop;
mod wait;

/// A transfer machine: an address, and the operations in flight there. Dropping it stops the
/// machine with [`Stop::Abort`](crate::Stop::Abort); with callbacks, the drop waits until the last
/// callback has returned.
///
/// Three types give three sets of rights to one machine, so that a call that would be refused does
/// not compile:
///
/// | type | held by | can do |
/// | --- | --- | --- |
/// | [`Machine`] | callbacks and observers, by reference | start and cancel operations, stop the machine, read its counters |
/// | `TransferMachine` | the program | all that `Machine` can do, and take events: [`TransferMachine::wait`] |
/// | [`AsyncMachine`](crate::AsyncMachine) | the program | all that `Machine` can do, and await operations and messages |
///
/// A callback cannot wait for events, as they are delivered to it:
///
/// ```compile_fail,E0599
/// # use nlx::{Domain, NodeConfig};
/// # let domain = Domain::in_process(&NodeConfig::new())?;
/// domain.machine().callbacks(|machine, _| drop(machine.wait(None))).start("0@lo:12345:31:1")?;
/// # Ok::<(), nlx::Error>(())
/// ```
pub struct TransferMachine {
    machine: Arc<Machine>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TransferMachine {
    pub(crate) fn new(machine: Machine) -> TransferMachine {
        let machine = Arc::new_cyclic(|this| Machine { this: this.clone(), ..machine });
        TransferMachine { machine, thread: Mutex::default() }
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
            // A panic of a callback has been reported already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for TransferMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransferMachine({}, {}, {} in flight)", self.address(), self.state(), self.in_flight())
    }
}

/// The client's function that is called for events of the machine as a whole.
pub(crate) type Observer = Box<dyn Fn(&Machine, &TmEvent) + Send + Sync>;

/// The part of a transfer machine that callbacks see, and that its owners ([`TransferMachine`],
/// [`AsyncMachine`](crate::AsyncMachine)) share.
///
/// All methods take `&self` and may be called from any thread. If several threads wait, each event
/// goes to one of them.
pub struct Machine {
    /// The machine itself, for the owners of operations that it starts on the client's behalf.
    this: Weak<Machine>,
    tm: Box<dyn CoreTm>,
    domain: Arc<DomainInner>,
    end_points: EndPoints,
    own: EndPoint,
    operations: Operations,
    waiters: MachineWaiters,
    observer: Option<Observer>,
    /// The number of dropped messages that the observer has been called for.
    dropped_reported: AtomicU64,
    larges: Larges,
    /// With an event thread: whether its last callback has returned.
    callbacks: Option<Callbacks>,
    /// The source of its receive buffers.
    provisioner: Option<Provisioner>,
    _counted: CountedObject,
}

static_assertions::assert_impl_all!(TransferMachine: Send, Sync);

impl Machine {
    pub(crate) fn new(
        tm: Box<dyn CoreTm>,
        domain: Arc<DomainInner>,
        observer: Option<Observer>,
        callbacks: bool,
        counted: CountedObject,
    ) -> Machine {
        let end_points = EndPoints::default();
        let own = end_points.find(tm.address());
        Machine {
            this: Weak::new(),
            tm,
            domain,
            end_points,
            own,
            operations: Operations::new(),
            waiters: MachineWaiters::default(),
            observer,
            dropped_reported: AtomicU64::new(0),
            larges: Larges::new(large::WINDOW),
            callbacks: callbacks.then(Callbacks::default),
            provisioner: None,
            _counted: counted,
        }
    }

    /// Sets, before the start, the window of large transfers and the source of receive buffers.
    pub(crate) fn provision(&mut self, large_window: usize, provisioner: Option<Provisioner>) {
        self.larges = Larges::new(large_window);
        self.provisioner = provisioner;
    }

    /// Returns the machine's address, with the id that was assigned.
    pub fn address(&self) -> Address {
        self.tm.address()
    }

    /// Allocates a buffer, like [`Domain::allocate`](crate::Domain::allocate), near the processors
    /// on which this machine's events are produced. On a host with several NUMA nodes, and a node
    /// with several CPU partitions, in this process or in the helper, these are the processors of
    /// the machine's partition.
    ///
    /// # Errors
    /// The errors of [`Domain::allocate`](crate::Domain::allocate).
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, Error> {
        self.near(|| Buffer::allocate(self.domain.clone(), bytes))
    }

    /// Runs `work`, which allocates buffers or makes a pool larger; this memory lies near the
    /// processors on which this machine's events are produced, like that of
    /// [`Machine::allocate`](Self::allocate).
    ///
    /// ```
    /// use nlx::{Domain, NodeConfig, BufferPoolOptions};
    ///
    /// let domain = Domain::in_process(&NodeConfig::new())?;
    /// let tm = domain.machine().start("0@lo:12345:40:*")?;
    /// let pool = domain.pool(BufferPoolOptions::new(64 << 10))?;
    /// tm.near(|| pool.provision(8))?;
    /// # Ok::<(), nlx::Error>(())
    /// ```
    pub fn near<R>(&self, work: impl FnOnce() -> R) -> R {
        let (mut work, mut result) = (Some(work), None);
        self.tm.near(&mut || result = work.take().map(|work| work()));
        result.unwrap_or_else(|| unreachable!("a transport runs the work once"))
    }

    /// Binds the calling thread to the processors of the machine's CPU partition.
    pub(crate) fn bind_thread(&self) -> Result<(), Errno> {
        self.tm.bind_thread()
    }

    /// Returns the machine's end point: a message sent to it arrives at this machine.
    pub fn own_end_point(&self) -> &EndPoint {
        &self.own
    }

    /// Returns the end point of the peer at this address, `nid:pid:portal:tmid`. Two texts of one
    /// address give the same end point.
    ///
    /// # Errors
    /// EINVAL for a text that is not an address, `*` included (MT-70); ESHUTDOWN unless the
    /// transfer machine is started.
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
        let usage = self.domain.usage();
        if !usage.is_limited(LimitedObject::EndPoints) || self.end_points.is_used(address) {
            return Ok(());
        }
        usage.check(LimitedObject::EndPoints, self.end_points.in_use() as u64)
    }

    /// Returns the number of addresses whose end points are in use, including the machine's
    /// address.
    pub fn end_points(&self) -> usize {
        if self.domain.in_owner_process() { self.end_points.in_use() } else { 0 }
    }

    /// Returns the machine's state; [`TmState::Failed`] in a forked child.
    pub fn state(&self) -> TmState {
        self.operations_here().map_or(TmState::Failed, Operations::state)
    }

    /// Returns the number of operations whose last event the client has not taken.
    pub fn in_flight(&self) -> usize {
        self.operations_here().map_or(0, Operations::in_flight)
    }

    /// Returns the number of operations of one queue whose last event the client has not taken.
    pub fn posted(&self, queue: Queue) -> usize {
        self.operations_here().map_or(0, |operations| operations.posted(queue))
    }

    /// Returns the operations; `None` in a forked child.
    fn operations_here(&self) -> Option<&Operations> {
        self.domain.in_owner_process().then_some(&self.operations)
    }

    /// Returns the number of messages dropped since the machine started, because no receive buffer
    /// matched them (X13). The observer is called for them too ([`crate::TmEvent::NoBuffer`]).
    pub fn dropped_messages(&self) -> u64 {
        self.tm.dropped()
    }

    /// Returns the counters of each queue, at [`Queue::index`].
    pub fn statistics(&self) -> [QueueStatistics; Queue::COUNT] {
        self.operations_here().map(|operations| operations.statistics(false)).unwrap_or_default()
    }

    /// Returns the counters of each queue and resets them to 0, in one step.
    pub fn take_statistics(&self) -> [QueueStatistics; Queue::COUNT] {
        self.operations_here().map(|operations| operations.statistics(true)).unwrap_or_default()
    }

    /// Requests the end of an operation. Its last event still comes: with ECANCELED, or with the
    /// operation's result if that came first. Returns false, and does nothing, if the operation has
    /// had its last event already.
    pub fn cancel(&self, op: OpId) -> bool {
        if !self.domain.in_owner_process() {
            return false;
        }
        if op.is_large() {
            return self.cancel_large(op);
        }
        self.cancel_one(op, true)
    }

    /// Cancels an operation that the library started, unless it has been cancelled already.
    pub(crate) fn cancel_part(&self, op: OpId) {
        self.cancel_one(op, false);
    }

    fn cancel_one(&self, op: OpId, again: bool) -> bool {
        let Some(handle) = self.operations.cancel(op, again) else { return false };
        // ENOENT: the last event is in the queue.
        let _ = self.tm.cancel(handle, op.cookie());
        true
    }

    /// Joins the pool's waiters, and posts the first receive buffers.
    pub(crate) fn begin_provisioning(&self) {
        if let Some(provisioner) = &self.provisioner {
            let this = self.this.clone();
            provisioner.join(Arc::new(move || this.upgrade().inspect(|machine| machine.top_up()).is_some()));
            self.top_up();
        }
    }

    /// Posts the receive buffers that are missing, as far as the pool has them. Called without any
    /// lock.
    pub(crate) fn top_up(&self) {
        let Some(provisioner) = &self.provisioner else { return };
        let posted = provisioner.post(
            || self.posted(Queue::MessageReceive),
            |op| {
                self.start(op).inspect_err(|Refused { error, .. }| {
                    tracing::debug!(address = %self.address(), %error, "a receive buffer of a pool was refused");
                })
            },
        );
        let failures = provisioner.settle(posted);
        if failures > 0 {
            self.operations.count_failures(Queue::MessageReceive, failures);
        }
    }

    /// Sets the number of receive buffers to keep posted from the pool, and posts those that are
    /// missing before it returns; the rest is the [`Machine::deficit`]. Less than 2 counts as 2.
    /// Buffers that are posted already stay posted.
    ///
    /// # Errors
    /// [`Error::NoPool`] (EINVAL) without a pool.
    pub fn set_provision(&self, buffers: usize) -> Result<(), Error> {
        let provisioner = self.provisioner()?;
        provisioner.set_buffers(buffers);
        self.top_up();
        Ok(())
    }

    /// Returns the number of receive buffers that are missing because the pool had none; 0 without
    /// a pool. They are posted as soon as the pool has buffers. Each newly missing one counts as a
    /// failure in the statistics of [`Queue::MessageReceive`].
    pub fn deficit(&self) -> usize {
        self.provisioner.as_ref().map_or(0, Provisioner::deficit)
    }

    /// Returns the colour of the buffers that the machine takes from its pool.
    pub fn colour(&self) -> Colour {
        self.provisioner().map_or(Colour::Any, Provisioner::colour)
    }

    fn provisioner(&self) -> Result<&Provisioner, Error> {
        self.domain.check_here()?;
        self.provisioner.as_ref().ok_or(Error::NoPool)
    }

    /// Sets the colour of the buffers that the machine takes from its pool.
    ///
    /// # Errors
    /// [`Error::NoPool`] (EINVAL) without a pool, [`Error::Colour`] (EINVAL) for a colour that the
    /// pool does not have.
    pub fn set_colour(&self, colour: Colour) -> Result<(), Error> {
        self.provisioner()?.set_colour(colour)
    }

    /// Returns the large transfers in flight.
    pub(crate) fn larges(&self) -> &Larges {
        &self.larges
    }

    /// Returns a weak reference to the machine, for the owners of operations that it starts on the
    /// client's behalf.
    pub(crate) fn this(&self) -> &Weak<Machine> {
        &self.this
    }

    /// Returns whether an event thread takes its events.
    pub(crate) fn has_callbacks(&self) -> bool {
        self.callbacks.is_some()
    }

    pub(crate) fn domain(&self) -> &Arc<DomainInner> {
        &self.domain
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.domain.core().now_ns()
    }

    /// Returns a time on the transport's clock, `timeout` from now.
    pub(crate) fn deadline(&self, timeout: Duration) -> u64 {
        deadline_after(self.now_ns(), timeout)
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({}, {}, {} in flight)", self.address(), self.state(), self.in_flight())
    }
}
