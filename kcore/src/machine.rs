//! A transfer machine: starting operations, taking events, waiting, stopping.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use lnet_api::{Errno, EventLoopHandle, corked, wait_until};
use nlx_bev_cqueue::{Consumer, Heap};
use nlx_core::{
    Address, BufferEvent, BufferHandle, CoreError, CoreTm, DescriptorForm, EventRoom, Limits, Operation,
    Submitted, WakeUp, submit_in_room,
};
use nlx_sync::{Mutex, uncounted};

use crate::agreed::STOP;
use crate::kcore::DomainState;
use crate::lnet_tm::{LnetTm, Naming};
use crate::local_sink::{LocalSink, wait_without_sleeper};
use crate::ring::TmRing;
use crate::shared::TmShared;

/// A started transfer machine.
pub(crate) struct KcoreTm {
    lnet_tm: LnetTm<LocalSink>,
    domain: Arc<DomainState>,
    ring: Mutex<TmRing>,
    /// The form of the descriptors of its passive buffers.
    descriptors: DescriptorForm,
    /// [`CoreTm::wake`] was called, and no wait has consumed it yet.
    pub(crate) woken: WakeUp,
    /// Set once the ring of events was found corrupt: no event is taken and no operation starts any
    /// more.
    corrupt: OnceLock<CoreError>,
    /// Set once a program has requested a descriptor.
    loop_handle: OnceLock<EventLoopHandle>,
}

impl KcoreTm {
    pub(crate) fn new(
        domain: Arc<DomainState>,
        lnet_tm: LnetTm<LocalSink>,
        consumer: Consumer<BufferEvent, Heap>,
        descriptors: DescriptorForm,
    ) -> KcoreTm {
        KcoreTm {
            lnet_tm,
            domain,
            ring: Mutex::new(TmRing::new(consumer)),
            descriptors,
            woken: WakeUp::default(),
            corrupt: OnceLock::new(),
            loop_handle: OnceLock::new(),
        }
    }

    pub(crate) fn shared(&self) -> &TmShared<LocalSink> {
        &self.lnet_tm.shared
    }

    pub(crate) fn local_sink(&self) -> &LocalSink {
        &self.shared().sink
    }

    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn domain(&self) -> &DomainState {
        &self.domain
    }

    /// Returns the address of its ring's slots.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn slots_address(&self) -> usize {
        use nlx_bev_cqueue::QueueMemory;
        self.ring.lock().consumer.memory().slots().as_ptr().addr()
    }

    /// Returns the number of slots of its ring.
    #[cfg(test)]
    #[cfg(not(loom))]
    pub(crate) fn slots(&self) -> u32 {
        self.ring.lock().consumer.slots()
    }

    /// Starts an operation whose events have room.
    fn begin(&self, operation: &Operation, started_ns: u64) -> Result<Submitted, CoreError> {
        let DomainState { network, buffers } = &*self.domain;
        let buffer = buffers.find(operation.buffer)?;
        let fitted = buffer.fit(&operation.kind, &network.limits)?;
        let naming = Naming::Here(self.descriptors);
        let descriptor = self.lnet_tm.begin(operation, buffer, fitted, naming, started_ns)?;
        Ok(Submitted { descriptor })
    }

    /// Marks the ring as corrupt: this process has overwritten it. Waiters then return; otherwise
    /// they would search for ever for an event that the ring seems to hold.
    #[cold]
    fn mark_corrupt(&self, damage: impl fmt::Display) -> CoreError {
        let address = self.shared().address;
        let mark = || {
            tracing::error!(%address, %damage, "the event queue of a transfer machine is corrupt: its events are lost");
            CoreError::QueueCorrupt { address, reason: damage.to_string() }
        };
        self.corrupt.get_or_init(mark).clone()
    }

    fn is_corrupt(&self) -> bool {
        self.corrupt.get().is_some()
    }

    fn check_intact(&self) -> Result<(), CoreError> {
        self.corrupt.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns whether anything other than an event ends a wait. A wake-up and news end one wait
    /// each.
    fn is_woken(&self) -> bool {
        self.woken.take() || self.local_sink().take_news() || self.is_corrupt()
    }

    /// Returns the CPU partition in which its entries lie and its events are produced.
    fn home(&self) -> usize {
        self.lnet_tm.network.home(&self.shared().address)
    }

    /// Returns the descriptor on which a program's event loop sleeps.
    fn loop_handle(&self) -> Result<&EventLoopHandle, CoreError> {
        let loop_handle = match self.loop_handle.get() {
            Some(loop_handle) => loop_handle,
            None => {
                let made = EventLoopHandle::new().map_err(no_loop_handle)?;
                self.loop_handle.get_or_init(|| made)
            }
        };
        self.local_sink().waiters.set_event_loop(loop_handle.sleeper());
        Ok(loop_handle)
    }

    /// Releases room of events that will not come, or that have been taken. A number that exceeds
    /// the room in use comes from an event that this process has overwritten.
    fn release_in(&self, ring: &mut TmRing, events: u32) {
        match ring.release(events) {
            Ok(Some(slots)) => self.shared().shrink(&mut ring.consumer, slots),
            Ok(None) => {}
            Err(error) => drop(self.mark_corrupt(error)),
        }
    }

    /// Checks that the needed count covers every operation in flight, and that there is room for it
    /// (S-407, MT-212). Under the consumer's lock the reservation can only be lowered, by
    /// operations that end.
    ///
    /// Not checked in a model: the check takes the producer lock, and would order accesses that
    /// nothing else orders.
    fn invariant(&self, consumer: &Consumer<BufferEvent, Heap>) -> bool {
        cfg!(loom)
            || self.shared().reserved() <= consumer.needed() as usize
                && consumer.needed() <= consumer.capacity()
    }

    /// Refuses new operations, if none is in flight.
    fn close_for_operations(&self) -> Result<(), CoreError> {
        let ring = self.ring.lock();
        let needed = ring.consumer.needed() as usize;
        if needed > 0 {
            return Err(CoreError::TmBusy { address: self.shared().address, needed });
        }
        // SYNC kcore.stop
        let _ring = STOP.hold(&self.ring, ring);
        self.shared().set_stopped(true);
        Ok(())
    }
}

impl EventRoom for KcoreTm {
    fn provision(&self, events: u32) -> bool {
        self.ring.lock().provision(events).is_ok()
    }

    fn release(&self, events: u32) {
        self.release_in(&mut self.ring.lock(), events);
    }

    fn limit(&self) -> usize {
        self.ring.lock().consumer.max_slots() as usize - 1
    }

    fn limits(&self) -> &Limits {
        &self.domain.network.limits
    }
}

impl CoreTm for KcoreTm {
    fn address(&self) -> Address {
        self.shared().address
    }

    fn submit_all(
        &self,
        started_ns: Option<u64>,
        operations: &[Operation],
        outcome: &mut dyn FnMut(usize, Result<Submitted, CoreError>),
    ) {
        if let Err(error) = self.check_intact() {
            return (0..operations.len()).for_each(|at| outcome(at, Err(error.clone())));
        }
        let started_ns = started_ns.unwrap_or_else(|| self.shared().drive.now_ns());
        corked(|| submit_in_room(self, operations, |operation| self.begin(operation, started_ns), outcome));
        debug_assert!(uncounted(|| self.invariant(&self.ring.lock().consumer)));
    }

    fn cancel(&self, buffer: BufferHandle, cookie: u64) -> Result<(), CoreError> {
        self.lnet_tm.cancel(&self.domain.buffers.find(buffer)?, cookie)
    }

    fn events_get(&self, events: &mut [BufferEvent]) -> Result<usize, CoreError> {
        let mut ring = self.ring.lock();
        self.check_intact()?;
        let (mut taken, mut released) = (0, 0_u32);
        for (place, event) in events.iter_mut().zip(ring.consumer.drain(usize::MAX)) {
            *place = event;
            released = released.saturating_add(event.released);
            taken += 1;
        }
        if taken == 0 {
            // A corruption behind some events is reported after these events.
            return ring.consumer.corruption().map_or(Ok(0), |corruption| Err(self.mark_corrupt(corruption)));
        }
        self.release_in(&mut ring, released);
        debug_assert!(uncounted(|| self.invariant(&ring.consumer)));
        Ok(taken)
    }

    fn event_wait(&self, deadline_ns: Option<u64>) -> bool {
        let (drive, local_sink) = (&self.shared().drive, self.local_sink());
        let ready = || self.pending() || self.is_woken();
        match local_sink.waiters.sleeper() {
            Ok(sleeper) => wait_until(&**drive, sleeper, deadline_ns, ready),
            Err(_) => wait_without_sleeper(&**drive, deadline_ns, ready),
        };
        self.pending()
    }

    fn bind_thread(&self) -> Result<(), Errno> {
        self.shared().drive.bind_thread(Some(self.home()))
    }

    fn near(&self, allocate: &mut dyn FnMut()) {
        self.shared().drive.memory().near(self.home(), allocate);
    }

    fn has_ended(&self) -> bool {
        self.is_corrupt() || self.shared().drive.has_ended()
    }

    fn pending(&self) -> bool {
        !self.ring.lock().consumer.is_empty() && !self.is_corrupt()
    }

    fn poll(&self) {
        if let Some(loop_handle) = self.loop_handle.get() {
            loop_handle.disarm(&*self.shared().drive);
            self.local_sink().take_news();
        }
        self.shared().drive.poll_free_shards();
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>, CoreError> {
        Ok(self.loop_handle()?.fd())
    }

    fn arm(&self, deadline_ns: Option<u64>) -> Result<bool, CoreError> {
        let ready = || self.pending() || self.is_woken();
        self.loop_handle()?.arm(&*self.shared().drive, deadline_ns, ready).map_err(no_loop_handle)
    }

    fn wake(&self) {
        self.woken.ask();
        self.local_sink().waiters.wake();
    }

    fn dropped(&self) -> u64 {
        self.local_sink().dropped()
    }

    fn needed(&self) -> usize {
        self.ring.lock().consumer.needed() as usize
    }

    fn stop(&self) -> Result<(), CoreError> {
        self.lnet_tm.stop(|| self.close_for_operations())
    }
}

impl Drop for KcoreTm {
    fn drop(&mut self) {
        if !self.lnet_tm.in_owner_process() {
            // In a forked child the domain belongs to the parent.
            std::mem::forget(self.domain.clone());
        } else if let Some(loop_handle) = self.loop_handle.get() {
            loop_handle.disarm(&*self.shared().drive);
        }
    }
}

fn no_loop_handle(errno: Errno) -> CoreError {
    CoreError::system("make a descriptor to sleep on", errno)
}
