//! The node: it owns the rooms and orders their locks. What is decided in a room is the room's business; here stand the
//! order of the locks, and what is done when they are released.
//!
//! | file | subject |
//! | --- | --- |
//! | `api` | what programs ask (the trait [`lnet_api::LNet`]) |
//! | `upcalls` | what LNDs tell (the trait [`lnet_api::Upcalls`]) |
//! | `waiting` | messages that wait for a buffer, or as a fault rule wants it |
//! | `run` | what is done without a lock |
//! | `interfaces` | NIs come and go |
//! | `audit` | whether the rooms agree |

mod api;
mod audit;
mod interfaces;
mod requests;
mod run;
mod upcalls;
pub(crate) mod waiting;

use std::collections::TryReserveError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use lnet_api::{DropWatcher, EqHandle, LNetError, Sleeper};
use lnet_cpt::PercptLock;
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_proto::ping::{Interface, SINK_LENGTH};
use lnet_proto::{PING_PORTAL, WireHandle};
use lnet_region::IoVec;
use parking_lot::Mutex;

use crate::common::Common;
use crate::config::{ADVANCE_INTERVAL_NS, EngineConfig};
use crate::counters::{Counters, NiStatistics, PeerStatistics, Traffic};
use crate::drops::{RECENT_DROPS, RecentDrop};
use crate::event_queue::EqWatch;
use crate::faults::{FaultId, FaultRule, FaultStatistics, Faults, Held};
use crate::names::PARTITIONS_MAX;
use crate::net::{Net, NetShared, PushedNids};
use crate::ping::{Ping, PingTarget, Pings, Push};
use crate::portal_state::PortalState;
use crate::resources::{Bound, Posted, Resources};

/// An LNet node; see the [crate's page](crate).
///
/// All methods may be called from any thread, but none from inside [`lnet_api::EventHandler::event`]. None blocks.
pub struct Engine {
    this: Weak<Engine>,
    common: Arc<Common>,
    /// MEs and the MDs attached to them.
    posted: PercptLock<Posted, ()>,
    /// MDs bound for PUTs and GETs.
    bound: PercptLock<Bound, ()>,
    /// Peers, credits and NIs (`LNET_NET_LOCK`, S-307).
    net: PercptLock<Net, NetShared>,
    portals: Arc<[PortalState]>,
    /// Held while NIs come and go, which takes several steps.
    ni_change: Mutex<()>,
    ping_target: PingTarget,
    pings: Pings,
    faults: Faults,
    /// Messages that fault rules delay.
    held: Held,
    watcher: OnceLock<Arc<dyn DropWatcher>>,
    /// NIs, `0@lo` not counted.
    ni_count: AtomicUsize,
}

impl Engine {
    /// A node that has no NI but `0@lo`, and answers pings. Of a table of more than [`PARTITIONS_MAX`] partitions it
    /// uses that many.
    #[must_use]
    pub fn new(config: EngineConfig) -> Arc<Engine> {
        let interface_cookie = WireHandle::unmarked(config.interface_cookie);
        let config = EngineConfig { interface_cookie, ..config };
        let partitions = config.partitions.partitions().clamp(1, PARTITIONS_MAX);
        let common = Arc::new(Common::new(config, partitions));
        let limits = &common.config.limits;
        let (delayed, held) = (limits.delayed, limits.held);
        let shared = NetShared::new(limits.known_nodes);
        let portals: Arc<[PortalState]> = (0..Portal::COUNT).map(|_| PortalState::new(delayed)).collect();
        let posted = PercptLock::with_partitions(
            partitions,
            |partition| common.room(partition).make(|| Posted::new(&common, &portals, partition)),
            (),
        );
        let bound = |partition| common.room(partition).make(|| Bound::new(&common, partition));
        let bound = PercptLock::with_partitions(partitions, bound, ());
        let net = |partition| common.room(partition).make(|| Net::new(&common, partition));
        let net = PercptLock::with_partitions(partitions, net, shared);
        let engine = Arc::new_cyclic(|this: &Weak<Engine>| Engine {
            this: this.clone(),
            posted,
            bound,
            net,
            portals,
            ni_change: Mutex::new(()),
            ping_target: PingTarget::new(this.clone()),
            pings: Pings::default(),
            faults: Faults::default(),
            held: Held::new(held),
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
                self.with(|work| self.bound.lock(partition).expire(now_ns, work));
            }
            next = next.min(self.common.deadline_ns(partition));
        }
        if self.held.due_ns() <= now_ns {
            self.release_held(now_ns);
        }
        next = next.min(self.held.due_ns());
        let latest = now_ns.saturating_add(ADVANCE_INTERVAL_NS);
        self.has_time().then(|| next.min(latest))
    }

    /// Whether somebody tells the time: a node without NIs needs none.
    fn has_time(&self) -> bool {
        self.ni_count.load(Ordering::Relaxed) > 0
    }

    /// The node's counters.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        for partition in 0..self.common.partitions() {
            counters += self.posted.lock(partition).mds().counters();
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
        self.pings.push_backs().awaited(now_ns)
    }

    /// When the last peer that this node has pushed to will not push back any more, see [`PUSH_BACK_NS`](crate::PUSH_BACK_NS);
    /// 0 if there was none.
    pub fn push_backs_end_ns(&self) -> u64 {
        self.pings.push_backs().until_ns()
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
    /// As for [`lnet_api::LNet::get`].
    pub fn ping(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
    ) -> Result<Ping, LNetError> {
        self.ping_asking(source, target, sleeper, SINK_LENGTH as usize)
    }

    /// As [`Engine::ping`], asking for so many bytes: the kernel's discovery begins with 272 (lnet-wire 15). If the answer
    /// is longer, [`Ping::needs`] tells how long it is: exactly so much is to be asked for then, since over RDMA a longer sink
    /// above 3976 bytes fails ([`lnet_api::Get`]).
    ///
    /// # Errors
    /// As for [`lnet_api::LNet::get`].
    pub fn ping_asking(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
        sink_bytes: usize,
    ) -> Result<Ping, LNetError> {
        Ping::start(self.this()?, source, target, sleeper, sink_bytes)
    }

    /// Tells a node this one's NIs, and asks for an ACK (lnet-wire 17). `sleeper` is woken when it has come, or the reason
    /// why it has not. Only a node with the features MULTI_RAIL and DISCOVERY has a use for it.
    ///
    /// # Errors
    /// As for [`lnet_api::LNet::put`].
    pub fn push(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
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
    /// As for [`lnet_api::LNet::put`].
    pub fn put_acknowledged(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
        place: (Portal, MatchBits),
        content: IoVec,
    ) -> Result<Push, LNetError> {
        Push::start(self.this()?, source, target, sleeper, place, content)
    }

    /// Has `sleeper` woken after events of these polled queues, and when one of them is freed, until the result is dropped.
    /// Whoever waits for events looks with [`lnet_api::LNet::eq_poll`] after this call, and after each announcement of sleep.
    ///
    /// # Errors
    /// ENOENT if a queue is gone, EINVAL if it cannot be polled.
    pub fn eq_watch(&self, eqs: &[EqHandle], sleeper: &Arc<Sleeper>) -> Result<EqWatch, LNetError> {
        let Common { queues, handles, .. } = &*self.common;
        EqWatch::new(queues, eqs.iter().map(|&eq| (eq, handles.open_eq(eq))), sleeper)
    }

    /// The primary NID of the node that `nid` belongs to, as far as that node has told; else `nid`.
    pub fn primary_nid(&self, nid: Nid) -> Nid {
        self.net.lock(self.common.here()).shared().primary(nid)
    }

    /// From now on messages that arrive are lost or late by this rule: behind the checks of the header, before anything is
    /// looked for that takes them (where LNet has its `lctl net_drop_add` and `net_delay_add`). Messages of the node to
    /// itself arrive too. Rules are asked in the order in which they were added, and the first that does something to a
    /// message is the last that is asked.
    ///
    /// Its sender cannot tell a lost message from one that was lost on this node; here it counts as dropped
    /// ([`crate::Counters::drop_count`]), but nobody is told who waits for it ([`lnet_api::LNet::watch_drops`]). A delayed one
    /// holds up its connection, so that what the peer sends behind it is late as well, and in order. It is lost if its
    /// connection or its NI goes meanwhile; that its rule is removed changes nothing for it. On a node without NIs, whose
    /// time does not pass, and beyond [`crate::Limits::held`] messages, none is delayed.
    ///
    /// ```
    /// use lnet::{Engine, EngineConfig};
    /// use lnet_nid::Pid;
    ///
    /// let node = Engine::new(EngineConfig::new(Pid::LNET, 1));
    /// let rule = node.add_fault("drop 1/100 put portal 42".parse()?)?;
    /// // ... and when all is over:
    /// let found = node.remove_fault(rule)?;
    /// println!("{}: {} of {} lost", found.rule, found.dropped, found.matched);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// ENOMEM beyond [`crate::FAULT_RULES_MAX`] rules, EINVAL for one that cannot be ([`FaultRule::check`]).
    pub fn add_fault(&self, rule: FaultRule) -> Result<FaultId, LNetError> {
        self.faults.add(rule)
    }

    /// Takes a rule back; gives what has come of it.
    ///
    /// # Errors
    /// ENOENT if it is gone.
    pub fn remove_fault(&self, id: FaultId) -> Result<FaultStatistics, LNetError> {
        self.faults.remove(id).ok_or(LNetError::NoSuch { object: "fault rule", handle: 0 })
    }

    /// The rules in force, in the order in which they are asked, and what has come of each so far.
    pub fn faults(&self) -> Vec<FaultStatistics> {
        self.faults.statistics()
    }

    /// Messages that rules delay at this moment.
    pub fn held(&self) -> usize {
        self.held.lock().len()
    }

    fn this(&self) -> Result<Arc<Engine>, LNetError> {
        self.this.upgrade().ok_or(LNetError::ShuttingDown)
    }

    /// What all rooms read.
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// The exchanges on portal 0 of other nodes.
    pub(crate) fn pings(&self) -> &Pings {
        &self.pings
    }

    /// Whether a NID is this node's own.
    pub(crate) fn is_local(&self, nid: Nid) -> bool {
        nid.is_loopback() || self.net.lock(0).shared().has_ni(nid)
    }

    /// The NIs that peers are told of.
    ///
    /// # Errors
    /// If there is no memory for the list.
    pub(crate) fn published_nis(&self) -> Result<Vec<Interface>, TryReserveError> {
        let net = self.net.lock(0);
        let mut list = Vec::new();
        list.try_reserve_exact(net.shared().published().count())?;
        list.extend(net.shared().published());
        Ok(list)
    }

    /// Remembers what a push tells. What is no news costs little; the rest only counts if `admit` lets the address, as a NID,
    /// from which the pusher speaks change something now.
    pub(crate) fn learn(
        &self,
        pushed: &PushedNids<impl Iterator<Item = Nid> + Clone>,
        admit: impl FnOnce(Nid) -> bool,
    ) {
        let here = self.common.here();
        {
            let net = self.net.lock(here);
            if !net.is_news(net.shared(), pushed) {
                return;
            }
        }
        let mut all = 0..self.common.partitions();
        let address = all.find_map(|partition| {
            let net = self.net.lock(partition);
            net.address_of(net.shared(), pushed.sender())
        });
        if !admit(address.unwrap_or(pushed.sender())) {
            self.net.lock(here).count_ignored_push();
            return;
        }
        // All partitions stop for this. A peer that tells something else in every push makes that happen as often as the rates
        // allow. Each time costs no more than the look-ups for the 255 NIDs that a buffer takes of a push, and one node's place
        // in the tables.
        let mut net = self.net.lock_all();
        let (parts, shared) = net.split();
        shared.learn(parts, pushed);
    }
}
