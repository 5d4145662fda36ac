//! The transport over a transfer machine of the Core: for programs with LNet inside them, and for
//! clients of a helper, which link no LNet.
//!
//! | | over a transfer machine |
//! | --- | --- |
//! | endpoint | one: the address of the machine |
//! | request, and message ([`Transport::send`]) | a message of the machine; it carries no tag and no class |
//! | [`Transport::push`], [`Transport::pull`] | active bulk; the offer is the [`Descriptor`] |
//! | [`Transport::offer`] | passive bulk |
//! | posted memory | a receive buffer for several messages; one that is too long is lost, and counted in [`Machines::dropped`] |
//! | [`Driver::wait`] | [`CoreTm::event_wait`]: the waiting thread drives the network, or waits for the helper |
//!
//! A machine has one event queue, from which one thread at a time takes. So [`Machines`] is the
//! transport of **one partition**, and a service has one address. Its worker threads are bound to
//! the processors nearest to the machine's memory. A program that spreads its work over several
//! partitions starts a service on a separate pool and address for each.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use nlx_core::TmOptions;
//! use nlx_service::machines::Machines;
//! use nlx_service::{BufferOptions, Handler, Next, Pool, PoolOptions, Request, Service, Transport};
//!
//! /// Replies with the bytes of the request.
//! struct Echo;
//!
//! impl<T: Transport> Handler<T> for Echo {
//!     type State = ();
//!
//!     fn request(&self, request: Request<'_, T, ()>) -> Next<T::Offer, T::Memory> {
//!         let length = request.bytes.len();
//!         request.reply[..length].copy_from_slice(request.bytes);
//!         Next::Reply { tag: 0, length }
//!     }
//! }
//!
//! # let node = lnet_node::Node::start(&lnet_node::NodeConfig::new())?;
//! # let core = nlx_kcore::Kcore::new(node.lnet(), node.drive());
//! let machines = Machines::start(core, &"0@lo:12345:41:1".parse()?, &TmOptions::default())?;
//! let pool = Pool::start("echo", machines.clone(), 1, PoolOptions::default())?;
//! let service = Service::start(&pool, machines, BufferOptions::default(), Echo)?;
//! # service.end();
//! # Ok(())
//! # }
//! ```

use std::borrow::Borrow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use lnet_region::IoVec;
use nix::errno::Errno;
use nlx_core::{
    Address, BufferEvent, BufferHandle, Core, CoreError, CoreTm, Descriptor, Operation, OperationKind,
    StartAddress, TmOptions,
};
use nlx_sync::{Sleeper, SlotKey, Slots};
use parking_lot::Mutex;

use crate::transport::{Access, ArrivedMessage, Events, Place, Posting, Transport};
use crate::{Driver, ServiceError};

/// Events that are taken from the machine in one call, before the waiting thread looks for work.
const EVENTS_MAX: usize = 64;

/// Bits of a cookie that are the index of its operation; the generation is above.
const INDEX_BITS: u32 = 32;

/// The transport over a transfer machine, and the driver of its pool. Clones are the same machine,
/// which ends with the last one.
#[derive(Clone)]
pub struct Machines(Arc<MachineState>);

struct MachineState {
    tm: Box<dyn CoreTm>,
    core: Arc<dyn Core>,
    events: OnceLock<Arc<dyn Events<Address>>>,
    /// The operations in flight, by their cookies.
    operations: Mutex<Slots<InFlight>>,
    /// Held while events are delivered, so that those of an operation keep their order.
    inbox: Mutex<Box<[BufferEvent; EVENTS_MAX]>>,
}

/// An operation in flight.
struct InFlight {
    at: Place,
    is_posted: bool,
    /// Registered until the operation has ended.
    _memory: Registered,
}

/// Memory that is registered with the domain. It has one operation at a time.
#[derive(Debug, Clone)]
pub struct Registered(Arc<Registration>);

struct Registration {
    core: Arc<dyn Core>,
    memory: IoVec,
    handle: BufferHandle,
}

impl Machines {
    /// Starts a transfer machine for one service, or for one client.
    ///
    /// # Errors
    /// The errors of [`Core::tm_start`].
    pub fn start(
        core: Arc<dyn Core>,
        address: &StartAddress,
        options: &TmOptions,
    ) -> Result<Machines, ServiceError> {
        let tm = core.tm_start(address, options).map_err(|error| {
            ServiceError::system(format!("start a transfer machine at {address}: {error}"), error.errno())
        })?;
        let inbox = Mutex::new(Box::new([BufferEvent::ZERO; EVENTS_MAX]));
        let operations = Mutex::new(Slots::new(options.events_max as usize));
        Ok(Machines(Arc::new(MachineState { tm, core, events: OnceLock::new(), operations, inbox })))
    }

    /// Returns the address of the machine, and of its service.
    #[must_use]
    pub fn address(&self) -> Address {
        self.0.tm.address()
    }

    /// Returns the number of messages that were lost because no posted memory took them.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.tm.dropped()
    }

    /// Registers a program's memory. A helper does not reach memory that [`Transport::allocate`] has
    /// not returned: it is copied for each operation.
    ///
    /// # Errors
    /// The errors of [`Core::register_copying`].
    pub fn register(&self, memory: IoVec) -> Result<Registered, Errno> {
        let handle = self.0.core.register_copying(&memory).map_err(errno)?;
        Ok(Registered(Arc::new(Registration { core: self.0.core.clone(), memory, handle })))
    }

    fn begin(
        &self,
        at: Place,
        memory: Registered,
        kind: OperationKind,
    ) -> Result<(MachineOperation, Option<Descriptor>), Errno> {
        let buffer = memory.0.handle;
        let is_posted = matches!(kind, OperationKind::Receive { .. });
        // Entered first: the event may come before the machine returns.
        let entered = self.0.operations.lock().insert(InFlight { at, is_posted, _memory: memory });
        let key = entered.ok_or(Errno::ENOMEM)?;
        let operation = MachineOperation { buffer, cookie: key.to_bits(INDEX_BITS) };
        let submitted = self.0.tm.submit(&Operation { buffer, cookie: operation.cookie, kind });
        match submitted {
            Ok(submitted) => Ok((operation, submitted.descriptor)),
            Err(error) => {
                let refused = self.0.operations.lock().remove(key);
                // Memory is released without a lock.
                drop(refused);
                Err(errno(error))
            }
        }
    }

    /// Takes events of the machine and delivers them.
    fn deliver(&self) {
        let mut inbox = self.0.inbox.lock();
        let taken = self.0.tm.events_get(&mut inbox[..]).unwrap_or_else(|error| {
            tracing::error!(%error, "the events of a service are lost");
            0
        });
        for event in &inbox[..taken] {
            self.deliver_one(event);
        }
    }

    fn deliver_one(&self, event: &BufferEvent) {
        let key = SlotKey::from_bits(event.cookie, INDEX_BITS);
        let (at, is_posted, ended) = {
            let mut operations = self.0.operations.lock();
            let Some(&InFlight { at, is_posted, .. }) = operations.get(key) else { return };
            (at, is_posted, event.unlinked().then(|| operations.remove(key)))
        };
        // Release the memory before the owner learns of the end, and outside the lock.
        drop(ended);
        let Some(events) = self.0.events.get() else { return };
        let outcome = event.status().map(|()| event.length as usize);
        if !is_posted {
            return events.ended(at, outcome);
        }
        match (outcome, event.sender()) {
            (Ok(length), Some(from)) => {
                let offset = event.offset as usize;
                let (sent_length, urgent, crossed) = (length, false, false);
                events.arrived(at, ArrivedMessage { from, offset, length, sent_length, urgent, crossed });
            }
            (Ok(_), None) => tracing::debug!("a request has no sender to whom a reply could go"),
            (Err(_), _) => {}
        }
        if event.unlinked() {
            events.released(at);
        }
    }
}

/// An operation of a transfer machine in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineOperation {
    buffer: BufferHandle,
    cookie: u64,
}

impl Transport for Machines {
    type Peer = Address;
    type Memory = Registered;
    type Offer = Descriptor;
    type Operation = MachineOperation;

    fn open(&self, events: Arc<dyn Events<Address>>) -> Result<(), Errno> {
        // A machine has one receiver of events.
        self.0.events.set(events).map_err(|_| Errno::EBUSY)
    }

    fn close(&self) {}

    fn endpoints(&self) -> usize {
        1
    }

    fn allocate(&self, _: usize, bytes: usize) -> Result<Registered, Errno> {
        let mut allocated = None;
        self.0.tm.near(&mut || allocated = Some(self.0.core.allocate(bytes)));
        let region = allocated.unwrap_or_else(|| self.0.core.allocate(bytes)).map_err(errno)?;
        self.register(IoVec::whole(region))
    }

    fn post(&self, posting: Posting<'_, Registered>) -> Result<MachineOperation, Errno> {
        let kind = OperationKind::Receive {
            min_receive_size: posting.request_max as u64,
            max_messages: posting.requests,
        };
        self.begin(posting.at, posting.memory.clone(), kind).map(|(operation, _)| operation)
    }

    fn send(&self, at: Place, to: &Address, _: u64, memory: Registered, length: usize) -> Result<(), Errno> {
        check_length(&memory, length)?;
        let kind = OperationKind::Send { length: length as u64, to: *to };
        self.begin(at, memory, kind).map(drop)
    }

    fn push(
        &self,
        at: Place,
        _: &Address,
        offer: Descriptor,
        memory: Registered,
        length: usize,
    ) -> Result<Option<MachineOperation>, Errno> {
        check_length(&memory, length)?;
        let kind = OperationKind::ActiveSend { descriptor: offer, length: length as u64 };
        self.begin(at, memory, kind).map(|(operation, _)| Some(operation))
    }

    fn pull(
        &self,
        at: Place,
        _: &Address,
        offer: Descriptor,
        memory: Registered,
    ) -> Result<Option<MachineOperation>, Errno> {
        let kind = OperationKind::ActiveReceive { descriptor: offer };
        self.begin(at, memory, kind).map(|(operation, _)| Some(operation))
    }

    fn offer(
        &self,
        at: Place,
        memory: Registered,
        access: Access,
    ) -> Result<(MachineOperation, Descriptor), Errno> {
        let kind = match access {
            Access::Read { length } => {
                check_length(&memory, length)?;
                OperationKind::PassiveSend { length: length as u64 }
            }
            Access::Write => OperationKind::PassiveReceive,
        };
        let (operation, descriptor) = self.begin(at, memory, kind)?;
        Ok((operation, descriptor.unwrap_or(Descriptor::NONE)))
    }

    fn cancel(&self, operation: MachineOperation) {
        // ENOENT: it has ended.
        let _ = self.0.tm.cancel(operation.buffer, operation.cookie);
    }
}

impl Driver for Machines {
    fn now_ns(&self) -> u64 {
        self.0.core.now_ns()
    }

    fn wait(&self, _: &Arc<Sleeper>, deadline_ns: Option<u64>, ready: &mut dyn FnMut() -> bool) -> bool {
        loop {
            self.deliver();
            if ready() {
                return true;
            }
            let is_late = deadline_ns.is_some_and(|deadline_ns| self.now_ns() >= deadline_ns);
            if is_late || self.has_ended() {
                return false;
            }
            self.0.tm.event_wait(deadline_ns);
        }
    }

    fn wake(&self, sleeper: &Sleeper) {
        sleeper.wake();
        self.0.tm.wake();
    }

    /// Events that came before the end are delivered first; over a helper those of the operations
    /// that it has not ended, too.
    fn has_ended(&self) -> bool {
        self.0.tm.has_ended() && !self.0.tm.pending()
    }

    fn bind(&self, _: usize) {
        if let Err(errno) = self.0.tm.bind_thread() {
            tracing::warn!(%errno, "a worker thread is not bound to the processors of its transfer machine");
        }
    }
}

impl Registered {
    /// Returns the memory, to read and to write it while it is not in flight.
    #[must_use]
    pub fn memory(&self) -> &IoVec {
        &self.0.memory
    }
}

impl Borrow<IoVec> for Registered {
    fn borrow(&self) -> &IoVec {
        self.memory()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(error) = self.core.deregister(self.handle) {
            tracing::debug!(%error, "memory of a service stays registered until its domain ends");
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({:?}, {} bytes)", self.handle, self.memory.len())
    }
}

impl fmt::Debug for Machines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machines({})", self.address())
    }
}

fn check_length(memory: &Registered, length: usize) -> Result<(), Errno> {
    if length <= memory.0.memory.len() { Ok(()) } else { Err(Errno::EMSGSIZE) }
}

fn errno(error: CoreError) -> Errno {
    error.errno()
}
