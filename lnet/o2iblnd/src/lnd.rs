use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use hashbrown::HashMap;
use lnet_api::{Delivery, Errno, Lnd, LndError, NiLimits, Poll, RxContext, Sent, Tx, TxToken, Upcalls};
use lnet_nid::{NetType, Nid, ProcessId};
use lnet_proto::ib::End;
use lnet_region::Region;
use parking_lot::Mutex;

use crate::driver::{Depths, Turn};
use crate::fabric::{Fabric, FabricError};
use crate::memory::{self, By, Pool};
use crate::ni::Ni;
use crate::shard::Request;
use crate::shared::Shared;
use crate::{Failure, NiConfig, O2ibConfig, O2ibCounters, O2ibError, Step, replies, sizes};
use lnet_lnd::Seldom;
use lnet_lnd::counting::Snapshot;
use lnet_lnd::slab::Key;
use lnet_lnd::tables::PeerKey;

/// Who finds a shard's driver at work elsewhere looks again so soon: an NI starts or ends in less than that, mostly.
const AGAIN_NS: u64 = 1_000_000;

/// The verbs LND: all `o2ib` networks of a node.
///
/// It has a shard per CPU partition from its first NI on, each with a channel of its own, which whoever holds the shard's
/// token drives with [`Lnd::poll`]. Further NIs bring further shards, up to `nscheds` per partition (S-203, S-312). All
/// connections of a peer are on one shard: that of the NI on the partition which [`Upcalls::partition_of`] names (S-209).
pub struct O2ibLnd {
    pub(crate) shared: Shared,
    /// NIs start and end one at a time. What some of them have otherwise than the others.
    setup: Mutex<HashMap<Nid, NiConfig>>,
}

impl O2ibLnd {
    /// An LND without NIs over this host's RDMA devices.
    ///
    /// # Errors
    /// EINVAL for a tunable that cannot be; ENOSYS where libibverbs or librdmacm is not installed, ENODEV without any RDMA device,
    /// EACCES for a user who may not use them: each says what to do.
    #[cfg(feature = "verbs")]
    pub fn new(config: O2ibConfig) -> Result<O2ibLnd, LndError> {
        config.check()?;
        let host = crate::verbs::Host::of_lnd();
        // Whatever is missing in general is missing for this.
        host.channel().map_err(|FabricError { what, errno }| LndError { what, errno })?;
        O2ibLnd::over(config, Arc::new(host))
    }

    /// An LND without NIs over these RDMA devices: a host's, or simulated ones.
    ///
    /// # Errors
    /// EINVAL for a tunable that cannot be.
    pub fn over(config: O2ibConfig, fabric: Arc<dyn Fabric>) -> Result<O2ibLnd, LndError> {
        config.check()?;
        Ok(O2ibLnd { shared: Shared::new(config, fabric), setup: Mutex::default() })
    }

    /// The tunables it was made with.
    #[must_use]
    pub fn config(&self) -> &O2ibConfig {
        &self.shared.config
    }

    /// Its counters, at this moment.
    #[must_use]
    pub fn counters(&self) -> O2ibCounters {
        let mut sum = O2ibCounters::default();
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
    /// the step of the one that is being opened; `None` if there is neither.
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
    pub fn configure(&self, nid: Nid, config: NiConfig) -> Result<(), O2ibError> {
        self.shared.config.of(&config).check()?;
        self.setup.lock().insert(nid, config);
        Ok(())
    }

    /// Sets how many connections to a peer this node opens, of one NI or of all there are and will be; 0 counts as 1. With more,
    /// whichever side has opened a peer's connections opens the missing ones; with fewer, those that stand stay.
    pub fn set_conns_per_peer(&self, nid: Option<Nid>, count: u8) {
        let count = count.clamp(1, sizes::CONNS_PER_PEER_MAX as u8);
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

    fn start(&self, id: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, O2ibError> {
        let nid = id.nid;
        let ip = nid.ipv4().filter(|_| nid.net().net_type() == NetType::O2IB);
        let ip = ip.ok_or(O2ibError::NotO2ib { nid })?;
        let Shared { fabric, nis, shards, config, .. } = &self.shared;
        let setup = self.setup.lock();
        if nis.get(nid).is_some() {
            return Err(O2ibError::NidTaken { nid });
        }
        let own = setup.get(&nid).cloned().unwrap_or_else(|| self.unless_configured());
        let adjusted = sizes::adjust(&config.of(&own));
        let refused = |error: FabricError| O2ibError::Fabric { nid, error };
        let device = fabric.open(ip).map_err(refused)?;
        // What the device cannot do is better known now than with the first peer.
        sizes::connection(&adjusted, adjusted.peer_credits, adjusted.fragments, device.limits())?;
        self.shared.grow(nis.len() + 1).map_err(refused)?;
        let sub = nis.emptiest_sub(shards.subs());
        let limits = NiLimits {
            credits: adjusted.credits,
            peer_credits: adjusted.peer_credits.into(),
            timeout_ns: own.timeout_ns(),
        };
        let listens = config.listens && !nis.any(|other| other.ip == ip);
        let ni = Arc::new(Ni {
            id,
            ip,
            end: End { nid, stamp: replies::marked(fabric.incarnation()) },
            device: device.clone(),
            upcalls,
            adjusted,
            conns_per_peer: AtomicU8::new(own.conns_per_peer),
            config: own,
            sub,
            pool: Arc::new(Pool::new(By::Us)),
            sinks: Arc::new(Pool::new(By::Peers)),
            admission: Arc::default(),
            depths: Depths::default(),
            refused_memory: Seldom::default(),
            failed_transfers: Seldom::default(),
            turned_away: Seldom::default(),
            port: Mutex::new(true),
        });
        let number = shards.shard(sub, 0).number;
        if let Some(slot) = shards.slot(number).filter(|_| listens) {
            slot.driver.lock().listen(&slot.shard, &device, ni.address(config.service)).map_err(refused)?;
            slot.shard.channel.ring();
        }
        nis.insert(ni.clone());
        // Of what happened to it before, nobody has told.
        ni.look_at_port();
        Ok(limits)
    }

    /// What an NI has that says nothing of its own.
    fn unless_configured(&self) -> NiConfig {
        let conns_per_peer = self.shared.conns_per_peer.load(Ordering::Relaxed);
        NiConfig { conns_per_peer, ..NiConfig::from(&self.shared.config) }
    }
}

impl Lnd for O2ibLnd {
    fn net_type(&self) -> NetType {
        NetType::O2IB
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        Ok(self.start(ni, upcalls)?)
    }

    fn shutdown(&self, ni: Nid) {
        let Shared { nis, shards, .. } = &self.shared;
        let _setup = self.setup.lock();
        let Some(ni) = nis.remove(ni) else { return };
        for slot in shards.iter() {
            slot.driver.lock().shutdown(&self.shared, &slot.shard, &ni);
        }
        for pending in ni.pool.abandon().into_iter().chain(ni.sinks.abandon()) {
            let (token, sink) = (pending.token, pending.sink);
            drop(sink);
            ni.upcalls.finalize_get(token, Err(Errno::ESHUTDOWN));
        }
        // Until then one shard could still hand a request to another. If it was the last NI, nobody polls any more.
        for slot in shards.iter() {
            slot.driver.lock().clear_up(&self.shared, &slot.shard);
            // Whoever has polled meanwhile has not looked at it.
            slot.shard.channel.ring();
        }
    }

    fn send(&self, tx: Tx) -> Sent {
        self.shared.send(tx)
    }

    fn withdraw(&self, ni: Nid, peer: ProcessId, token: TxToken) -> bool {
        self.shared.withdraw(PeerKey { ni, id: ProcessId::lnet(peer.nid) }, token)
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
        // is being started or ended.
        let Some(mut driver) = slot.driver.try_lock() else {
            return Poll { work: 0, deadline_ns: Some(now_ns.saturating_add(AGAIN_NS)) };
        };
        driver.poll(Turn { shared: &self.shared, shard: &slot.shard, now_ns }, budget)
    }

    fn arm(&self, shard: usize) -> bool {
        let Some(slot) = self.shared.shards.slot(shard) else { return true };
        // Where somebody else drives, nothing is armed: the caller is not to sleep yet.
        !slot.shard.has_work() && slot.driver.try_lock().is_some_and(|mut driver| driver.arm(&slot.shard))
    }

    /// # Panics
    /// If there is no such shard.
    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        match self.shared.shards.slot(shard) {
            Some(slot) => slot.shard.channel.fd(),
            None => panic!("shard {shard} of {}", self.shards()),
        }
    }

    fn is_active(&self) -> bool {
        let Shared { nis, shards, .. } = &self.shared;
        !nis.is_empty() || shards.iter().any(|slot| slot.shard.has_work())
    }

    fn register(&self, region: &Region) -> Result<(), LndError> {
        let now_ns = self.shared.shards.slot(0).map_or(0, |slot| slot.shard.now_ns());
        for ni in self.shared.nis.matching(None) {
            // What cannot be registered is copied.
            memory::register(&ni, region, By::Us, now_ns);
        }
        Ok(())
    }

    fn deregister(&self, _region: &Region) {
        // It goes with the region.
    }
}

impl Drop for O2ibLnd {
    /// Ends the NIs that nobody has ended: connections and the upcalls hold each other.
    fn drop(&mut self) {
        for nid in self.shared.nis.nids() {
            self.shutdown(nid);
        }
    }
}

impl std::fmt::Debug for O2ibLnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("O2ibLnd").field("nids", &self.shared.nis.nids()).finish_non_exhaustive()
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<O2ibLnd>();
};
