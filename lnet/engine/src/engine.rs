//! The node: owns the rooms and orders their locks. A room decides; this module defines the order
//! of the locks and performs the actions that follow once they are released.
//!
//! | file | subject |
//! | --- | --- |
//! | `api` | calls by programs (the trait [`lnet_api::LNet`]) |
//! | `upcalls` | calls by LNDs (the trait [`lnet_api::Upcalls`]) |
//! | `waiting` | messages that wait for a buffer, or that a fault rule delays |
//! | `run` | actions without a lock |
//! | `interfaces` | addition and removal of NIs |
//! | `audit` | checks that the rooms agree |

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
use lnet_proto::ping::{PingInterface, SINK_LENGTH};
use lnet_proto::{PING_PORTAL, WireHandle};
use lnet_region::IoVec;
use parking_lot::Mutex;

use crate::common::Common;
use crate::config::{ADVANCE_INTERVAL_NS, EngineConfig};
use crate::counters::{Counters, NiStatistics, PeerStatistics, Traffic};
use crate::drops::{RECENT_DROPS, RecentDrop};
use crate::event_queue::EqWatch;
use crate::faults::{DelayedMessages, FaultId, FaultRule, FaultRules, FaultStatistics};
use crate::names::PARTITIONS_MAX;
use crate::net::{NetPartition, NetShared, PushedNids};
use crate::ping::{Ping, PingTarget, Pings, Push};
use crate::portal_state::PortalState;
use crate::resources::{Bound, Posted, Resources};

/// An LNet node; see the [crate's page](crate).
///
/// All methods may be called from any thread, but none from inside
/// [`lnet_api::EventHandler::event`]. None blocks.
pub struct Engine {
    this: Weak<Engine>,
    common: Arc<Common>,
    /// MEs and the MDs attached to them.
    posted: PercptLock<Posted, ()>,
    /// MDs bound for PUTs and GETs.
    bound: PercptLock<Bound, ()>,
    /// Peers, credits and NIs (`LNET_NET_LOCK`, S-307).
    net: PercptLock<NetPartition, NetShared>,
    portals: Arc<[PortalState]>,
    /// Held during the addition or removal of an NI, which takes several steps.
    ni_change: Mutex<()>,
    ping_target: PingTarget,
    pings: Pings,
    faults: FaultRules,
    /// Messages that fault rules delay.
    held: DelayedMessages,
    watcher: OnceLock<Arc<dyn DropWatcher>>,
    /// Number of NIs, not counting `0@lo`.
    ni_count: AtomicUsize,
}

impl Engine {
    /// Creates a node that has no NI but `0@lo`, and answers pings. It uses at most
    /// [`PARTITIONS_MAX`] partitions of the configured table.
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
        let net = |partition| common.room(partition).make(|| NetPartition::new(&common, partition));
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
            faults: FaultRules::default(),
            held: DelayedMessages::new(held),
            watcher: OnceLock::new(),
            ni_count: AtomicUsize::new(0),
            common,
        });
        engine.ping_target.start(&engine);
        engine
    }

    /// Sets the engine's time, in nanoseconds of the node's clock, and ends operations whose
    /// deadline has passed. Returns the latest time for the next call; `None` if there is no NI.
    ///
    /// For the engine no time passes between two calls: a deadline that is set in between counts
    /// from the first of them, so it can be early by up to [`ADVANCE_INTERVAL_NS`]. The call takes
    /// no lock unless a deadline has passed.
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

    /// Returns whether the engine's clock advances: on a node without NIs nothing calls
    /// [`Engine::advance`].
    fn has_time(&self) -> bool {
        self.ni_count.load(Ordering::Relaxed) > 0
    }

    /// Returns the node's counters.
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

    /// Returns the most recently dropped messages, newest first: at most [`RECENT_DROPS`].
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

    /// Returns the number of messages that wait for a buffer on a lazy portal (S-310).
    pub fn waiting(&self, portal: Portal) -> usize {
        self.portals[portal.index()].delayed()
    }

    /// Returns the number of outgoing messages, including those that wait for credits or a
    /// connection.
    pub fn sending(&self) -> usize {
        (0..self.common.partitions()).map(|partition| self.net.lock(partition).sending()).sum()
    }

    /// Returns whether a peer to which this node has pushed may still push back. Such a peer waits
    /// for an ACK that a node which has shut down does not send (lnet-wire 17, measured). The
    /// peer's push ends the wait: its ACK is already on its way out.
    pub fn awaits_push_back(&self, now_ns: u64) -> bool {
        self.pings.push_backs().awaited(now_ns)
    }

    /// Returns the time after which no peer pushes back any more, see
    /// [`PUSH_BACK_NS`](crate::PUSH_BACK_NS); 0 if this node has not pushed.
    pub fn push_backs_end_ns(&self) -> u64 {
        self.pings.push_backs().until_ns()
    }

    /// Returns the traffic of an NI, `0@lo` included, and its credits; `None` if there is no such
    /// NI.
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
        all.traffic.subtract_dropped();
        Some(all)
    }

    /// Returns the statistics of all peers. A peer appears once per NI (and per connection of an
    /// unprivileged program) over which it is known.
    pub fn peer_statistics(&self) -> Vec<PeerStatistics> {
        let mut all = Vec::new();
        for partition in 0..self.common.partitions() {
            all.extend(self.net.lock(partition).peer_statistics());
        }
        all
    }

    /// Queries a node for its NIDs (lnet-wire 15), with a sink of [`SINK_LENGTH`] bytes. `sleeper`
    /// is woken when the answer, or the error, can be taken from the [`Ping`].
    ///
    /// # Errors
    /// The errors of [`lnet_api::LNet::get`].
    pub fn ping(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
    ) -> Result<Ping, LNetError> {
        self.ping_asking(source, target, sleeper, SINK_LENGTH as usize)
    }

    /// Starts a ping like [`Engine::ping`], with a sink of `sink_bytes`: the kernel's discovery
    /// begins with 272 (lnet-wire 15). If the answer is longer, [`Ping::needs`] returns its length.
    /// Use exactly that length for the next query: over RDMA a longer sink above 3976 bytes fails
    /// ([`lnet_api::Get`]).
    ///
    /// # Errors
    /// The errors of [`lnet_api::LNet::get`].
    pub fn ping_asking(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
        sink_bytes: usize,
    ) -> Result<Ping, LNetError> {
        Ping::start(self.this()?, source, target, sleeper, sink_bytes)
    }

    /// Sends this node's NIs to another node and requests an ACK (lnet-wire 17). `sleeper` is woken
    /// when the ACK has arrived or the push has failed. Only a node with the features MULTI_RAIL
    /// and DISCOVERY uses the list.
    ///
    /// # Errors
    /// The errors of [`lnet_api::LNet::put`].
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

    /// Sends `content` to the entry of a node with the portal and match bits in `entry`, and
    /// requests an ACK. `sleeper` is woken when the ACK has arrived or the PUT has failed.
    ///
    /// # Errors
    /// The errors of [`lnet_api::LNet::put`].
    pub fn put_acknowledged(
        &self,
        source: Option<Nid>,
        target: ProcessId,
        sleeper: Arc<Sleeper>,
        entry: (Portal, MatchBits),
        content: IoVec,
    ) -> Result<Push, LNetError> {
        Push::start(self.this()?, source, target, sleeper, entry, content)
    }

    /// Wakes `sleeper` after events of these polled queues, and when one of them is freed, until
    /// the result is dropped. A waiter must call [`lnet_api::LNet::eq_poll`] after this call, and
    /// each time after it has announced its sleep.
    ///
    /// # Errors
    /// ENOENT if a queue is gone, EINVAL if it cannot be polled.
    pub fn eq_watch(&self, eqs: &[EqHandle], sleeper: &Arc<Sleeper>) -> Result<EqWatch, LNetError> {
        let Common { queues, handles, .. } = &*self.common;
        EqWatch::new(queues, eqs.iter().map(|&eq| (eq, handles.decode_eq(eq))), sleeper)
    }

    /// Returns the primary NID of the node to which `nid` belongs, if that node has announced it;
    /// otherwise `nid`.
    pub fn primary_nid(&self, nid: Nid) -> Nid {
        self.net.lock(self.common.current_partition()).shared().primary(nid)
    }

    /// Adds a rule by which arriving messages are lost or delayed. It applies after the checks of
    /// the header and before the search for a buffer (where LNet has its `lctl net_drop_add` and
    /// `net_delay_add`). Messages of the node to itself arrive too. Rules apply in the order in
    /// which they were added; the first one that loses or delays a message is the last one applied
    /// to it.
    ///
    /// The sender of a lost message cannot distinguish this from a loss on its own node. This node
    /// counts it as dropped ([`crate::Counters::drop_count`]), but does not report it to
    /// [`lnet_api::LNet::watch_drops`]. A delayed message blocks its connection, so that later
    /// messages of the peer are delayed as well, and stay in order. It is lost if its connection or
    /// its NI ends during the delay; removal of its rule does not affect it. No message is delayed
    /// on a node without NIs, whose time does not pass, nor beyond [`crate::Limits::held`]
    /// messages.
    ///
    /// ```
    /// use lnet::{Engine, EngineConfig};
    /// use lnet_nid::Pid;
    ///
    /// let node = Engine::new(EngineConfig::new(Pid::LNET, 1));
    /// let rule = node.add_fault("drop 1/100 put portal 42".parse()?)?;
    /// // ... and at the end of the test:
    /// let found = node.remove_fault(rule)?;
    /// println!("{}: {} of {} lost", found.rule, found.dropped, found.matched);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// ENOMEM beyond [`crate::FAULT_RULES_MAX`] rules, EINVAL for an invalid rule
    /// ([`FaultRule::check`]).
    pub fn add_fault(&self, rule: FaultRule) -> Result<FaultId, LNetError> {
        self.faults.add(rule)
    }

    /// Removes a fault rule and returns its statistics.
    pub fn remove_fault(&self, id: FaultId) -> Result<FaultStatistics, LNetError> {
        self.faults.remove(id).ok_or(LNetError::NoSuch { object: "fault rule", handle: 0 })
    }

    /// Returns the active rules in the order in which they apply, with their statistics.
    pub fn faults(&self) -> Vec<FaultStatistics> {
        self.faults.statistics()
    }

    /// Returns the number of messages that rules delay at this moment.
    pub fn held(&self) -> usize {
        self.held.lock().len()
    }

    fn this(&self) -> Result<Arc<Engine>, LNetError> {
        self.this.upgrade().ok_or(LNetError::ShuttingDown)
    }

    /// Returns the data that all rooms read: configuration, event queues, clock.
    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// Returns this node's pings and pushes to portal 0 of other nodes.
    pub(crate) fn pings(&self) -> &Pings {
        &self.pings
    }

    /// Returns whether a NID belongs to this node.
    pub(crate) fn is_local(&self, nid: Nid) -> bool {
        nid.is_loopback() || self.net.lock(0).shared().has_ni(nid)
    }

    /// Returns the NIs that are announced to peers.
    ///
    /// # Errors
    /// If there is no memory for the list.
    pub(crate) fn published_nis(&self) -> Result<Vec<PingInterface>, TryReserveError> {
        let net = self.net.lock(0);
        let mut list = Vec::new();
        list.try_reserve_exact(net.shared().published().count())?;
        list.extend(net.shared().published());
        Ok(list)
    }

    /// Stores the NIDs that a push announces. A push without changes costs little. Changes are
    /// stored only if `admit` allows the pusher's address, given as a NID, to change something now.
    pub(crate) fn learn(
        &self,
        pushed: &PushedNids<impl Iterator<Item = Nid> + Clone>,
        admit: impl FnOnce(Nid) -> bool,
    ) {
        let here = self.common.current_partition();
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
        // All partitions stop while the lists change. A peer with changes in every push causes that
        // as often as the rate limits allow. Each change costs at most the look-ups for the 255
        // NIDs that a buffer takes of a push, and one node's entry in the tables.
        let mut net = self.net.lock_all();
        let (parts, shared) = net.split();
        shared.learn(parts, pushed);
    }
}
