use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use lnet_api::{
    Arrival, Distance, DropWatcher, EQ_COUNT_MAX, EqHandle, Errno, EventHandler, Get, Handler, LNet,
    LNetError, Md, MdHandle, MeHandle, MeSpec, Polled, Put, RxToken, Sleeper, TxToken, Unlink, Upcalls,
    Verdict,
};
use lnet_cpt::PercptLock;
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_proto::ping::SINK_LENGTH;
use lnet_proto::{PING_PORTAL, WireHandle};
use lnet_region::{IoVec, WriteVec};
use parking_lot::Mutex;

use crate::common::Common;
use crate::config::{ADVANCE_INTERVAL_NS, EngineConfig};
use crate::counters::{Counters, NiStatistics, PeerStatistics, Traffic};
use crate::drops::{RECENT_DROPS, RecentDrop};
use crate::event_queue::{EqWatch, EventQueue};
use crate::faults::Faults;
use crate::names::{PARTITIONS_MAX, Place};
use crate::net::{Net, NetShared};
use crate::ping::{Ping, PingSource, PingTarget, Push, PushBacks};
use crate::portal_state::PortalState;
use crate::resources::Resources;
use crate::wake;
use crate::work::{Ended, Work};

/// An LNet node; see the [crate's page](crate).
///
/// All methods may be called from any thread, but none from inside [`EventHandler::event`]. None blocks.
pub struct Engine {
    this: Weak<Engine>,
    pub(crate) common: Common,
    /// MEs and the MDs attached to them.
    pub(crate) posted: PercptLock<Resources, ()>,
    /// MDs bound for PUTs and GETs.
    pub(crate) bound: PercptLock<Resources, ()>,
    /// Peers, credits and NIs (`LNET_NET_LOCK`, S-307).
    pub(crate) net: PercptLock<Net, NetShared>,
    pub(crate) portals: Box<[PortalState]>,
    /// Held while NIs come and go, which takes several steps.
    pub(crate) ni_change: Mutex<()>,
    pub(crate) ping_target: PingTarget,
    ping_source: PingSource,
    pub(crate) push_backs: PushBacks,
    pub(crate) faults: Faults,
    pub(crate) watcher: OnceLock<Arc<dyn DropWatcher>>,
    /// NIs, `0@lo` not counted.
    pub(crate) ni_count: AtomicUsize,
}

impl Engine {
    /// A node that has no NI but `0@lo`, and answers pings. Of a table of more than [`PARTITIONS_MAX`] partitions it
    /// uses that many.
    #[must_use]
    pub fn new(config: EngineConfig) -> Arc<Engine> {
        let interface_cookie = WireHandle::unmarked(config.interface_cookie);
        let config = EngineConfig { interface_cookie, ..config };
        let partitions = config.partitions.partitions().clamp(1, PARTITIONS_MAX);
        let common = Common::new(config, partitions);
        let resources = |bound| {
            PercptLock::with_partitions(
                partitions,
                |partition| Resources::new(&common, Place { bound, partition }),
                (),
            )
        };
        let shared = NetShared::new(common.config.limits.known_nodes);
        let delayed = common.config.limits.delayed;
        let (posted, bound) = (resources(false), resources(true));
        let net = PercptLock::with_partitions(partitions, |partition| Net::new(&common, partition), shared);
        let engine = Arc::new_cyclic(|this: &Weak<Engine>| Engine {
            this: this.clone(),
            posted,
            bound,
            net,
            portals: (0..Portal::COUNT).map(|_| PortalState::new(delayed)).collect(),
            ni_change: Mutex::new(()),
            ping_target: PingTarget::new(this.clone()),
            ping_source: PingSource::default(),
            push_backs: PushBacks::default(),
            faults: Faults::new(common.config.limits.held),
            watcher: OnceLock::new(),
            ni_count: AtomicUsize::new(0),
            common,
        });
        engine.ping_target.start(&engine);
        engine
    }

    /// Tells the time, in nanoseconds of the node's clock, and ends what is late. Gives when to call it again, at the
    /// latest; `None` if no NI is there.
    ///
    /// For the engine no time passes between two calls: a deadline that is set in between starts at the first of them,
    /// so it can be early by [`ADVANCE_INTERVAL_NS`] at the most. It takes no lock unless something is late.
    pub fn advance(&self, now_ns: u64) -> Option<u64> {
        let now_ns = self.common.advance(now_ns);
        let mut next = u64::MAX;
        for partition in 0..self.common.partitions() {
            if self.common.deadline_ns(partition) <= now_ns {
                self.expire(partition, now_ns);
            }
            next = next.min(self.common.deadline_ns(partition));
        }
        if self.held_until_ns() <= now_ns {
            self.release_held(now_ns);
        }
        next = next.min(self.held_until_ns());
        let latest = now_ns.saturating_add(ADVANCE_INTERVAL_NS);
        self.has_time().then(|| next.min(latest))
    }

    /// Whether somebody tells the time: a node without NIs needs none.
    pub(crate) fn has_time(&self) -> bool {
        self.ni_count.load(Ordering::Relaxed) > 0
    }

    /// The node's counters.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for partition in 0..self.common.partitions() {
            counters += self.posted.lock(partition).counters();
            counters += self.bound.lock(partition).counters();
            counters += self.net.lock(partition).counters();
        }
        counters.msgs_alloc += self.held() as u64;
        counters.msgs_alloc += self.portals.iter().map(|portal| portal.delayed() as u64).sum::<u64>();
        counters
    }

    /// The messages that were dropped last, the newest first: at most [`RECENT_DROPS`].
    pub fn recent_drops(&self) -> Vec<RecentDrop> {
        let now_ns = self.common.now_ns();
        let mut all = Vec::new();
        for partition in 0..self.common.partitions() {
            all.extend(self.net.lock(partition).recent_drops(now_ns));
        }
        all.sort_by_key(|drop| drop.age_ns);
        all.truncate(RECENT_DROPS);
        all
    }

    /// Messages that wait on a lazy portal for a buffer (S-310).
    pub fn waiting(&self, portal: Portal) -> usize {
        self.portals[portal.index()].delayed()
    }

    /// Messages that are on their way out, those that wait for credits or a connection among them.
    pub fn sending(&self) -> usize {
        (0..self.common.partitions()).map(|partition| self.net.lock(partition).sending()).sum()
    }

    /// Whether a peer that this node has pushed to may still push back, and wait for an ACK that a node which is gone
    /// does not send (lnet-wire 17, measured). Once it has pushed it is not waited for any more: the ACK is on its way out.
    pub fn awaits_push_back(&self, now_ns: u64) -> bool {
        self.push_backs.awaited(now_ns)
    }

    /// When the last peer that this node has pushed to will not push back any more, see [`PUSH_BACK_NS`](crate::PUSH_BACK_NS);
    /// 0 if there was none.
    pub fn push_backs_end_ns(&self) -> u64 {
        self.push_backs.until_ns()
    }

    /// What went over an NI, `0@lo` included, and its credits; `None` if there is no such NI.
    pub fn ni_statistics(&self, nid: Nid) -> Option<NiStatistics> {
        let mut all = NiStatistics {
            nid,
            up: true,
            traffic: Traffic::default(),
            credits: 0,
            available_tx_credits: 0,
            min_tx_credits: 0,
            held_back: 0,
        };
        for partition in 0..self.common.partitions() {
            let net = self.net.lock(partition);
            net.add_ni_statistics(net.shared(), nid, &mut all)?;
        }
        all.traffic.settle();
        Some(all)
    }

    /// The peers, each as often as there are NIs (and connections of unprivileged programs) over which it is known.
    pub fn peer_statistics(&self) -> Vec<PeerStatistics> {
        let mut all = Vec::new();
        for partition in 0..self.common.partitions() {
            all.extend(self.net.lock(partition).peer_statistics());
        }
        all
    }

    /// Asks a node who it is (lnet-wire 15), for [`SINK_LENGTH`] bytes. `sleeper` is woken when the answer, or the reason why there is none, can be
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
        self.ping_asking(source, target, sleeper, SINK_LENGTH as usize)
    }

    /// As [`Engine::ping`], asking for so many bytes: the kernel's discovery begins with 272 (lnet-wire 15). If the answer
    /// is longer, [`Ping::needs`] tells how long it is: exactly so much is to be asked for then, since over RDMA a longer sink
    /// above 3976 bytes fails ([`Get`]).
    ///
    /// # Errors
    /// As for [`LNet::get`].
    pub fn ping_asking(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<dyn Sleeper>,
        sink_bytes: usize,
    ) -> Result<Ping, LNetError> {
        Ping::start(self.this()?, source, target, sleeper, sink_bytes)
    }

    /// Tells a node this one's NIs, and asks for an ACK (lnet-wire 17). `sleeper` is woken when it has come, or the reason
    /// why it has not. Only a node with the features MULTI_RAIL and DISCOVERY has a use for it.
    ///
    /// # Errors
    /// As for [`LNet::put`].
    pub fn push(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<dyn Sleeper>,
    ) -> Result<Push, LNetError> {
        self.put_acknowledged(
            source,
            target,
            sleeper,
            (PING_PORTAL, MatchBits::PING),
            self.ping_target.push_content(self)?,
        )
    }

    /// Sends `content` to an entry of a node, by its portal and match bits, and asks for an ACK. `sleeper` is woken when it has
    /// come, or the reason why it has not.
    ///
    /// # Errors
    /// As for [`LNet::put`].
    pub fn put_acknowledged(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<dyn Sleeper>,
        place: (Portal, MatchBits),
        content: IoVec,
    ) -> Result<Push, LNetError> {
        Push::start(self.this()?, source, target, sleeper, place, content)
    }

    /// Has `sleeper` woken after events of these polled queues, and when one of them is freed, until the result is dropped.
    /// Whoever waits for events looks with [`LNet::eq_poll`] after this call, and after each announcement of sleep.
    ///
    /// # Errors
    /// ENOENT if a queue is gone, EINVAL if it cannot be polled.
    pub fn eq_watch(&self, eqs: &[EqHandle], sleeper: &Arc<dyn Sleeper>) -> Result<EqWatch, LNetError> {
        let Common { queues, handles, .. } = &self.common;
        EqWatch::new(queues, eqs.iter().map(|&eq| (eq, handles.open_eq(eq))), sleeper)
    }

    /// The primary NID of the node that `nid` belongs to, as far as that node has told; else `nid`.
    pub fn primary_nid(&self, nid: Nid) -> Nid {
        self.net.lock(self.common.here()).shared().primary(nid)
    }

    pub(crate) fn this(&self) -> Result<Arc<Engine>, LNetError> {
        self.this.upgrade().ok_or(LNetError::ShuttingDown)
    }

    pub(crate) fn pings(&self) -> &PingSource {
        &self.ping_source
    }

    /// The table that an MD is in.
    pub(crate) fn table(&self, bound: bool) -> &PercptLock<Resources, ()> {
        if bound { &self.bound } else { &self.posted }
    }

    /// Decides something, with whatever locks that takes, then does what follows from it.
    pub(crate) fn with<R>(&self, decide: impl FnOnce(&mut Work) -> R) -> R {
        let mut work = Work::default();
        let result = decide(&mut work);
        self.run(&mut work);
        if work.is_bare() {
            // Its lists need not be dropped then, each by a call, for every message.
            std::mem::forget(work);
        }
        result
    }

    /// Does what is to be done without a lock, until that causes nothing more. A loop, not a recursion: a message that
    /// fails at once lets the next one go, which may fail at once too.
    pub(crate) fn run(&self, work: &mut Work) {
        while !work.is_empty() {
            // Of each as many as there are: what they cause has its turn in the next round.
            for _ in 0..work.launches.len() {
                let Some(launch) = work.launches.pop() else { break };
                self.launch(launch, work);
            }
            for _ in 0..work.acks.len() {
                let Some(ack) = work.acks.pop() else { break };
                self.launch(ack.launch(&self.common), work);
            }
            for _ in 0..work.sends.len() {
                let Some(outgoing) = work.sends.pop() else { break };
                self.hand_over(outgoing, work);
            }
            for _ in 0..work.ended.len() {
                let Some(Ended { message, result }) = work.ended.pop() else { break };
                self.end_outgoing(&message, result, work);
            }
            while let Some(token) = work.withdrawn.pop() {
                self.withdraw(token, work);
            }
            while let Some(way) = work.pushed.pop() {
                self.end_push(way);
            }
            if let Some(watcher) = self.watcher.get() {
                work.drops.drain(..).for_each(|message| watcher.dropped(&message));
            }
            wake::all(&mut work.wakes);
            work.garbage.clear();
        }
    }
}

impl LNet for Engine {
    fn eq_alloc_for(&self, handler: Handler) -> Result<EqHandle, LNetError> {
        let key = self.common.queues.enter(EventQueue::new(handler))?;
        Ok(self.common.handles.eq(key))
    }

    fn eq_alloc_polled(
        &self,
        count: usize,
        handler: Option<Arc<dyn EventHandler>>,
    ) -> Result<EqHandle, LNetError> {
        if count == 0 || count > EQ_COUNT_MAX {
            let rule = "a polled queue keeps 1 to 65536 events";
            return Err(LNetError::Invalid { field: "count", value: count as u64, rule });
        }
        let key = self.common.queues.enter(EventQueue::polled(count.next_power_of_two(), handler)?)?;
        Ok(self.common.handles.eq(key))
    }

    fn eq_poll(&self, eqs: &[EqHandle]) -> Result<Option<Polled>, LNetError> {
        let Common { queues, handles, .. } = &self.common;
        queues.poll(eqs.iter().map(|&eq| (eq, handles.open_eq(eq))))
    }

    fn eq_free(&self, eq: EqHandle) -> Result<(), LNetError> {
        let gone = LNetError::NoSuch { object: "EQ", handle: eq.0 };
        let key = self.common.handles.open_eq(eq).ok_or(gone.clone())?;
        let queue = {
            // Under all locks, so that no MD begins to use it meanwhile (S-307).
            let (mut posted, mut bound) = (self.posted.lock_all(), self.bound.lock_all());
            let used = posted.parts_mut().chain(bound.parts_mut()).any(|part| part.users(key) > 0);
            if self.common.queues.find(key).is_some() && used {
                return Err(LNetError::Busy { object: "EQ", handle: eq.0 });
            }
            posted.parts_mut().chain(bound.parts_mut()).for_each(|part| part.forget_queue(key));
            self.common.queues.remove(key)
        };
        // The handler is dropped after the locks: what its drop does is its own business.
        let queue = queue.ok_or(gone)?;
        queue.wake_watchers();
        drop(queue);
        Ok(())
    }

    fn me_attach(&self, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.attach_entry(me)
    }

    fn me_insert(&self, beside: MeHandle, me: &MeSpec) -> Result<MeHandle, LNetError> {
        self.insert_entry(beside, me)
    }

    fn me_unlink(&self, me: MeHandle) -> Result<(), LNetError> {
        self.with(|work| self.unlink_entry(me, work))
    }

    /// As [`LNet::md_attach`]; an entry that has an MD already keeps both, and its place.
    fn md_attach(&self, me: MeHandle, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        self.with(|work| self.attach_md(me, md, unlink, work))
    }

    fn md_bind(&self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        self.bind_md(md, unlink)
    }

    fn md_unlink(&self, md: MdHandle) -> Result<(), LNetError> {
        self.with(|work| self.unlink_md(md, work))
    }

    /// As [`LNet::put`]; also EBUSY while a message is being received into the MD's memory, and ENOMEM when a
    /// region has as many leases as it can have.
    fn put(&self, put: &Put) -> Result<(), LNetError> {
        self.with(|work| self.send_put(put, work))
    }

    fn get(&self, get: &Get) -> Result<(), LNetError> {
        self.with(|work| self.send_get(get, work))
    }

    fn set_lazy(&self, portal: Portal, lazy: bool) {
        self.with(|work| self.change_lazy(portal, lazy, work));
    }

    fn watch_drops(&self, watcher: Arc<dyn DropWatcher>) -> Result<(), LNetError> {
        self.watcher.set(watcher).map_err(|_| LNetError::Busy { object: "watcher of drops", handle: 0 })
    }

    fn distance(&self, nid: Nid) -> Result<Distance, LNetError> {
        self.distance_to(nid)
    }

    fn local_ids(&self) -> Vec<ProcessId> {
        let net = self.net.lock(self.common.here());
        let loopback = ProcessId::new(Nid::LOOPBACK, self.common.config.pid);
        std::iter::once(loopback).chain(net.shared().ids()).collect()
    }

    fn for_each_local_id(&self, look: &mut dyn FnMut(ProcessId)) {
        let net = self.net.lock(self.common.here());
        look(ProcessId::new(Nid::LOOPBACK, self.common.config.pid));
        net.shared().ids().for_each(look);
    }
}

impl Upcalls for Engine {
    fn partition_of(&self, ni: Nid, peer: Nid) -> usize {
        let net = self.net.lock(self.common.here());
        net.shared().home_of(ni, peer).map_or(0, |(_, partition)| partition)
    }

    fn parse(&self, arrival: &Arrival<'_>) -> Verdict {
        self.with(|work| self.arrive(arrival, work))
    }

    fn forget_delayed(&self, token: RxToken) -> bool {
        self.with(|work| self.forget_waiting(token, work))
    }

    fn finalize_rx(&self, token: RxToken, result: Result<(), Errno>) {
        self.with(|work| self.received(token, result, work));
    }

    fn finalize_tx(&self, token: TxToken, result: Result<(), Errno>) {
        self.with(|work| self.left(token, result, work));
    }

    fn finalize_txs(&self, tokens: &[TxToken], result: Result<(), Errno>) {
        self.with(|work| {
            for &token in tokens {
                self.left(token, result, work);
                if work.is_urgent() {
                    self.run(work);
                    work.garbage.clear();
                }
            }
        });
    }

    fn sink_of_get(&self, token: TxToken) -> Option<WriteVec> {
        self.direct_sink(token)
    }

    fn finalize_get(&self, token: TxToken, result: Result<u32, Errno>) {
        self.with(|work| self.direct_end(token, result, work));
    }

    fn peer_lost(&self, ni: Nid, peer: ProcessId, reason: Errno) {
        self.with(|work| self.lose_peer(ni, peer, reason, work));
    }

    fn link_changed(&self, ni: Nid, up: bool) {
        self.set_link(ni, up);
    }

    fn is_short(&self, ni: Nid) -> bool {
        (0..self.common.partitions()).any(|partition| {
            let net = self.net.lock(partition);
            net.is_short(net.shared(), ni)
        })
    }
}
