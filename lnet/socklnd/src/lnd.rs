use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use hashbrown::HashMap;

use lnet_api::{Delivery, Lnd, LndError, NiLimits, Poll, RxContext, Sent, Tx, TxToken, Upcalls};
use lnet_nid::{NetType, Nid, ProcessId};
use lnet_region::Region;
use parking_lot::Mutex;

use crate::driver::Turn;
use crate::ni::Ni;
use crate::shard::Request;
use crate::shared::Shared;
use crate::sys::{Listener, Net, Options, Os};
use crate::{AcceptPolicy, Failure, NiConfig, SockConfig, SockCounters, SockError, Step};
use lnet_lnd::counting::Snapshot;
use lnet_lnd::slab::Key;
use lnet_lnd::tables::PeerKey;

/// Who finds a shard's driver at work elsewhere looks again so soon: an NI starts or ends in less than that, mostly.
const AGAIN_NS: u64 = 1_000_000;

/// The TCP LND: all `tcp` networks of a node.
///
/// It has a shard per CPU partition, each with a poller of its own, which whoever holds the shard's token drives with
/// [`Lnd::poll`]. Further NIs bring further shards, up to `nscheds` per partition (S-203, S-312). All connections of a
/// peer are on one shard: that of the NI on the partition which [`Upcalls::partition_of`] names (S-209).
pub struct SockLnd {
    pub(crate) shared: Shared,
    /// NIs start and end one at a time. What some of them have otherwise than the others.
    setup: Mutex<HashMap<Nid, NiConfig>>,
}

impl SockLnd {
    /// An LND without NIs.
    ///
    /// # Errors
    /// EINVAL for a tunable that cannot be, EMFILE without descriptors.
    pub fn new(config: SockConfig) -> Result<SockLnd, LndError> {
        SockLnd::over(config, Arc::new(Os))
    }

    /// The same over another system than this host's: a stand-in whose time is virtual.
    ///
    /// # Errors
    /// As [`SockLnd::new`].
    pub fn over(config: SockConfig, net: Arc<dyn Net>) -> Result<SockLnd, LndError> {
        config.check()?;
        let shared = Shared::new(config, net)
            .map_err(|errno| LndError { what: "set up the TCP LND's epoll set".to_string(), errno })?;
        Ok(SockLnd { shared, setup: Mutex::default() })
    }

    /// The tunables it was made with.
    #[must_use]
    pub fn config(&self) -> &SockConfig {
        &self.shared.config
    }

    /// Its counters, at this moment.
    #[must_use]
    pub fn counters(&self) -> SockCounters {
        let mut sum = SockCounters::default();
        self.shared.shards.iter().for_each(|slot| sum += slot.shard.counters.snapshot());
        sum
    }

    /// Why the last connection to a NID failed, if one did since the last success; over whichever NI.
    #[must_use]
    pub fn last_failure(&self, nid: Nid) -> Option<Failure> {
        let mut peers = Vec::new();
        self.shared.peers.collect(&mut peers, |peer| peer.key.id.nid == nid);
        peers.into_iter().find_map(|peer| peer.state.lock().failure.clone())
    }

    /// How far connecting to a NID is at this moment, over whichever NI: [`Step::Established`] if there is a connection, else
    /// [`Step::Connect`] or [`Step::Handshake`] of the one that is being opened; `None` if there is neither.
    #[must_use]
    pub fn progress(&self, nid: Nid) -> Option<Step> {
        let mut peers = Vec::new();
        self.shared.peers.collect(&mut peers, |peer| peer.key.id.nid == nid);
        let connected = peers.iter().any(|peer| !peer.state.lock().conns.is_empty());
        if connected { Some(Step::Established) } else { peers.iter().find_map(|peer| peer.state.lock().step) }
    }

    /// Gives the NI of this NID tunables of its own, for each time it starts from now on.
    ///
    /// # Errors
    /// A value that cannot be.
    pub fn configure(&self, nid: Nid, config: NiConfig) -> Result<(), SockError> {
        config.check()?;
        self.setup.lock().insert(nid, config);
        Ok(())
    }

    /// Sets how many connections of each bulk type peers have (S-208), of one NI or of all there are and will be; 0 counts
    /// as 1. With more, whichever side has opened a peer's connections opens the missing ones; with fewer, those that
    /// stand stay, for a peer drops all of them with one (lnet-wire 28).
    ///
    /// How many a node takes is its own setting. A peer that takes fewer is asked again `min_reconnect_ms` later, three
    /// times; then those there are do, until this is called again, with the same number too, or they are gone
    /// (lnet-wire 24). A peer that resets a connection of which it has enough is asked again `max_reconnect_ms` later.
    pub fn set_conns_per_peer(&self, nid: Option<Nid>, count: u8) {
        let count = count.max(1);
        let mut setup = self.setup.lock();
        if nid.is_none() {
            self.shared.conns_per_peer.store(count, Ordering::Relaxed);
        }
        setup.iter_mut().filter(|(of, _)| nid.is_none_or(|nid| nid == **of)).for_each(|(_, config)| {
            config.conns_per_peer = count;
        });
        for ni in self.shared.nis.matching(nid) {
            ni.conns_per_peer.store(count, Ordering::Relaxed);
            let mut peers = Vec::new();
            self.shared.peers.collect(&mut peers, |peer| Arc::ptr_eq(&peer.ni, &ni));
            for peer in peers {
                peer.shard.clone().request(Request::Complete(peer));
            }
        }
    }

    fn start(&self, id: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, SockError> {
        let nid = id.nid;
        let ip =
            nid.ip().filter(|_| nid.net().net_type() == NetType::TCP).ok_or(SockError::NotTcp { nid })?;
        let Shared { net, nis, shards, config, .. } = &self.shared;
        let setup = self.setup.lock();
        let own = setup.get(&nid).cloned().unwrap_or_else(|| self.unless_configured());
        let claim = Mutex::new(Some(net.claim(nid)?));
        self.shared
            .grow(nis.len() + 1)
            .map_err(|errno| SockError::System { what: format!("set up a shard for {nid}"), errno })?;
        let sub = nis.emptiest_sub(shards.subs());
        let ni = Arc::new(Ni {
            id,
            ip,
            incarnation: net.incarnation(),
            upcalls,
            timeout_ns: own.timeout_ns(),
            options: Options::of(config, &own),
            conns_per_peer: AtomicU8::new(own.conns_per_peer),
            sub,
            claim,
        });
        let listeners = self.listeners(&ni)?;
        nis.insert(ni);
        for listener in listeners {
            shards.shard(sub, 0).request(Request::Listen(listener));
        }
        let NiConfig { credits, peer_credits, .. } = own;
        Ok(NiLimits { credits, peer_credits, timeout_ns: own.timeout_ns() })
    }

    /// What an NI has that says nothing of its own.
    fn unless_configured(&self) -> NiConfig {
        let conns_per_peer = self.shared.conns_per_peer.load(Ordering::Relaxed);
        NiConfig { conns_per_peer, ..NiConfig::from(&self.shared.config) }
    }

    /// The listeners an NI needs: none if nobody may connect, or if another NI has the address.
    fn listeners(&self, ni: &Ni) -> Result<Vec<Box<dyn Listener>>, SockError> {
        let Shared { net, nis, config, options, policy, .. } = &self.shared;
        if *policy == AcceptPolicy::None || nis.any(|other| other.ip == ni.ip) {
            return Ok(Vec::new());
        }
        config.ports().map(|port| net.listen(ni.address(port), config.backlog, options)).collect()
    }
}

impl Lnd for SockLnd {
    fn net_type(&self) -> NetType {
        NetType::TCP
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        Ok(self.start(ni, upcalls)?)
    }

    fn shutdown(&self, ni: Nid) {
        let Shared { nis, shards, attempts, .. } = &self.shared;
        let _setup = self.setup.lock();
        let Some(ni) = nis.remove(ni) else { return };
        for slot in shards.iter() {
            slot.driver.lock().shutdown(&self.shared, &slot.shard, &ni);
        }
        // Until then one shard could still hand a connection of the NI over to another. If it was the last NI, nobody polls
        // any more, and the descriptors would stay.
        for slot in shards.iter() {
            slot.driver.lock().clear_up(&self.shared, &slot.shard);
            // Whoever polled meanwhile was turned away, and may sleep over what it had left from its last poll.
            slot.shard.wake();
        }
        attempts.forget(ni.id.nid);
        ni.claim.lock().take();
    }

    fn send(&self, tx: Tx) -> Sent {
        self.shared.send(tx)
    }

    fn withdraw(&self, ni: Nid, peer: ProcessId, token: TxToken) -> bool {
        self.shared.withdraw(PeerKey { ni, id: peer }, token)
    }

    fn resume(&self, rx: RxContext, delivery: Option<Delivery>) {
        let key = Key(rx.0);
        if let Some(slot) = self.shared.shards.slot(key.shard()) {
            slot.shard.request(Request::Resume(key, delivery));
        }
    }

    fn shards(&self) -> usize {
        self.shared.shards.count()
    }

    fn partition(&self, shard: usize) -> usize {
        self.shared.shards.partition_of(shard)
    }

    fn poll(&self, shard: usize, now_ns: u64, budget: usize) -> Poll {
        let Some(slot) = self.shared.shards.slot(shard) else { return Poll::default() };
        // Somebody else drives only if a caller breaks the rule of the tokens, or polls from inside an upcall; or an NI
        // is being ended.
        let Some(mut driver) = slot.driver.try_lock() else {
            return Poll { work: 0, deadline_ns: Some(now_ns.saturating_add(AGAIN_NS)) };
        };
        driver.poll(Turn { shared: &self.shared, shard: &slot.shard, now_ns }, budget)
    }

    fn arm(&self, shard: usize) -> bool {
        let Some(slot) = self.shared.shards.slot(shard) else { return true };
        // Where somebody else drives, nothing is armed: the caller is not to sleep yet.
        !slot.shard.has_work() && slot.driver.try_lock().is_some_and(|mut driver| driver.arm())
    }

    /// # Panics
    /// If there is no such shard.
    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        match self.shared.shards.slot(shard) {
            Some(slot) => slot.shard.poller.fd(),
            None => panic!("shard {shard} of {}", self.shards()),
        }
    }

    fn is_active(&self) -> bool {
        let Shared { nis, shards, .. } = &self.shared;
        !nis.is_empty() || shards.iter().any(|slot| slot.shard.has_work())
    }

    fn register(&self, _region: &Region) -> Result<(), LndError> {
        Ok(())
    }

    fn deregister(&self, _region: &Region) {}
}

impl Drop for SockLnd {
    /// Ends the NIs that nobody has ended: connections and the upcalls hold each other.
    fn drop(&mut self) {
        for nid in self.shared.nis.nids() {
            self.shutdown(nid);
        }
    }
}

impl std::fmt::Debug for SockLnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SockLnd").field("nids", &self.shared.nis.nids()).finish_non_exhaustive()
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<SockLnd>();
};
