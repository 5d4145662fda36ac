//! A transfer machine over LNet: all of it but the place where its events go.

use std::sync::Arc;

use lnet_api::{EqHandle, EventHandler, Handler};
use lnet_region::{ForkGuard, IoVec};
use nlx_bev_cqueue::Producer;
use nlx_core::{
    Address, BufferEvent, CoreError, Descriptor, DescriptorForm, MatchCounter, Operation, Portal, Random,
    Remote, StartAddress, usable_portal,
};
use nlx_fallible::{TryArc, WeakArc, unsize};
use nlx_sync::Mutex;

use crate::buffers::Buffer;
use crate::event_sink::{EventSink, LossSink};
use crate::network::{Network, no_memory, transport_error};
use crate::remains::Remains;
use crate::shared::Shared;

/// Places of operations that are looked at in one unit of work: looking at one costs a sixteenth of cancelling one.
const LOOKS_PER_UNIT: usize = 16;

/// Places of operations that are freed in one unit of work.
const SHED_PER_UNIT: usize = 4;

/// A transfer machine over LNet: its address, its event queue and its operations in flight. Its events go to an
/// [`EventSink`]. Dropped in use, it cancels what is in flight; if LNet still holds some of it afterwards, the address and the event queue stay taken until its last event: a
/// message for them may be on its way.
pub struct LnetTm<T: EventSink> {
    pub(crate) shared: TryArc<Shared<T>>,
    pub(crate) network: Arc<Network>,
    pub(crate) eq: EqHandle,
    /// The portal that it wants lazy, if it does.
    lazy: Option<Portal>,
    /// Until the transfer machine is stopped.
    open: Mutex<bool>,
    /// The process that it runs in.
    fork_guard: ForkGuard,
    ending: Ending,
}

/// How far cancelling what is in flight has come.
#[derive(Debug, Clone, Copy)]
enum Ending {
    /// All operations in places below this one are cancelled.
    Cancelling(usize),
    /// All are cancelled; places that are free are being given up.
    Shedding,
    Over,
}

/// Who chooses the match bits of passive buffers.
#[derive(Debug, Clone, Copy)]
pub enum Naming {
    /// The transfer machine, which describes the buffer in this form.
    Here(DescriptorForm),
    /// The client: this is their lower part. It describes the buffer itself.
    Client(MatchCounter),
}

impl<T: EventSink> LnetTm<T> {
    /// Takes an address, and an event queue of LNet for it; `make_queue` makes the producer's half of its own queue and the sink.
    ///
    /// # Errors
    /// EADDRINUSE or EADDRNOTAVAIL for the address, ENOMEM, and those of `make_queue`.
    pub fn start(
        network: &Arc<Network>,
        wanted: &StartAddress,
        lazy: bool,
        random: Option<Random>,
        make_queue: impl FnOnce(&Address) -> Result<(Producer<BufferEvent, T::Memory>, TryArc<T>), CoreError>,
    ) -> Result<LnetTm<T>, CoreError> {
        let portal = usable_portal(wanted.portal)?;
        let address = network.node.registry.lock().take(wanted)?;
        let made = make_queue(&address).and_then(|(producer, sink)| {
            let shared = Shared::new(address, network, producer, sink.clone(), random);
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

    /// Its address.
    pub fn address(&self) -> Address {
        self.shared.address
    }

    /// Where its events go.
    pub fn sink(&self) -> &TryArc<T> {
        &self.shared.sink
    }

    /// What LNet may still have of it once it is dropped.
    pub fn leftover(&self) -> TmLeftover<T> {
        TmLeftover(TryArc::downgrade(&self.shared))
    }

    /// Whether this is the process that it runs in.
    pub(crate) fn in_owner_process(&self) -> bool {
        self.fork_guard.in_owner_process()
    }

    /// Starts an operation that [fits](Buffer::fit) its buffer, and whose events have room. Returns the descriptor of a passive buffer that is
    /// named here.
    ///
    /// # Errors
    /// EBUSY if the buffer has an operation already, and what LNet refuses.
    pub fn begin(
        &self,
        operation: &Operation,
        buffer: TryArc<Buffer>,
        (memory, remote): (IoVec, Option<Remote>),
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

    /// Asks for the end of the operation that this buffer has, if it carries this cookie.
    ///
    /// # Errors
    /// ENOENT if there is no such operation (any more).
    pub fn cancel(&self, buffer: &TryArc<Buffer>, cookie: u64) -> Result<(), CoreError> {
        if let Some(md) = self.shared.cancel(buffer, cookie)? {
            // ENOENT means that the operation has won: its last event is on the way.
            let _ = self.shared.lnet.md_unlink(md);
        }
        Ok(())
    }

    /// Gives the client an event that is not LNet's: of an operation that was refused.
    pub fn deliver(&self, event: BufferEvent) {
        self.shared.deliver(event);
    }

    /// Refuses operations from here on, unless some are in flight; returns whether it does.
    pub fn close_if_idle(&self) -> bool {
        self.shared.stop_if_idle()
    }

    /// Ends the transfer machine, if `close` finds that no operation is in flight, and lets none start any more. To do so
    /// twice does nothing.
    ///
    /// # Errors
    /// Those of `close`, and EBUSY while LNet has not let go of the last MD.
    pub fn stop(&self, close: impl FnOnce() -> Result<(), CoreError>) -> Result<(), CoreError> {
        let mut open = self.open.lock();
        if !*open {
            return Ok(());
        }
        close()?;
        if let Err(error) = self.shared.lnet.eq_free(self.eq) {
            // LNet has not let go of the last MD yet; it will as soon as its event callback has returned.
            self.shared.set_stopped(false);
            return Err(transport_error("free an event queue")(error));
        }
        *open = false;
        self.leave();
        self.network.give_back(&self.shared.address);
        Ok(())
    }

    /// Does a part of what dropping it in use does: cancels operations, whose clients hear no more of them. Gives the units of
    /// work that it took, `budget` at the most; fewer once all is cancelled.
    pub fn cancel_some(&mut self, budget: usize) -> usize {
        let mut units = 0;
        while units < budget {
            match &mut self.ending {
                Ending::Cancelling(at) => {
                    let (md, more) = self.shared.abandon_next(at, LOOKS_PER_UNIT);
                    if let Some(md) = md {
                        // ENOENT means that the operation has won: its last event is on the way.
                        let _ = self.shared.lnet.md_unlink(md);
                    }
                    if !more {
                        self.ending = Ending::Shedding;
                    }
                }
                Ending::Shedding => {
                    if self.shared.shed(SHED_PER_UNIT) == 0 {
                        self.ending = Ending::Over;
                    }
                }
                Ending::Over => break,
            }
            units += 1;
        }
        units
    }

    /// It hears of lost messages no more, and its portal is lazy only if others want that.
    fn leave(&self) {
        let Network { node, lnet, .. } = &*self.network;
        node.leave(&self.shared.address);
        if let Some(portal) = self.lazy {
            node.unwant_lazy(&**lnet, portal);
        }
    }
}

/// What LNet may still have of a transfer machine: its event queue, and whatever its callback touches.
pub struct TmLeftover<T: EventSink>(WeakArc<Shared<T>>);

impl<T: EventSink> TmLeftover<T> {
    /// Whether LNet has let go of all of it, and the transfer machine is dropped.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

impl<T: EventSink> Drop for LnetTm<T> {
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            // In a forked child: the machine is the parent's, and so is whatever LNet has of it.
            std::mem::forget((self.shared.clone(), self.network.clone()));
            return;
        }
        if !*self.open.get_mut() {
            return;
        }
        self.cancel_some(usize::MAX);
        self.leave();
        let address = self.shared.address;
        let cleared = self.shared.leave_behind(Remains::new(self.network.clone(), self.eq, address));
        if let Err(error) = cleared {
            tracing::debug!(%address, %error, "a transfer machine dropped in use");
        }
    }
}
