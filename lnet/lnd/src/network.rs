//! The LND of one kind of network.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use lnet_api::{Lnd, LndError, NiLimits, PayloadTarget, Poll, RxContext, Sent, Tx, TxToken, Upcalls};
use lnet_nid::{NetType, Nid, ProcessId};
use lnet_region::Region;
use parking_lot::Mutex;

use crate::counting::{CountersOf, Snapshot};
use crate::driver::{clear_up, end_ni};
use crate::peer::PeerKey;
use crate::protocol::{Driver, NiConfig, OnThisHost, ShardData};
use crate::shard_table::ShardKey;
use crate::{BadTunable, Config, ConnStep, Hardware, LndShared, PeerFailure, Protocol, ShardRequest, Turn};

/// Retry delay when another thread holds the shard's driver lock (NI startup or shutdown in
/// progress): most of these take less.
const RETRY_NS: u64 = 1_000_000;

/// An LND: all networks of one kind that a node has.
///
/// It has a shard per CPU partition, driven with [`Lnd::poll`] by the thread that holds the shard's
/// token. Further hardware interfaces bring further shards, up to `nscheds` per partition (S-203,
/// S-312). All connections of a peer are on one shard: that of the NI on the partition that
/// [`Upcalls::partition_of`] returns (S-209).
pub struct Network<P: Protocol> {
    shared: LndShared<P>,
    /// Settings by NID, for NIs that have some. The lock also serialises the start and end of NIs.
    setup: Mutex<HashMap<Nid, Setup<P>>>,
}

/// The settings of an NI, made before it starts.
struct Setup<P: Protocol> {
    /// The tunables of this NI; `None` if it has the LND's.
    own: Option<NiConfig<P>>,
    hardware: Hardware,
}

impl<P: Protocol> Default for Setup<P> {
    fn default() -> Setup<P> {
        Setup { own: None, hardware: Hardware::default() }
    }
}

/// A snapshot of the counters of all shards.
type CountsOf<P> = <CountersOf<P> as Snapshot>::Counts;

impl<P: OnThisHost> Network<P> {
    /// Makes an LND without NIs, over this host's network.
    ///
    /// # Errors
    /// EINVAL for an invalid tunable; else the missing part of the host, and what to do.
    pub fn new(config: P::Config) -> Result<Network<P>, LndError> {
        config.check()?;
        let system = P::system()?;
        Network::over(config, system)
    }
}

impl<P: Protocol> Network<P> {
    /// Makes an LND over another system than this host's: a simulated one with virtual time and
    /// devices.
    ///
    /// # Errors
    /// EINVAL for an invalid tunable; else the system's error.
    pub fn over(config: P::Config, system: Arc<P::System>) -> Result<Network<P>, LndError> {
        config.check()?;
        let shared = P::open(config, system)?;
        Ok(Network { shared, setup: Mutex::default() })
    }

    /// Returns the number of connections that are being opened to peers that have some already:
    /// their sets are not complete yet. Blocks until the current polls have returned.
    #[must_use]
    pub fn completing(&self) -> usize {
        self.shared.shards.iter().map(|slot| slot.driver.lock().completing()).sum()
    }

    /// Returns the number of messages that the engine holds back and this LND keeps, in memory and
    /// on connections.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.shards.iter().map(|slot| slot.shard.held()).sum()
    }

    /// Returns the number of bytes that messages in memory count while they wait for a buffer on a
    /// lazy portal.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.shared.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns the tunables with which the LND was made.
    #[must_use]
    pub fn config(&self) -> &P::Config {
        &self.shared.config
    }

    /// Returns the state shared by all shards, for functions that only one kind of network has.
    #[must_use]
    pub fn shared(&self) -> &LndShared<P> {
        &self.shared
    }

    /// Returns a snapshot of the counters of all shards.
    #[must_use]
    pub fn counters(&self) -> CountsOf<P> {
        let mut sum = CountsOf::<P>::default();
        self.shared.shards.iter().for_each(|slot| sum += slot.shard.counters.snapshot());
        sum
    }

    /// Counts peers and connections. Takes time linear in the number of peers, and locks each of
    /// them briefly.
    #[must_use]
    pub fn conn_stats(&self) -> P::ConnStats {
        P::ConnStats::from(&self.shared)
    }

    /// Returns the reason why the last connection to a NID failed, over any NI; `None` if it
    /// succeeded.
    #[must_use]
    pub fn last_failure(&self, nid: Nid) -> Option<PeerFailure> {
        let peers = self.shared.peers.all(|peer| peer.key.id.nid == nid);
        peers.into_iter().find_map(|peer| peer.state.lock().failure.clone())
    }

    /// Returns the connection step that a NID has reached, over any NI: [`ConnStep::Established`] if
    /// there is a connection, else the step of the one that is being opened; `None` if there is
    /// neither.
    #[must_use]
    pub fn progress(&self, nid: Nid) -> Option<ConnStep> {
        let peers = self.shared.peers.all(|peer| peer.key.id.nid == nid);
        let connected = peers.iter().any(|peer| !peer.state.lock().conns.is_empty());
        if connected {
            Some(ConnStep::Established)
        } else {
            peers.iter().find_map(|peer| peer.state.lock().step)
        }
    }

    /// Sets tunables for the NI of this NID only. They take effect each time it starts.
    ///
    /// # Errors
    /// Names the first invalid value.
    pub fn configure(&self, nid: Nid, config: NiConfig<P>) -> Result<(), BadTunable> {
        self.shared.config.of(&config).check()?;
        self.setup.lock().entry(nid).or_default().own = Some(config);
        Ok(())
    }

    /// Sets the hardware of the NI with this NID, from its next start on. NIs on one device share
    /// their shards; without this call an NI counts as one on a separate device (S-312).
    pub fn set_hardware(&self, nid: Nid, hardware: Hardware) {
        self.setup.lock().entry(nid).or_default().hardware = hardware;
    }

    /// Sets the number of connections per peer (over TCP: of each bulk type), for one NI or for all
    /// present and future ones (S-208); 0 counts as 1. With more, the side that opened a peer's
    /// connections opens the missing ones; with fewer, existing connections stay: over TCP a peer
    /// drops all of them with one (lnet-wire 28).
    ///
    /// The number that a node accepts is its own setting. Over TCP a peer that takes fewer is asked
    /// again `min_reconnect_ms` later, three times; then the existing connections suffice until
    /// this function is called again, even with the same number, or until they are gone (lnet-wire
    /// 24). A peer that resets a surplus connection gets another request `max_reconnect_ms` later.
    pub fn set_conns_per_peer(&self, nid: Option<Nid>, count: u8) {
        let count = count.clamp(1, P::CONNS_PER_PEER_MAX);
        let mut setup = self.setup.lock();
        if nid.is_none() {
            self.shared.set_conns_per_peer(count);
        }
        let own = setup.iter_mut().filter(|(of, _)| nid.is_none_or(|nid| nid == **of));
        for config in own.filter_map(|(_, setup)| setup.own.as_mut()) {
            *P::Config::conns_per_peer(config) = count;
        }
        for ni in self.shared.nis.matching(nid) {
            ni.set_conns_per_peer(count);
            for peer in self.shared.peers.all(|peer| Arc::ptr_eq(&peer.ni, &ni)) {
                peer.shard.clone().request(ShardRequest::Complete(peer));
            }
        }
    }
}

impl<P: Protocol> Lnd for Network<P> {
    fn net_type(&self) -> NetType {
        P::NET_TYPE
    }

    fn startup(&self, ni: ProcessId, upcalls: Arc<dyn Upcalls>) -> Result<NiLimits, LndError> {
        let setup = self.setup.lock();
        let known = setup.get(&ni.nid);
        let hardware = known.map(|known| known.hardware.clone()).unwrap_or_default();
        let own = known.and_then(|known| known.own.clone()).unwrap_or_else(|| {
            let mut own = NiConfig::<P>::from(&self.shared.config);
            *P::Config::conns_per_peer(&mut own) = self.shared.conns_per_peer();
            own
        });
        P::start(&self.shared, ni, (own, hardware), upcalls)
    }

    fn shutdown(&self, ni: Nid) {
        let shared = &self.shared;
        let _setup = self.setup.lock();
        let Some(ni) = shared.nis.remove(ni) else { return };
        for slot in shared.shards.iter() {
            end_ni(&mut *slot.driver.lock(), shared, &slot.shard, &ni);
        }
        P::ending(&ni);
        // Up to this point one shard could hand a connection of the NI over to another shard. If
        // this was the last NI, no thread polls any more, so the descriptors must be closed here.
        for slot in shared.shards.iter() {
            clear_up(&mut *slot.driver.lock(), shared, &slot.shard);
            // A poll in the meantime returned at once, and its thread may now sleep although the
            // driver has work left from its last poll.
            slot.shard.own.wake();
        }
        P::ended(shared, &ni);
    }

    fn send(&self, tx: Tx) -> Sent {
        P::send(&self.shared, tx).unwrap_or_else(|errno| Sent::Now(Err(errno)))
    }

    fn withdraw(&self, ni: Nid, peer: ProcessId, token: TxToken) -> bool {
        self.shared.withdraw(PeerKey { ni, id: P::name_of(peer) }, token)
    }

    fn resume(&self, rx: RxContext, delivery: Option<PayloadTarget>) {
        let key = ShardKey(rx.0);
        if let Some(slot) = self.shared.shards.slot(key.shard()) {
            slot.shard.request(ShardRequest::Resume(key, delivery));
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
        // Another thread holds the driver only if an NI is being started or ended, or if a caller
        // breaks the token rule or polls from inside an upcall.
        let Some(mut driver) = slot.driver.try_lock() else {
            return Poll { work: 0, deadline_ns: Some(now_ns.saturating_add(RETRY_NS)) };
        };
        driver.poll(Turn { shared: &self.shared, shard: &slot.shard, now_ns }, budget)
    }

    fn arm(&self, shard: usize) -> bool {
        let Some(slot) = self.shared.shards.slot(shard) else { return true };
        // While another thread holds the driver nothing is armed, and the caller must not sleep
        // yet.
        !slot.shard.has_work() && slot.driver.try_lock().is_some_and(|mut driver| driver.arm(&slot.shard))
    }

    /// # Panics
    /// If there is no such shard.
    fn wait_fd(&self, shard: usize) -> BorrowedFd<'_> {
        match self.shared.shards.slot(shard) {
            Some(slot) => slot.shard.own.fd(),
            None => panic!("shard {shard} of {}", self.shards()),
        }
    }

    fn is_active(&self) -> bool {
        !self.shared.nis.is_empty() || self.shared.shards.iter().any(|slot| slot.shard.has_work())
    }

    fn register(&self, region: &Region) -> Result<(), LndError> {
        P::register(&self.shared, region);
        Ok(())
    }

    fn deregister(&self, _region: &Region) {
        // The devices' registrations end with the region, so nothing is to be done.
    }
}

impl<P: Protocol> Drop for Network<P> {
    /// Ends the NIs that are still up: connections and the upcalls hold references to each other.
    fn drop(&mut self) {
        for nid in self.shared.nis.nids() {
            self.shutdown(nid);
        }
    }
}

impl<P: Protocol> fmt::Debug for Network<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(P::NAME).field("nids", &self.shared.nis.nids()).finish_non_exhaustive()
    }
}
