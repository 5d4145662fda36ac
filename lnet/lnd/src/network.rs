//! The LND of one kind of network.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use lnet_api::{Delivery, Lnd, LndError, NiLimits, Poll, RxContext, Sent, Tx, TxToken, Upcalls};
use lnet_nid::{NetType, Nid, ProcessId};
use lnet_region::Region;
use parking_lot::Mutex;

use crate::counting::{CountersOf, Snapshot};
use crate::driver::{clear_up, end_ni};
use crate::peer::PeerKey;
use crate::protocol::{Driver, NiConfig, OfShard, OnThisHost};
use crate::slab::Key;
use crate::{BadTunable, Config, Failure, Hardware, Protocol, Request, Shared, Step, Turn};

/// Who finds a shard's driver at work elsewhere looks again so soon: an NI starts or ends in less than that, mostly.
const AGAIN_NS: u64 = 1_000_000;

/// An LND: all networks of one kind that a node has.
///
/// It has a shard per CPU partition, which whoever holds the shard's token drives with [`Lnd::poll`]. Further hardware interfaces
/// bring further shards, up to `nscheds` per partition (S-203, S-312). All connections of a peer are on one shard: that of the NI on the partition
/// which [`Upcalls::partition_of`] names (S-209).
pub struct Network<P: Protocol> {
    shared: Shared<P>,
    /// NIs start and end one at a time. What some of them have otherwise than the others.
    setup: Mutex<HashMap<Nid, Setup<P>>>,
}

/// What is known of an NI before it starts.
struct Setup<P: Protocol> {
    /// Its own tunables, if it has some.
    own: Option<NiConfig<P>>,
    hardware: Hardware,
}

impl<P: Protocol> Default for Setup<P> {
    fn default() -> Setup<P> {
        Setup { own: None, hardware: Hardware::default() }
    }
}

/// What was counted on all shards.
type CountsOf<P> = <CountersOf<P> as Snapshot>::Counts;

impl<P: OnThisHost> Network<P> {
    /// An LND without NIs, over this host's network.
    ///
    /// # Errors
    /// EINVAL for a tunable that cannot be; what the host lacks, and what to do.
    pub fn new(config: P::Config) -> Result<Network<P>, LndError> {
        config.check()?;
        let system = P::system()?;
        Network::over(config, system)
    }
}

impl<P: Protocol> Network<P> {
    /// The same over another system than this host's: a stand-in whose time is virtual, simulated devices.
    ///
    /// # Errors
    /// EINVAL for a tunable that cannot be; what the system refuses.
    pub fn over(config: P::Config, system: Arc<P::System>) -> Result<Network<P>, LndError> {
        config.check()?;
        let shared = P::open(config, system)?;
        Ok(Network { shared, setup: Mutex::default() })
    }

    /// How many connections are being opened to peers that have some already: their sets are not complete yet. Waits for the
    /// polls that are under way.
    #[must_use]
    pub fn completing(&self) -> usize {
        self.shared.shards.iter().map(|slot| slot.driver.lock().completing()).sum()
    }

    /// How many messages the engine holds back that this LND has, in memory and on connections.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.shards.iter().map(|slot| slot.shard.held()).sum()
    }

    /// How many bytes count of messages that wait in memory for a buffer on a lazy portal.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.shared.held_bytes.load(Ordering::Relaxed)
    }

    /// The tunables it was made with.
    #[must_use]
    pub fn config(&self) -> &P::Config {
        &self.shared.config
    }

    /// What its shards share: for what one kind of network alone can do.
    #[must_use]
    pub fn shared(&self) -> &Shared<P> {
        &self.shared
    }

    /// Its counters, at this moment.
    #[must_use]
    pub fn counters(&self) -> CountsOf<P> {
        let mut sum = CountsOf::<P>::default();
        self.shared.shards.iter().for_each(|slot| sum += slot.shard.counters.snapshot());
        sum
    }

    /// Counts peers and connections. Takes time linear in the peers, and the lock of each for a moment.
    #[must_use]
    pub fn conn_stats(&self) -> P::ConnStats {
        P::ConnStats::from(&self.shared)
    }

    /// Why the last connection to a NID failed, if one did since the last success; over whichever NI.
    #[must_use]
    pub fn last_failure(&self, nid: Nid) -> Option<Failure> {
        let peers = self.shared.peers.all(|peer| peer.key.id.nid == nid);
        peers.into_iter().find_map(|peer| peer.state.lock().failure.clone())
    }

    /// How far connecting to a NID is at this moment, over whichever NI: [`Step::Established`] if there is a connection, else
    /// the step of the one that is being opened; `None` if there is neither.
    #[must_use]
    pub fn progress(&self, nid: Nid) -> Option<Step> {
        let peers = self.shared.peers.all(|peer| peer.key.id.nid == nid);
        let connected = peers.iter().any(|peer| !peer.state.lock().conns.is_empty());
        if connected { Some(Step::Established) } else { peers.iter().find_map(|peer| peer.state.lock().step) }
    }

    /// Gives the NI of this NID tunables of its own, for each time it starts from now on.
    ///
    /// # Errors
    /// A value that cannot be.
    pub fn configure(&self, nid: Nid, config: NiConfig<P>) -> Result<(), BadTunable> {
        self.shared.config.of(&config).check()?;
        self.setup.lock().entry(nid).or_default().own = Some(config);
        Ok(())
    }

    /// Sets the hardware of the NI with this NID, from its next start on. NIs on one device share their shards; without this call an
    /// NI counts as one on a separate device (S-312).
    pub fn set_hardware(&self, nid: Nid, hardware: Hardware) {
        self.setup.lock().entry(nid).or_default().hardware = hardware;
    }

    /// Sets how many connections peers have (over TCP: of each bulk type), of one NI or of all there are and will be (S-208); 0
    /// counts as 1. With more, whichever side has opened a peer's connections opens the missing ones; with fewer, those that stand
    /// stay: over TCP a peer drops all of them with one (lnet-wire 28).
    ///
    /// How many a node takes is its own setting. Over TCP a peer that takes fewer is asked again `min_reconnect_ms` later, three
    /// times; then those there are do, until this is called again, with the same number too, or they are gone
    /// (lnet-wire 24). A peer that resets a connection of which it has enough is asked again `max_reconnect_ms` later.
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
                peer.shard.clone().request(Request::Complete(peer));
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
        // Until then one shard could still hand a connection of the NI over to another. If it was the last NI, nobody polls
        // any more, and the descriptors would stay.
        for slot in shared.shards.iter() {
            clear_up(&mut *slot.driver.lock(), shared, &slot.shard);
            // Whoever polled meanwhile was turned away, and may sleep over what it had left from its last poll.
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
        // Whatever was registered goes with the region.
    }
}

impl<P: Protocol> Drop for Network<P> {
    /// Ends the NIs that nobody has ended: connections and the upcalls hold each other.
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
