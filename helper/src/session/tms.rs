//! Transfer machines and their operations.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;

use lnet_nid::Nid;
use nlx_bev_cqueue::{Producer, SharedMemory};
use nlx_core::{
    Address, BufferEvent, BufferHandle, CoreError, Errno, MatchCounter, Operation, RemoteTarget,
    StartAddress, usable_portal,
};
use nlx_driver_proto::{Reason, Refusal, Reply, StartTm};
use nlx_fallible::TryArc;
use nlx_kcore::{LnetTm, Naming};
use nlx_sync::Bell;

use super::refusing::{no_descriptor, no_memory, no_queue, refusal_of, starved};
use super::{Attachment, ReplyPacket, Session, Violation};
use crate::accounts::{CHUNK, Charge, Resource};
use crate::client_sink::ClientSink;
use crate::costs::{QueueCharges, TmCharges};
use crate::counters::ClientCounters;
use crate::departed::SessionTeardown;
use crate::handle_table::HandleTable;
use crate::policy::{Nids, PortalSet};
use crate::shared_fds::SharedFd;
use crate::{ClientQuotas, Host};

/// The transfer machines of a client.
pub(super) struct Tms(HandleTable<Tm>);

pub(super) struct Tm {
    lnet_tm: LnetTm<ClientSink>,
    /// Limit of the events that the machine's operations may need together.
    events_max: u32,
    /// The client's end of the sockets on which an event loop sleeps, once it was requested; kept
    /// for further requests.
    loop_handle: Option<SharedFd>,
    /// The charge for the helper's end.
    loop_handle_charge: Option<Charge>,
    charges: TmCharges,
}

impl Tms {
    pub(super) fn new(quotas: &ClientQuotas) -> Tms {
        Tms(HandleTable::long(quotas.tms))
    }

    /// Checks that no event queue was full.
    pub(super) fn check(&self, counters: &ClientCounters) -> Result<(), Violation> {
        if !counters.broken.load(Relaxed) {
            return Ok(());
        }
        match self.0.iter().find(|tm| tm.sink().is_broken()) {
            Some(tm) => Err(Violation::EventQueue { address: tm.lnet_tm.address() }),
            // The transfer machine has been stopped since.
            None => Ok(()),
        }
    }

    /// Checks that no page of the event queues was lost.
    pub(super) fn check_memory(&self) -> Result<(), Violation> {
        self.0.iter().try_for_each(|tm| tm.sink().check())
    }

    /// Checks the seals of queues that were not sealed yet. Returns false once all are sealed.
    pub(super) fn check_seals(&self) -> bool {
        self.0.iter().filter(|tm| !tm.sink().is_open()).count() > 0
    }

    /// Sends the deferred signals to event loops.
    pub(super) fn send_deferred(&self, counters: &ClientCounters) {
        counters.signals.send_deferred(self.0.iter().map(|tm| || tm.sink().send_deferred()));
    }

    /// Removes a transfer machine, in use or not; no more can be started then.
    pub(super) fn pop(&mut self) -> Option<(u64, Tm)> {
        self.0.pop()
    }
}

impl Tm {
    /// Cancels operations within the budget ([`LnetTm::cancel_some`]).
    pub(super) fn cancel_some(&mut self, budget: usize) -> usize {
        self.lnet_tm.cancel_some(budget)
    }

    /// Drops the transfer machine, and adds its leftovers to the teardown.
    pub(super) fn release(self, teardown: &SessionTeardown) {
        let Tm { lnet_tm, charges, .. } = self;
        let leftover = lnet_tm.leftover();
        // Dropped before the check for leftovers.
        drop(lnet_tm);
        if !leftover.is_gone() {
            teardown.tms.lock().push((leftover, charges));
        }
    }

    fn sink(&self) -> &TryArc<ClientSink> {
        self.lnet_tm.sink()
    }
}

fn no_tm(tm: u64) -> Refusal {
    Refusal::of(Errno::ENOENT, Reason::NoTm, tm, 0)
}

/// Checks a portal and a NID against the policy.
fn check_rights(portals: PortalSet, nids: &Nids, portal: u32, nid: Nid) -> Result<(), Refusal> {
    if !portals.contains(portal) {
        return Err(Refusal::of(Errno::EPERM, Reason::Portal, portal.into(), 0));
    }
    if !nids.contains(nid) {
        return Err(Refusal::new(Errno::EPERM, Reason::Nid));
    }
    Ok(())
}

impl Session {
    pub(super) fn start_tm(&mut self, start: &StartTm, answer: &mut ReplyPacket) -> Result<Reply, Refusal> {
        let StartTm { address: wanted, events_max, lazy } = *start;
        self.check_start(&wanted, lazy)?;
        // The client has mapped the memory of its previous machine by now, so the seal check frees
        // one descriptor.
        self.tms.0.get(self.youngest_tm).map(|tm| tm.sink().is_open());
        self.tms.0.reserve().map_err(starved)?;
        self.record.tms.lock().try_reserve(1).map_err(starved)?;
        self.closing.teardown().reserve_tms(self.tms.0.len() + 1).map_err(starved)?;
        // One slot more than events: the ring's divider holds none.
        let events_max = events_max.clamp(1, self.quotas.events);
        let bytes = SharedMemory::size(events_max + 1).map_err(|error| no_queue(&error))? as u64;
        let Host { accounts, portal_shares, .. } = &*self.host;
        let id = portal_shares.take(accounts, self.payer.user, &wanted)?;
        let queue = QueueCharges::new(accounts, self.payer, bytes)?;
        let charges = TmCharges::new(accounts, self.payer, id, queue.clone())?;
        let (memory, fd) = SharedMemory::create(events_max + 1).map_err(|error| no_queue(&error))?;
        let producer = Producer::new(memory.clone()).map_err(|error| no_queue(&error))?;
        let seal = self.give_memory(fd, (memory.clone(), queue), answer)?;
        let (start, length) = memory.bytes();
        let sink =
            ClientSink::new(memory, seal, self.record.counters.clone()).map_err(|error| no_memory(&error))?;
        let sink = TryArc::try_new(sink).map_err(starved)?;
        let mut near = None;
        let lnet_tm = LnetTm::start(&self.host.network, &wanted, lazy, None, |address| {
            near = self.number_near(address);
            if let Some(near) = near {
                self.place(near, start, length);
            }
            Ok((producer, sink.clone()))
        });
        let lnet_tm = lnet_tm.map_err(|error| refusal_of(&error))?;
        let address = lnet_tm.address();
        let inserted = self.tms.0.insert(Tm {
            lnet_tm,
            events_max,
            loop_handle: None,
            loop_handle_charge: None,
            charges,
        });
        let tm = inserted.ok_or_else(|| self.too_many_tms())?;
        self.record.tms.lock().insert(tm, (address, sink));
        (self.awaits_seals, self.youngest_tm) = (true, tm);
        Ok(Reply::Started { tm, address, near })
    }

    /// Returns the number by which clients name memory near this transfer machine: that of its CPU
    /// partition, plus one. `None` where memory is not placed.
    fn number_near(&self, address: &Address) -> Option<NonZeroU32> {
        let network = &self.host.network;
        let home = network.drive().memory().is_placed().then(|| network.home(address))?;
        u32::try_from(home).ok().and_then(|home| NonZeroU32::new(home.saturating_add(1)))
    }

    /// Places memory that this process maps near the transfer machines of a number
    /// ([`Session::number_near`]). Without effect where the system refuses it, and for a number
    /// that is not a partition's: clients choose it.
    pub(super) fn place(&self, near: NonZeroU32, start: *const u8, bytes: usize) {
        let placement = self.host.network.drive().memory().place(near.get() as usize - 1, start, bytes);
        tracing::debug!(near, bytes, ?placement, "memory of a client");
    }

    fn too_many_tms(&self) -> Refusal {
        let limit = u64::from(self.quotas.tms);
        Refusal::of(Errno::ENOMEM, Reason::Tms, limit + 1, limit)
    }

    fn check_start(&self, wanted: &StartAddress, lazy: bool) -> Result<(), Refusal> {
        let refused = |error: CoreError| refusal_of(&error);
        usable_portal(wanted.portal).map_err(refused)?;
        if let Some(rights) = &self.rights {
            check_rights(rights.own_portals, &rights.own_nids, wanted.portal, wanted.nid)?;
            if lazy && !rights.lazy {
                return Err(Refusal::new(Errno::EPERM, Reason::Lazy));
            }
        }
        self.host.network.check_local(wanted).map_err(refused)?;
        if self.tms.0.is_full() { Err(self.too_many_tms()) } else { Ok(()) }
    }

    pub(super) fn stop_tm(&mut self, handle: u64) -> Result<Reply, Refusal> {
        let tm = self.tms.0.get(handle).ok_or(no_tm(handle))?;
        let close = || match tm.lnet_tm.close_if_idle() {
            true => Ok(()),
            false => {
                let needed = tm.sink().reserved.get() as usize;
                Err(CoreError::TmBusy { address: tm.lnet_tm.address(), needed })
            }
        };
        tm.lnet_tm.stop(close).map_err(|error| match refusal_of(&error) {
            // LNet has not released the last message yet.
            Refusal { errno: Errno::EBUSY, value, .. } => Refusal::of(Errno::EBUSY, Reason::TmBusy, value, 0),
            refusal => refusal,
        })?;
        self.record.tms.lock().remove(&handle);
        self.tms.0.remove(handle);
        Ok(Reply::Done)
    }

    /// Returns the socket of the machine's event loop. No data of the client ever waits in this
    /// socket pair: the client's end cannot send, so closing the helper's end closes nothing of the
    /// client.
    pub(super) fn tm_descriptor(&mut self, handle: u64, answer: &mut ReplyPacket) -> Result<Reply, Refusal> {
        let (accounts, payer) = (&self.host.accounts, self.payer);
        let tm = self.tms.0.get(handle).ok_or(no_tm(handle))?;
        if tm.loop_handle.is_none() {
            let charge = accounts.charge(payer, Resource::Descriptors, 1)?;
            let (ours, theirs) = Bell::socket_pair().map_err(no_descriptor)?;
            let theirs = self.share(theirs.into())?;
            let tm = self.tms.0.get_mut(handle).ok_or(no_tm(handle))?;
            tm.lnet_tm.sink().set_loop_handle(ours);
            (tm.loop_handle, tm.loop_handle_charge) = (Some(theirs), Some(charge));
        }
        let theirs = self.tms.0.get(handle).and_then(|tm| tm.loop_handle.as_ref());
        answer.reserve_fds(1)?;
        answer.fds.extend(theirs.cloned().map(Attachment::from));
        Ok(Reply::Done)
    }

    /// Starts an operation, or refuses it with its last event.
    pub(super) fn operate(&mut self, tm: u64, operation: &Operation, counter: MatchCounter, started_ns: u64) {
        if self.tms.0.get(tm).is_some_and(|tm| !tm.sink().is_open()) {
            // There is no queue for an event.
            return self.count(&Refusal::new(Errno::EPERM, Reason::Unsealed));
        }
        let charged = self.charge_operation(tm);
        let Some(tm) = self.tms.0.get(tm) else {
            // There is no queue for an event.
            return self.count(&no_tm(tm));
        };
        let begun = charged.and_then(|()| self.begin(tm, operation, counter, started_ns));
        if let Err(refusal) = begun {
            self.count(&refusal);
            let Operation { buffer, cookie, kind } = operation;
            tm.lnet_tm.deliver(BufferEvent::failed(*buffer, *cookie, kind.events_max(), refusal.errno));
        }
    }

    fn begin(
        &self,
        tm: &Tm,
        operation: &Operation,
        counter: MatchCounter,
        started_ns: u64,
    ) -> Result<(), Refusal> {
        let refused = |error: CoreError| refusal_of(&error);
        let buffer = self.buffers.find(operation.buffer).map_err(refused)?.clone();
        let fitted = buffer.fit(&operation.kind, self.host.network.limits()).map_err(refused)?;
        if let (_, Some(remote)) = &fitted {
            self.check_target(remote)?;
        }
        self.check_quotas(tm, operation)?;
        let naming = Naming::Client(counter);
        tm.lnet_tm.begin(operation, buffer, fitted, naming, started_ns).map(drop).map_err(refused)
    }

    /// Charges the user for a further operation, in chunks: the operations in flight, and the
    /// tables of the transfer machine, which keep their largest size.
    fn charge_operation(&mut self, tm: u64) -> Result<(), Refusal> {
        let in_flight = self.record.counters.operations.get();
        let (Some(charges), Some(tm)) = (&mut self.charges, self.tms.0.get_mut(tm)) else { return Ok(()) };
        charges.operations.cover(in_flight + 1, CHUNK)?;
        let own = tm.sink().operations.get();
        tm.charges.cover_operations(own + 1)
    }

    fn check_target(&self, remote: &RemoteTarget) -> Result<(), Refusal> {
        match &self.rights {
            Some(rights) => {
                check_rights(rights.portals, &rights.nids, remote.portal.get(), remote.address.nid)
            }
            None => Err(Refusal::new(Errno::EPERM, Reason::Nid)),
        }
    }

    /// Checks the quotas. LNet's threads may only lower the counts meanwhile, which makes room.
    fn check_quotas(&self, tm: &Tm, operation: &Operation) -> Result<(), Refusal> {
        let in_flight = self.record.counters.operations.get();
        if in_flight >= self.quotas.operations.into() {
            let limit = self.quotas.operations.into();
            return Err(Refusal::of(Errno::ENOMEM, Reason::Operations, in_flight + 1, limit));
        }
        let events = tm.sink().reserved.get() + u64::from(operation.kind.events_max());
        if events > tm.events_max.into() {
            return Err(Refusal::of(Errno::ENOMEM, Reason::Operations, events, tm.events_max.into()));
        }
        Ok(())
    }

    /// Cancels an operation. One that is over already, or unknown, is ignored.
    pub(super) fn cancel(&mut self, tm: u64, buffer: BufferHandle, cookie: u64) {
        if let (Some(tm), Ok(buffer)) = (self.tms.0.get(tm), self.buffers.find(buffer)) {
            let _ = tm.lnet_tm.cancel(buffer, cookie);
        }
    }
}
