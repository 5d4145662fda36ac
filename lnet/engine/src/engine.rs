use std::sync::{Arc, Weak};

use lnet_api::{
    Arrival, Distance, EqHandle, Errno, EventHandler, Get, LNet, LNetError, Lnd, LndError, Md, MdHandle,
    MeHandle, MeSpec, Polled, Put, RxToken, Sent, Sleeper, TxToken, Unlink, Upcalls, Verdict,
};
use lnet_nid::{Nid, Portal, ProcessId};
use lnet_region::WriteVec;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::config::EngineConfig;
use crate::counters::Counters;
use crate::ni::{NIS_MAX, Ni, Phase};
use crate::partition::Partition;
use crate::ping::{Ping, PingSource, PingTarget};
use crate::work::Work;

/// [`Engine::advance`] is to be called at least this often while there are NIs, in nanoseconds: LNet's monitor thread
/// wakes once a second too (lnet-semantics 16).
pub const ADVANCE_INTERVAL_NS: u64 = 1_000_000_000;

/// An LNet node; see the [crate's page](crate).
///
/// All methods may be called from any thread, but none from inside [`EventHandler::event`]. None blocks.
pub struct Engine {
    this: Weak<Engine>,
    state: Mutex<Partition>,
    /// Held while NIs come and go, which takes several steps.
    ni_change: Mutex<()>,
    ping_target: PingTarget,
    ping_source: PingSource,
}

impl Engine {
    /// A node that has no NI but `0@lo`, and answers pings.
    #[must_use]
    pub fn new(config: EngineConfig) -> Arc<Engine> {
        let engine = Arc::new_cyclic(|this: &Weak<Engine>| Engine {
            this: this.clone(),
            state: Mutex::new(Partition::new(config)),
            ni_change: Mutex::new(()),
            ping_target: PingTarget::new(this.clone()),
            ping_source: PingSource::default(),
        });
        engine.ping_target.start(&engine);
        engine
    }

    /// Adds an NI and has its LND start it; may be called while others carry traffic (S-202), but not from inside
    /// [`EventHandler::wake`]. Peers are told of it when they ping.
    ///
    /// # Errors
    /// What the LND says; EEXIST if there is such an NI, EINVAL if `id` names no interface, ENOMEM if there are too many.
    pub fn add_ni(&self, id: ProcessId, lnd: Arc<dyn Lnd>) -> Result<(), LNetError> {
        let _alone = self.ni_change.lock();
        if id.nid.is_any() || id.nid.is_loopback() {
            let rule = "it must name one interface of one network";
            return Err(LNetError::Invalid { field: "NID", value: u64::from(id.nid.net().id()), rule });
        }
        let upcalls = self.this.upgrade().ok_or(LNetError::ShuttingDown)?;
        let ni = {
            let mut state = self.state.lock();
            if state.nis.find(id.nid).is_some() {
                let what = format!("there is an NI {} already", id.nid);
                return Err(LndError { what, errno: Errno::EEXIST }.into());
            }
            let ni = state.nis.enter(Ni::new(id, lnd.clone()));
            ni.ok_or(LNetError::TooMany { objects: "NIs", limit: NIS_MAX })?
        };
        self.ping_target.publish(self);
        match lnd.startup(id, upcalls) {
            Ok(limits) => {
                self.with(|state, work| state.ni_started(ni, limits, work));
                tracing::info!(nid = %id.nid, "NI is up");
                Ok(())
            }
            Err(error) => {
                self.with(|state, work| state.ni_gone(ni, Errno::ENETDOWN, work));
                self.ping_target.publish(self);
                Err(error.into())
            }
        }
    }

    /// Stops an NI and forgets it (S-202). Its messages end with ESHUTDOWN. Any thread may call it that is not inside
    /// [`EventHandler::wake`]; see [`Lnd::shutdown`].
    ///
    /// # Errors
    /// EADDRNOTAVAIL if there is no such NI.
    pub fn remove_ni(&self, nid: Nid) -> Result<(), LNetError> {
        let _alone = self.ni_change.lock();
        let (ni, lnd) = self.with(|state, work| {
            let ni = state.nis.find(nid).ok_or(LNetError::NotLocal { nid })?;
            state.ni_stopping(ni, work);
            Ok::<_, LNetError>((ni, state.nis[ni].lnd.clone()))
        })?;
        self.ping_target.publish(self);
        lnd.shutdown(nid);
        self.with(|state, work| state.ni_gone(ni, Errno::ESHUTDOWN, work));
        tracing::info!(%nid, "NI is gone");
        Ok(())
    }

    /// Tells the time, in nanoseconds of the node's clock, and ends what is late. Gives when to call it again, at the
    /// latest; `None` if no NI is there.
    ///
    /// For the engine no time passes between two calls: a deadline that is set in between starts at the first of them,
    /// so it can be early by [`ADVANCE_INTERVAL_NS`] at the most.
    pub fn advance(&self, now_ns: u64) -> Option<u64> {
        self.with(|state, work| {
            state.now_ns = state.now_ns.max(now_ns);
            state.expire(work);
            let latest = state.nis.iter().next().map(|_| state.now_ns.saturating_add(ADVANCE_INTERVAL_NS));
            latest.map(|latest| state.next_deadline_ns().map_or(latest, |deadline| deadline.min(latest)))
        })
    }

    /// The node's counters.
    pub fn counters(&self) -> Counters {
        self.state.lock().counters()
    }

    /// Asks a node who it is (lnet-wire 15). `sleeper` is woken when the answer, or the reason why there is none, can be
    /// taken from the [`Ping`].
    ///
    /// # Errors
    /// As for [`LNet::get`].
    pub fn ping(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<dyn Sleeper>,
    ) -> Result<Ping, LNetError> {
        let engine = self.this.upgrade().ok_or(LNetError::ShuttingDown)?;
        Ping::start(engine, source, target, sleeper)
    }

    /// The primary NID of the node that `nid` belongs to, as far as that node has told; else `nid`.
    pub fn primary_nid(&self, nid: Nid) -> Nid {
        self.state.lock().identities.primary(nid)
    }

    pub(crate) fn pings(&self) -> &PingSource {
        &self.ping_source
    }

    /// Decides something under the lock, then does what follows from it.
    pub(crate) fn with<R>(&self, decide: impl FnOnce(&mut Partition, &mut Work) -> R) -> R {
        let mut work = Work::default();
        let result = decide(&mut self.state.lock(), &mut work);
        self.run(&mut work);
        result
    }

    /// Does what is to be done without the lock, until that causes nothing more. A loop, not a recursion: a message that
    /// fails at once lets the next one go, which may fail at once too.
    fn run(&self, work: &mut Work) {
        while !work.is_empty() {
            for resume in work.resumes.drain(..) {
                resume.lnd.resume(resume.rx, resume.delivery);
            }
            self.copy(work);
            self.send(work);
            for handler in work.wakes.drain(..) {
                handler.wake();
            }
            work.garbage.clear();
        }
    }

    fn copy(&self, work: &mut Work) {
        let mut done: SmallVec<[(TxToken, RxToken); 2]> = SmallVec::new();
        for copy in work.copies.drain(..) {
            if let (Some(from), Some(mut to)) = (copy.payload, copy.delivery.sink) {
                lnet_region::copy(&from, &mut to);
            }
            done.push((copy.tx, copy.delivery.token));
        }
        if !done.is_empty() {
            let mut state = self.state.lock();
            for (tx, rx) in done {
                state.finalize_tx(tx, Ok(()), work);
                state.finalize_rx(rx, Ok(()), work);
            }
        }
    }

    fn send(&self, work: &mut Work) {
        let mut done: SmallVec<[(TxToken, Result<(), Errno>); 4]> = SmallVec::new();
        for outgoing in work.sends.drain(..) {
            let token = outgoing.tx.token;
            if let Sent::Now(result) = outgoing.lnd.send(outgoing.tx) {
                done.push((token, result));
            }
        }
        if !done.is_empty() {
            let mut state = self.state.lock();
            for (token, result) in done {
                state.finalize_tx(token, result, work);
            }
        }
    }
}

impl LNet for Engine {
    fn eq_alloc(&self, handler: Arc<dyn EventHandler>) -> Result<EqHandle, LNetError> {
        self.state.lock().eq_alloc(handler)
    }

    fn eq_alloc_polled(&self, count: usize, _: Option<Arc<dyn EventHandler>>) -> Result<EqHandle, LNetError> {
        let rule = "this engine has no polled queues yet";
        Err(LNetError::Invalid { field: "count", value: count as u64, rule })
    }

    fn eq_poll(&self, _: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        Ok(None)
    }

    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError> {
        // The handler is dropped after the lock: what its drop does is its own business.
        let handler = self.state.lock().eq_free(eq);
        handler.map(drop)
    }

    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.state.lock().me_attach(me)
    }

    fn me_insert(&self, _: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        Err(LNetError::PortalType { portal: me.portal.get(), rule: "this engine inserts nothing yet" })
    }

    fn me_unlink(&self, me: MeHandle) -> Result<(), LNetError> {
        self.with(|state, work| state.me_unlink(me, work))
    }

    /// As [`LNet::md_attach`]; an entry that has an MD already keeps both, and its place.
    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        self.with(|state, work| state.md_attach(me, md, unlink, work))
    }

    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        self.state.lock().md_bind(md, unlink)
    }

    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        self.with(|state, work| state.md_unlink(md, work))
    }

    /// As [`LNet::put`]; also EBUSY while a message is being received into the MD's memory, and ENOMEM when a
    /// region has as many leases as it can have.
    fn put(&self, put: &Put) -> Result<(), LNetError> {
        self.with(|state, work| state.put(put, work))
    }

    fn get(&self, get: &Get) -> Result<(), LNetError> {
        self.with(|state, work| state.get(get, work))
    }

    fn set_lazy(&self, portal: Portal, lazy: bool) {
        self.with(|state, work| if lazy { state.set_lazy(portal) } else { state.clear_lazy(portal, work) });
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        let state = self.state.lock();
        let mut nis = state.nis.iter().zip(1..);
        let found = nis.find(|((_, ni), _)| ni.phase == Phase::Up && ni.id.nid.net() == nid.net());
        let ((_, ni), order) = found.ok_or(LNetError::NoRoute { nid })?;
        Ok(Distance { hops: u32::from(ni.id.nid != nid), order, source: ni.id.nid })
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        let state = self.state.lock();
        let loopback = ProcessId::new(Nid::LOOPBACK, state.config.pid);
        let nis = state.nis.iter().filter(|(_, ni)| ni.phase == Phase::Up).map(|(_, ni)| ni.id);
        std::iter::once(loopback).chain(nis).collect()
    }
}

impl Upcalls for Engine {
    fn partition_of(&self, _: Nid, _: Nid) -> usize {
        0
    }

    fn parse(&self, arrival: &Arrival<'_>) -> Verdict {
        self.with(|state, work| state.parse(arrival, work))
    }

    fn finalize_rx(&self, token: RxToken, result: Result<(), Errno>) {
        self.with(|state, work| state.finalize_rx(token, result, work));
    }

    fn finalize_tx(&self, token: TxToken, result: Result<(), Errno>) {
        self.with(|state, work| state.finalize_tx(token, result, work));
    }

    fn sink_of_get(&self, token: TxToken) -> Option<WriteVec> {
        self.state.lock().sink_of_get(token)
    }

    fn finalize_get(&self, token: TxToken, result: Result<u32, Errno>) {
        self.with(|state, work| state.finalize_get(token, result, work));
    }

    fn peer_lost(&self, ni: Nid, peer: ProcessId, reason: Errno) {
        self.with(|state, work| state.peer_lost(ni, peer, reason, work));
    }
}
