//! Starting transfer machines.

use nix::sched::CpuSet;
use nlx_core::{Errno, StartAddress, TmOptions};

use crate::domain::CountedObject;
use crate::large;
use crate::machine::Observer;
use crate::provision::Provisioner;
use crate::quotas::LimitedObject;
use crate::thread::{self, Callback};
use crate::{BufferPool, Domain, Error, Event, Machine, Provision, TmEvent, TmState, TransferMachine};

/// A transfer machine that has not been started: Motr's state INITIALIZED (motr-transport 2.3.1).
/// See [`Domain::machine`].
///
/// ```
/// use std::sync::mpsc;
/// use nlx::{Domain, NodeConfig, Op};
///
/// let domain = Domain::in_process(&NodeConfig::new())?;
/// let (events, arrived) = mpsc::channel();
/// // The event thread, on the first processor, drives the network and calls the callback.
/// let tm = domain
///     .machine()
///     .confine(&[0])
///     .callbacks(move |_, event| drop(events.send(event)))
///     .start("0@lo:12345:31:1")?;
/// tm.start(Op::receive(domain.allocate(64)?))?;
/// tm.start(Op::send(domain.allocate(5)?, tm.own_end_point()))?;
/// let lengths = [arrived.recv()?.length, arrived.recv()?.length];
/// assert_eq!(lengths, [5, 5]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it starts with `start`"]
pub struct MachineBuilder<'a> {
    domain: &'a Domain,
    options: TmOptions,
    observer: Option<Observer>,
    callback: Option<Callback>,
    confined: Option<Vec<usize>>,
    pool: Option<(BufferPool, Provision)>,
    large_window: usize,
}

impl Domain {
    /// Starts a transfer machine without callbacks: a short form of [`Domain::machine`].
    ///
    /// # Errors
    /// The errors of [`MachineBuilder::start`].
    pub fn transfer_machine(&self, address: &str, options: TmOptions) -> Result<TransferMachine, Error> {
        self.machine().options(options).start(address)
    }

    /// Returns a builder of a transfer machine, which sets callbacks, an observer and more before
    /// the start.
    pub fn machine(&self) -> MachineBuilder<'_> {
        MachineBuilder::new(self)
    }
}

impl<'a> MachineBuilder<'a> {
    pub(crate) fn new(domain: &'a Domain) -> MachineBuilder<'a> {
        MachineBuilder {
            domain,
            options: TmOptions::default(),
            observer: None,
            callback: None,
            confined: None,
            pool: None,
            large_window: large::WINDOW,
        }
    }

    /// Sets the options of the transport.
    pub fn options(mut self, options: TmOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets an observer, which is called when the machine's state changes, and for messages that
    /// found no buffer. The thread that takes events at the time calls it, without any lock: a
    /// waiting thread, the event thread, or a thread that starts or stops the machine. It may start
    /// operations, and should return soon. If it panics, the machine fails.
    pub fn observer(mut self, observer: impl Fn(&Machine, &TmEvent) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Adds an event thread that calls `callback` for each event (Motr's automatic delivery). Like
    /// any other waiter, the thread drives the network while it waits for events.
    ///
    /// On a node in this process, the thread runs on the processors of the CPU partition in which
    /// the machine's events are produced; so do threads that a callback starts.
    /// [`MachineBuilder::confine`] names other processors. If the node has one partition of all
    /// processors (`cpu_npartitions=1`), and over a helper, the thread runs on any processor.
    ///
    /// The callback may start and cancel operations, and stop the machine. While it runs, no other
    /// event and no timeout of this machine is handled (X15). If it panics, the machine fails:
    /// operations in flight are cancelled, their buffers are dropped, and the address becomes free.
    pub fn callbacks(mut self, callback: impl FnMut(&Machine, Event) + Send + 'static) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    /// Confines the event thread to these processors, by number (S-416), instead of those of its
    /// CPU partition. The last call applies.
    pub fn confine(mut self, processors: &[usize]) -> Self {
        self.confined = Some(processors.to_vec());
        self
    }

    /// Sets the number of parts of 1 MiB that may be in flight of each active transfer of a
    /// [large](crate::Buffer) buffer; at least 1. The default is 8: the number of messages that
    /// LNet sends to a peer before the first is answered.
    pub fn large_window(mut self, parts: usize) -> Self {
        self.large_window = parts;
        self
    }

    /// Takes receive buffers from a pool (Motr's automatic provisioning). [`Provision::buffers`] of
    /// them are posted before the observer is called for the start of the machine. Whenever one
    /// ends, another is posted before the client gets the last event. If the pool is empty, missing
    /// buffers are posted when one is returned to it. The events are those of other receive
    /// buffers, and a buffer that the client drops goes back to the pool.
    ///
    /// A message that the client holds keeps its buffer out of the pool: size the pool for the
    /// buffers that its machines keep posted plus those of held messages.
    ///
    /// ```
    /// use nlx::{Colour, Domain, NodeConfig, BufferPoolOptions, Provision};
    ///
    /// let domain = Domain::in_process(&NodeConfig::new())?;
    /// let pool = domain.pool(BufferPoolOptions::new(64 << 10).colours(1))?;
    /// pool.provision(4)?;
    /// let colour = Colour::Of(0);
    /// let provision = Provision { min_receive_size: 4096, max_messages: 16, buffers: 2, colour };
    /// let tm = domain.machine().pool(&pool, provision).start("0@lo:12345:31:1")?;
    /// assert_eq!(pool.counts().free, 2);
    /// # Ok::<(), nlx::Error>(())
    /// ```
    pub fn pool(mut self, pool: &BufferPool, provision: Provision) -> Self {
        self.pool = Some((pool.clone(), provision));
        self
    }

    /// Starts the machine at this address: `nid:pid:portal:tmid`. `*` as the last part selects the
    /// highest free id (S-404). The machine has started when this returns; the call does not wait
    /// for the network.
    ///
    /// # Errors
    /// EINVAL for a text that is not an address, a portal other than 1 to 63, processors that do
    /// not exist or without an event thread, a pool of another domain or whose buffers do not fit
    /// the provision; EFBIG for a pool of large buffers; ENOENT for a NID or PID that is not this
    /// node's; EADDRINUSE; EADDRNOTAVAIL if no id is free; ENOMEM; EAGAIN if the system starts no
    /// thread. If the machine fails after it has started at the transport, the observer is called
    /// once.
    pub fn start(self, address: &str) -> Result<TransferMachine, Error> {
        self.domain.inner().check_here()?;
        let address: StartAddress = address.parse()?;
        let processors = self.confined.as_deref().map(processors).transpose()?;
        if processors.is_some() && self.callback.is_none() {
            return Err(Error::ConfineWithoutThread);
        }
        let provisioner = |(pool, provision)| Provisioner::new(self.domain, &pool, provision);
        let provisioner = self.pool.map(provisioner).transpose()?;
        let inner = self.domain.inner();
        let counted = CountedObject::one(inner, LimitedObject::Machines)?;
        let tm = inner.core().tm_start(&address, &self.options)?;
        let mut machine = Machine::new(tm, inner.clone(), self.observer, self.callback.is_some(), counted);
        machine.provision(self.large_window, provisioner);
        let owner = TransferMachine::new(machine);
        if let Some(callback) = self.callback {
            match thread::spawn(owner.machine(), callback, processors) {
                Ok(thread) => owner.has_thread(thread),
                Err(error) => {
                    owner.fail_to_start(error.errno());
                    return Err(error);
                }
            }
        }
        owner.machine().begin_provisioning();
        owner.report_state(TmState::Started, Ok(()));
        Ok(owner)
    }
}

fn processors(numbers: &[usize]) -> Result<CpuSet, Error> {
    let mut set = CpuSet::new();
    for &number in numbers {
        set.set(number).map_err(|errno| Error::Confine { processors: numbers.to_vec(), errno })?;
    }
    match numbers {
        [] => Err(Error::Confine { processors: Vec::new(), errno: Errno::EINVAL }),
        _ => Ok(set),
    }
}

impl std::fmt::Debug for MachineBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineBuilder")
            .field("options", &self.options)
            .field("confined", &self.confined)
            .field("callbacks", &self.callback.is_some())
            .finish_non_exhaustive()
    }
}
