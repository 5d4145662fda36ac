//! A running node: starting it, its networks at run time, and shutting it down.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lnet::{Counters, Engine, FaultId, FaultRule, FaultStatistics};
use lnet_api::{Clock, Drive, EqHandle, LNet, LNetError, Lnd, LndError, Polled};
use lnet_cpt::CptTable;
use lnet_nid::{NetType, Nid, ProcessId};
use lnet_o2iblnd::O2ibLnd;
use lnet_region::ForkGuard;
use lnet_socklnd::{Hardware, SockLnd};
use parking_lot::{Mutex, RwLock};

use crate::drive::NodeDrive;
use crate::interfaces::{PlannedNi, plan};
use crate::o2ib::Verbs;
use crate::ping::{PingAnswer, PingFailure};
use crate::sched_thread::{GRACE, SchedThreads};
use crate::status::{StatusServer, StatusView};
use crate::{NetSpec, NodeConfig, NodeError, VirtualNode};

/// A running LNet node of this process.
///
/// All methods may be called from any thread, except from inside [`lnet_api::EventHandler`].
///
/// A node belongs to the process that started it. A forked child has no threads of it, and peers do
/// not know the child; the child may only drop the node, which has no effect. Calls that would
/// change the node fail with [`NodeError::Forked`]; all others must not be made. The child keeps
/// copies of the node's descriptors until it ends or executes another program.
pub struct Node {
    drive: Arc<NodeDrive>,
    sock: Arc<SockLnd>,
    verbs: Arc<Verbs>,
    table: Arc<CptTable>,
    config: NodeConfig,
    fork_guard: ForkGuard,
    /// The NIDs, in the order in which the NIs were added.
    nids: Arc<RwLock<Vec<Nid>>>,
    /// The scheduler threads. Locked while NIs are added or removed, as threads are added with NIs.
    /// `None` once the node has ended.
    sched_threads: Mutex<Option<SchedThreads>>,
    /// Set once the final shutdown has begun.
    ending: AtomicBool,
    /// The number of connections per peer that was set at run time, for later NIs; 0 if none was
    /// set.
    conns_per_peer: AtomicU8,
    view: StatusView,
    /// The status server, if enabled, until the node ends.
    server: Mutex<Option<StatusServer>>,
}

impl Node {
    /// Starts the networks of a configuration: claims the NIDs, listens, and answers pings from now
    /// on.
    ///
    /// # Errors
    /// [`NodeError`] names the network, NID or tunable and the reason; nothing is left running.
    pub fn start(config: &NodeConfig) -> Result<Node, NodeError> {
        let table = config.table()?;
        config.partitions.warn();
        let interfaces = config.interfaces(table.partitions())?;
        config.check_tunables(&interfaces)?;
        let engine = Engine::new(config.engine(table.clone(), wall_clock_ns()));
        for &rule in &config.faults {
            engine.add_fault(rule).map_err(|source| NodeError::Fault { source })?;
        }
        let sock = SockLnd::new(config.tcp_on(&table))
            .map_err(|error| NodeError::System { what: error.what, errno: error.errno })?;
        let sock = Arc::new(sock);
        let lnds: Vec<Arc<dyn Lnd>> = vec![sock.clone()];
        let drive = NodeDrive::new(engine, lnds, config.spin, table.clone())
            .map_err(|errno| NodeError::System { what: "make an eventfd".to_string(), errno })?;
        let drive = Arc::new(drive);
        drive.engine.advance(drive.now_ns());
        let sched_threads = SchedThreads::new(drive.clone(), table.clone());
        let nids = Arc::new(RwLock::default());
        let verbs = Arc::new(Verbs::new(config.verbs_on(&table)));
        let lnds = (sock.clone(), verbs.clone());
        let view = StatusView::new(drive.clone(), lnds, nids.clone(), table.partitions(), config);
        let node = Node {
            drive,
            sock,
            verbs,
            table,
            config: config.clone(),
            nids,
            fork_guard: ForkGuard::here(),
            sched_threads: Mutex::new(Some(sched_threads)),
            ending: AtomicBool::new(false),
            conns_per_peer: AtomicU8::new(0),
            view,
            server: Mutex::default(),
        };
        node.add(interfaces)?;
        if config.status {
            *node.server.lock() = StatusServer::start(node.view.clone());
        }
        Ok(node)
    }

    /// Adds a network, or further interfaces of one, while traffic runs on others (S-202), as if it
    /// were the last in the configuration. Peers learn of it when they ping. All of its interfaces
    /// are added, or none.
    ///
    /// ```
    /// # use lnet_node::{Node, NodeConfig};
    /// let node = Node::start(&NodeConfig::new().net("tcp(127.0.0.13)")?.accept_port(21_986))?;
    /// node.add_net(&"tcp1(127.0.0.14)".parse()?)?;
    /// assert_eq!(node.nids()[1].to_string(), "127.0.0.14@tcp1");
    /// node.remove_ni("127.0.0.13@tcp".parse()?)?;
    /// assert_eq!(node.nids()[0].to_string(), "127.0.0.14@tcp1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Node::start`]; [`NodeError::Ended`] after [`Node::shutdown`].
    pub fn add_net(&self, net: &NetSpec) -> Result<(), NodeError> {
        self.check_here()?;
        let interfaces = plan(std::slice::from_ref(net), &self.nids(), self.table.partitions())?;
        self.config.check_tunables(&interfaces)?;
        self.add(interfaces)
    }

    /// Starts NIs and the threads that they need: all of them, or none.
    fn add(&self, interfaces: Vec<PlannedNi>) -> Result<(), NodeError> {
        let mut sched_threads = self.sched_threads.lock();
        let sched_threads = sched_threads.as_mut().ok_or(NodeError::Ended)?;
        let mut added = Vec::new();
        let outcome = interfaces
            .into_iter()
            .try_for_each(|ni| {
                self.start_ni(&ni)?;
                added.push(ni.nid);
                Ok(())
            })
            .and_then(|()| self.drive_new_shards(sched_threads));
        match outcome {
            Ok(()) => self.nids.write().extend(added),
            // This cannot fail: the NI was just added, and only the holder of the lock removes NIs.
            Err(_) => added.into_iter().for_each(|nid| {
                let _ = self.drive.engine.remove_ni(nid);
                self.verbs.release(nid);
            }),
        }
        outcome
    }

    /// Drives the shards that LNDs have created, with a scheduler thread for each.
    fn drive_new_shards(&self, sched_threads: &mut SchedThreads) -> Result<(), NodeError> {
        self.drive.take_shards();
        sched_threads.grow(&|source| self.config.refuse_partitions(source))
    }

    fn start_ni(&self, ni: &PlannedNi) -> Result<(), NodeError> {
        let nid = ni.nid;
        let id = ProcessId { nid, pid: self.config.pid() };
        let set = self.conns_per_peer.load(Ordering::Relaxed);
        let conns_per_peer = |own: &mut u8| *own = if set == 0 { *own } else { set };
        let hardware = Hardware::named(&ni.device);
        let refused = |error: LndError| NodeError::Start { nid, source: LNetError::Lnd(error) };
        let lnd: Arc<dyn Lnd> = if ni.is_o2ib() {
            let lnd = self.verbs.lnd(nid, &self.drive)?;
            let mut config = ni.tunables.o2ib(&self.config.o2ib);
            conns_per_peer(&mut config.conns_per_peer);
            lnd.configure(nid, config).map_err(|error| refused(error.into()))?;
            lnd.set_hardware(nid, hardware);
            self.verbs.claim(nid).map_err(refused)?;
            lnd.clone()
        } else {
            let mut config = ni.tunables.tcp(&self.config.tcp, ni.conns_per_peer);
            conns_per_peer(&mut config.conns_per_peer);
            self.sock.configure(nid, config).map_err(|error| refused(error.into()))?;
            self.sock.set_hardware(nid, hardware);
            self.sock.clone()
        };
        let started = self.drive.engine.add_ni_at(id, lnd, &ni.cpts, ni.numa_node);
        let started = started.inspect_err(|_| self.verbs.release(nid));
        started.map_err(|source| NodeError::Start { nid, source })
    }

    /// Stops and removes an NI, while traffic runs on others (S-202). Its messages end with
    /// ESHUTDOWN.
    ///
    /// # Errors
    /// [`NodeError::Remove`] with EADDRNOTAVAIL if the node has no such NI.
    pub fn remove_ni(&self, nid: Nid) -> Result<(), NodeError> {
        self.check_here()?;
        let _alone = self.sched_threads.lock();
        let removed = self.drive.engine.remove_ni(nid);
        removed.map_err(|source| NodeError::Remove { nid, source })?;
        self.verbs.release(nid);
        self.nids.write().retain(|other| *other != nid);
        Ok(())
    }

    /// Starts a further LNet node in this process, on this node's TCP LND, threads and clock. `nid` is
    /// an address of this host. The virtual node has this node's configuration and port.
    ///
    /// # Errors
    /// The address is not of this host, or in use; the NID is not of TCP; there are no descriptors;
    /// the node has ended.
    pub fn virtual_node(&self, nid: Nid) -> Result<VirtualNode, NodeError> {
        self.check_here()?;
        if nid.net().net_type() != NetType::TCP {
            return Err(NodeError::NoDriver { net: nid.net().to_string() });
        }
        let mut sched_threads = self.sched_threads.lock();
        let sched_threads = sched_threads.as_mut().ok_or(NodeError::Ended)?;
        let engine = Engine::new(self.config.engine(self.table.clone(), wall_clock_ns()));
        engine.advance(self.drive.now_ns());
        let id = ProcessId { nid, pid: self.config.pid() };
        // All have one device: each further one could bring a shard, and a thread.
        self.sock.set_hardware(nid, Hardware::named("virtual"));
        engine.add_ni(id, self.sock.clone()).map_err(|source| NodeError::Start { nid, source })?;
        let node = VirtualNode::new(engine, nid, self.drive.clone());
        self.drive_new_shards(sched_threads)?;
        Ok(node)
    }

    /// Returns the LNet API.
    pub fn lnet(&self) -> Arc<dyn LNet> {
        self.drive.engine.clone()
    }

    /// Returns the handle with which a waiting thread drives the node.
    pub fn drive(&self) -> Arc<dyn Drive> {
        self.drive.clone()
    }

    /// Returns the present NIDs of the node, without `0@lo`, in the order in which they were added.
    pub fn nids(&self) -> Vec<Nid> {
        self.nids.read().clone()
    }

    /// Returns the CPU partitions of the node's state (S-301, S-307), so that upper layers can
    /// split theirs alike.
    pub fn partitions(&self) -> &Arc<CptTable> {
        &self.table
    }

    /// Returns LNet's counters.
    pub fn counters(&self) -> Counters {
        self.drive.engine.counters()
    }

    /// Adds a rule by which arriving messages, including those of the node to itself, are lost or
    /// delayed: for tests of the layers above. For the sender, a lost message looks as if the
    /// network had lost it: a wait for its answer lasts until its deadline. A delayed message
    /// delays its connection, so that no message overtakes another. Rules apply in the order in
    /// which they were added; the first one that affects a message is the last one checked.
    ///
    /// ```
    /// use lnet_node::{FaultRule, Node, NodeConfig};
    ///
    /// let node = Node::start(&NodeConfig::new())?;
    /// for rule in FaultRule::parse_all("drop 1/100 put portal 42; delay 1ms..20ms every 10 get,reply")? {
    ///     node.add_fault(rule)?;
    /// }
    /// // ... traffic ...
    /// for found in node.faults() {
    ///     println!("{}: {} lost and {} late of {}", found.rule, found.dropped, found.delayed, found.matched);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A node whose only network is `0@lo` delays nothing: no thread needs to drive it, so its time
    /// does not pass. A message of the node to itself may be late by up to another second if the
    /// driving thread already sleeps.
    ///
    /// # Errors
    /// [`NodeError::Fault`]: ENOMEM beyond [`lnet::FAULT_RULES_MAX`] rules, EINVAL for an invalid
    /// one.
    pub fn add_fault(&self, rule: FaultRule) -> Result<FaultId, NodeError> {
        self.drive.engine.add_fault(rule).map_err(|source| NodeError::Fault { source })
    }

    /// Removes a rule and returns its statistics. Messages that it has delayed stay delayed.
    ///
    /// # Errors
    /// [`NodeError::Fault`] with ENOENT if the rule does not exist.
    pub fn remove_fault(&self, id: FaultId) -> Result<FaultStatistics, NodeError> {
        self.drive.engine.remove_fault(id).map_err(|source| NodeError::Fault { source })
    }

    /// Returns the rules in force, in the order in which they apply, with their statistics.
    pub fn faults(&self) -> Vec<FaultStatistics> {
        self.drive.engine.faults()
    }

    /// Returns the TCP LND, for its counters and its failures.
    pub fn tcp(&self) -> &SockLnd {
        &self.sock
    }

    /// Returns the verbs LND; `None` before the first network over RDMA.
    pub fn o2ib(&self) -> Option<&O2ibLnd> {
        self.verbs.get().map(|lnd| &**lnd)
    }

    /// Requests a node's NIDs (lnet-wire 15), and drives the network until it has answered.
    /// `source` is the local NID to send from; `None` lets LNet choose.
    ///
    /// # Errors
    /// [`PingFailure`] has the failed step, and advice.
    pub fn ping(
        &self,
        target: Nid,
        source: Option<Nid>,
        timeout: Duration,
    ) -> Result<PingAnswer, PingFailure> {
        crate::ping::ping(self, target, source, timeout)
    }

    /// Sets the number of connections of each bulk type to a peer (over RDMA: of its one type)
    /// (S-208), for one NI or, with `None`, for all present and later ones; 0 counts as 1. Takes
    /// effect at once, for connected peers too; see [`SockLnd::set_conns_per_peer`].
    ///
    /// # Errors
    /// [`NodeError::NoNi`] (EADDRNOTAVAIL) if the node has no such NI.
    pub fn set_conns_per_peer(&self, nid: Option<Nid>, count: u8) -> Result<(), NodeError> {
        self.check_here()?;
        if let Some(nid) = nid.filter(|nid| !self.nids.read().contains(nid)) {
            return Err(NodeError::NoNi { nid });
        }
        if nid.is_none() {
            self.conns_per_peer.store(count.max(1), Ordering::Relaxed);
        }
        self.sock.set_conns_per_peer(nid, count);
        if let Some(lnd) = self.verbs.get() {
            lnd.set_conns_per_peer(nid, count);
        }
        Ok(())
    }

    /// Waits for the oldest event of the first of these queues that has one, removes it and returns
    /// it (`LNetEQPoll`, S-311). During the wait the calling thread drives the network, and also
    /// wakes when another thread's driving delivers an event. Several threads may wait for one
    /// queue: each event goes to one of them. `None` waits without limit, zero does not wait.
    /// Returns `None` on timeout.
    ///
    /// # Errors
    /// ENOENT if a queue does not exist, or is freed during the wait; EINVAL if it cannot be
    /// polled; ESHUTDOWN once the node has been shut down and the queues are empty; EMFILE without
    /// descriptors.
    pub fn eq_poll(&self, eqs: &[EqHandle], timeout: Option<Duration>) -> Result<Option<Polled>, LNetError> {
        self.drive.eq_poll(eqs, timeout)
    }

    /// Ends the node. Messages being sent, including those that wait for credits or a connection,
    /// get the time `drain` to leave, and so do the handshakes that complete a peer's connection
    /// set, because a kernel node logs an error for an interrupted one. Operations then in flight
    /// end with ESHUTDOWN. Incoming messages that wait for a buffer do not delay the end.
    ///
    /// Peers to which the node has pushed may push back and wait for an ACK: the node continues
    /// until each has done so, or for [`lnet::PUSH_BACK_NS`] after the last push, however short
    /// `drain` is, and also when it is dropped. A kernel node that did not know this one would
    /// otherwise spend three minutes on discovering a node that is gone. A ping, and a discovery
    /// without a push, do not cause such a wait.
    ///
    /// Threads that wait in [`Node::eq_poll`] return with ESHUTDOWN, those in
    /// [`lnet_api::wait_until`] with `false`. A repeated or concurrent call returns when the node
    /// has ended.
    pub fn shutdown(&self, drain: Duration) {
        if !self.fork_guard.in_owner_process() {
            return;
        }
        // A `u64` of nanoseconds is enough for 584 years.
        let drain_ns = u64::try_from(drain.as_nanos()).unwrap_or(u64::MAX);
        self.drain(self.drive.now_ns().saturating_add(drain_ns));
        self.stop();
    }

    /// Drives the network until nothing is left to send, or until this time; in any case until the
    /// peers that may push back have done so and have their ACK, or the wait for them ends.
    fn drain(&self, until_ns: u64) {
        let engine = &self.drive.engine;
        // A peer treats the end of a connection before its hello as a fault.
        let verbs = || self.verbs.get().map_or(0, |lnd| lnd.completing());
        let sent = || engine.sending() == 0 && self.sock.completing() + verbs() == 0;
        // In this order: once no push is awaited, `sent` counts the ACK of the last one.
        let done = || !engine.awaits_push_back(self.drive.now_ns()) && sent();
        // A late acknowledgement moves this deadline.
        let deadline_ns = || until_ns.max(engine.push_backs_end_ns());
        if self.is_ending() || self.drive.now_ns() >= deadline_ns() {
            return;
        }
        // Without a descriptor the drain is skipped.
        let _ = crate::interrupt::with_sleeper(|sleeper| {
            // Other threads may drive the network, and do not report when the last message has
            // left: so the wait checks again after each grace period.
            while !done() && self.drive.now_ns() < deadline_ns() && !self.is_ending() {
                let look_ns = self.drive.now_ns().saturating_add(GRACE.as_nanos() as u64);
                self.drive.wait(sleeper, Some(look_ns.min(deadline_ns())), done);
            }
        });
    }

    fn stop(&self) {
        self.ending.store(true, Ordering::Release);
        drop(self.server.lock().take());
        let mut sched_threads = self.sched_threads.lock();
        // The scheduler threads hold shards; they end here.
        drop(sched_threads.take());
        for nid in std::mem::take(&mut *self.nids.write()) {
            // This cannot fail, because no other thread removes NIs now.
            let _ = self.drive.engine.remove_ni(nid);
            self.verbs.release(nid);
        }
        // The waits are ended after the last events, so that a thread that waits for one of them
        // finds it.
        self.drive.end();
    }

    pub(crate) fn status_server(&self) -> &Mutex<Option<StatusServer>> {
        &self.server
    }

    pub(crate) fn view(&self) -> &StatusView {
        &self.view
    }

    fn check_here(&self) -> Result<(), NodeError> {
        if self.fork_guard.in_owner_process() {
            Ok(())
        } else {
            Err(NodeError::Forked { process: self.fork_guard.process() })
        }
    }

    /// Leaves everything to the parent process, in a forked child: the threads do not exist here,
    /// the sockets are the parent's, and a thread that does not exist may hold a lock. So nothing
    /// of the node is ended.
    fn leave_to_parent(&mut self) {
        std::mem::forget((self.drive.clone(), self.sock.clone(), self.verbs.clone()));
        std::mem::forget(self.sched_threads.get_mut().take());
        std::mem::forget(self.server.get_mut().take());
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.drive.engine
    }

    pub(crate) fn driver(&self) -> &NodeDrive {
        &self.drive
    }

    /// Returns whether ESHUTDOWN means that the whole node ends.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Returns the number of scheduler threads.
    #[cfg(test)]
    pub(crate) fn threads(&self) -> usize {
        self.sched_threads.lock().as_ref().map_or(0, SchedThreads::count)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.fork_guard.in_owner_process() {
            return self.leave_to_parent();
        }
        self.drain(0);
        self.stop();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("nids", &self.nids()).finish_non_exhaustive()
    }
}

/// Nanoseconds since 1970: distinguishes one run of a node from the next (lnet-wire 5, 24).
fn wall_clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests;
