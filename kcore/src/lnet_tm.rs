//! A transfer machine over LNet, without the consumer of its events.

use std::sync::Arc;

use lnet_api::{EqHandle, EventHandler, Handler};
use lnet_region::{ForkGuard, IoVec};
use nlx_bev_cqueue::Producer;
use nlx_core::{
    Address, BufferEvent, CoreError, Descriptor, DescriptorForm, MatchCounter, Operation, Portal,
    RandomCounters, RemoteTarget, StartAddress, usable_portal,
};
use nlx_fallible::{TryArc, WeakArc, unsize};
use nlx_sync::Mutex;

use crate::buffers::RegisteredBuffer;
use crate::event_sink::{EventSink, LossSink};
use crate::network::{SharedNetwork, no_memory, transport_error};
use crate::pending_teardown::PendingTeardown;
use crate::shared::TmShared;

/// Slots searched in one unit of work: searching one costs a sixteenth of cancelling an operation.
const SEARCHED_PER_UNIT: usize = 16;

/// Slots freed in one unit of work.
const FREED_PER_UNIT: usize = 4;

/// A transfer machine over LNet: its address, its event queue and its operations in flight. Its
/// events go to an [`EventSink`]. Dropping it cancels the operations in flight. If LNet still holds
/// some of them afterwards, the address and the event queue stay taken until the last event,
/// because a message for them may be on its way.
pub struct LnetTm<T: EventSink> {
    pub(crate) shared: TryArc<TmShared<T>>,
    pub(crate) network: Arc<SharedNetwork>,
    pub(crate) eq: EqHandle,
    /// The portal of this transfer machine, if the machine makes it lazy.
    lazy: Option<Portal>,
    /// Cleared when the transfer machine is stopped.
    open: Mutex<bool>,
    /// Detects a fork: the transfer machine belongs to the process that started it.
    fork_guard: ForkGuard,
    ending: Ending,
}

/// Progress of cancelling the operations in flight.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// All operations in slots below this one are cancelled.
    Cancelling(usize),
    /// All operations are cancelled; free slots are being freed.
    FreeingSlots,
    Over,
}

/// The side that chooses the match bits of passive buffers.
#[derive(Debug, Clone, Copy)]
pub enum Naming {
    /// The transfer machine chooses them, and describes the buffer in this form.
    Here(DescriptorForm),
    /// The client chooses them: this is their lower part. It describes the buffer itself.
    Client(MatchCounter),
}

impl<T: EventSink> LnetTm<T> {
    /// Starts a transfer machine: takes an address, and an event queue of LNet. `make_queue` makes
    /// the producer's half of the queue of buffer events, and the sink.
    ///
    /// # Errors
    /// EADDRINUSE or EADDRNOTAVAIL for the address, ENOMEM, and those of `make_queue`.
    pub fn start(
        network: &Arc<SharedNetwork>,
        wanted: &StartAddress,
        lazy: bool,
        random: Option<RandomCounters>,
        make_queue: impl FnOnce(&Address) -> Result<(Producer<BufferEvent, T::Memory>, TryArc<T>), CoreError>,
    ) -> Result<LnetTm<T>, CoreError> {
        let portal = usable_portal(wanted.portal)?;
        let address = network.node.registry.lock().take(wanted)?;
        let made = make_queue(&address).and_then(|(producer, sink)| {
            let shared = TmShared::new(address, network, producer, sink.clone(), random);
            let shared = TryArc::try_new(shared).map_err(no_memory)?;
            network.node.enter(address, unsize!(sink => dyn LossSink))?;
            let handler = Handler::Fallible(unsize!(shared.clone() => dyn EventHandler));
            let eq = network.lnet.eq_alloc_for(handler).map_err(|error| {
                network.node.leave(&address);
                transport_error("make an event queue")(error)
            })?;
            Ok((shared, eq))
        });
        match made {
            Ok((shared, eq)) => {
                let lazy = lazy.then_some(portal);
                if let Some(portal) = lazy {
                    network.node.want_lazy(&*network.lnet, portal);
                }
                let (network, open, fork_guard) = (network.clone(), Mutex::new(true), ForkGuard::here());
                Ok(LnetTm { shared, network, eq, lazy, open, fork_guard, ending: Ending::Cancelling(0) })
            }
            Err(error) => {
                network.give_back(&address);
                Err(error)
            }
        }
    }

    /// Returns the transfer machine's address.
    pub fn address(&self) -> Address {
        self.shared.address
    }

    /// Returns the destination of its events.
    pub fn sink(&self) -> &TryArc<T> {
        &self.shared.sink
    }

    /// Returns a handle to the parts that LNet may still use after the drop.
    pub fn leftover(&self) -> TmLeftover<T> {
        TmLeftover(TryArc::downgrade(&self.shared))
    }

    /// Returns whether the transfer machine belongs to this process.
    pub(crate) fn in_owner_process(&self) -> bool {
        self.fork_guard.in_owner_process()
    }

    /// Starts an operation that [fits](RegisteredBuffer::fit) its buffer and whose events have room. Returns
    /// the descriptor of a passive buffer whose match bits are chosen here.
    ///
    /// # Errors
    /// EBUSY if the buffer has an operation already, and LNet's refusals.
    pub fn begin(
        &self,
        operation: &Operation,
        buffer: TryArc<RegisteredBuffer>,
        (memory, remote): (IoVec, Option<RemoteTarget>),
        naming: Naming,
        started_ns: u64,
    ) -> Result<Option<Descriptor>, CoreError> {
        let (kind, events) = (&operation.kind, operation.kind.events_max());
        let length = memory.len() as u64;
        let (key, counter) = self.shared.enter(operation, buffer, naming, started_ns)?;
        self.shared.sink.entered(events);
        let descriptor = match naming {
            Naming::Here(form) => {
                Descriptor::of_operation(form, self.shared.address, (kind.queue(), counter), length)
                    .inspect_err(|_| {
                        self.shared.withdraw(key);
                    })?
            }
            Naming::Client(_) => None,
        };
        self.set_up(kind, remote, memory, (key, counter))?;
        Ok(descriptor)
    }

    /// Cancels the operation that this buffer has, if it carries this cookie.
    ///
    /// # Errors
    /// ENOENT if there is no such operation (any more).
    pub fn cancel(&self, buffer: &TryArc<RegisteredBuffer>, cookie: u64) -> Result<(), CoreError> {
        if let Some(md) = self.shared.cancel(buffer, cookie)? {
            // ENOENT means that the operation has ended first: its last event is on the way.
            let _ = self.shared.lnet.md_unlink(md);
        }
        Ok(())
    }

    /// Delivers an event that is not LNet's: that of a refused operation.
    pub fn deliver(&self, event: BufferEvent) {
        self.shared.deliver(event);
    }

    /// Refuses new operations, unless some are in flight. Returns whether they are refused.
    pub fn close_if_idle(&self) -> bool {
        self.shared.stop_if_idle()
    }

    /// Stops the transfer machine, if `close` finds no operation in flight and refuses new ones.
    /// Stopping it twice does nothing.
    ///
    /// # Errors
    /// Those of `close`, and EBUSY while LNet has not released the last MD.
    pub fn stop(&self, close: impl FnOnce() -> Result<(), CoreError>) -> Result<(), CoreError> {
        let mut open = self.open.lock();
        if !*open {
            return Ok(());
        }
        close()?;
        if let Err(error) = self.shared.lnet.eq_free(self.eq) {
            // LNet has not released the last MD yet; it will as soon as its event callback has
            // returned.
            self.shared.set_stopped(false);
            return Err(transport_error("free an event queue")(error));
        }
        *open = false;
        self.leave();
        self.network.give_back(&self.shared.address);
        Ok(())
    }

    /// Does a part of the work of a drop in use: cancels operations, whose clients get no more
    /// events. Returns the units of work used, `budget` at the most; fewer once all are cancelled.
    pub fn cancel_some(&mut self, budget: usize) -> usize {
        let mut units = 0;
        while units < budget {
            match &mut self.ending {
                Ending::Cancelling(at) => {
                    let (md, more) = self.shared.abandon_next(at, SEARCHED_PER_UNIT);
                    if let Some(md) = md {
                        // ENOENT means that the operation has ended first: its last event is on the
                        // way.
                        let _ = self.shared.lnet.md_unlink(md);
                    }
                    if !more {
                        self.ending = Ending::FreeingSlots;
                    }
                }
                Ending::FreeingSlots => {
                    if self.shared.free_unused(FREED_PER_UNIT) == 0 {
                        self.ending = Ending::Over;
                    }
                }
                Ending::Over => break,
            }
            units += 1;
        }
        units
    }

    /// Ends notifications about lost messages, and no longer keeps the machine's portal lazy.
    fn leave(&self) {
        let SharedNetwork { node, lnet, .. } = &*self.network;
        node.leave(&self.shared.address);
        if let Some(portal) = self.lazy {
            node.unwant_lazy(&**lnet, portal);
        }
    }
}

/// The parts of a transfer machine that LNet may still use: its event queue, and everything that
/// its callback touches.
pub struct TmLeftover<T: EventSink>(WeakArc<TmShared<T>>);

impl<T: EventSink> TmLeftover<T> {
    /// Returns whether LNet has released all of it, and the transfer machine is dropped.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl<T: EventSink> Drop for LnetTm<T> {
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            // In a forked child the machine belongs to the parent, as does everything that LNet has
            // of it.
            std::mem::forget((self.shared.clone(), self.network.clone()));
            return;
        }
        if !*self.open.get_mut() {
            return;
        }
        self.cancel_some(usize::MAX);
        self.leave();
        let address = self.shared.address;
        let cleared = self.shared.set_teardown(PendingTeardown::new(self.network.clone(), self.eq, address));
        if let Err(error) = cleared {
            tracing::debug!(%address, %error, "LNet still holds operations of a dropped transfer machine");
        }
    }
}
