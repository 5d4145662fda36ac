//! The state of an LND that senders, drivers and all other threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use lnet_api::{Errno, Tx, TxToken};
use lnet_nid::ProcessId;

use crate::config::Config;
use crate::peer::{PeerKey, PeerTable};
use crate::protocol::{Connection, Driver, NiConfig};
use crate::shards::Shards;
use crate::{Ni, NiTable, Peer, PeerState, Protocol, Shard};

/// The state of an LND that senders, drivers and all other threads share.
pub struct LndShared<P: Protocol> {
    /// The tunables that the LND was made with.
    pub config: P::Config,
    /// The NIs that are up.
    pub nis: Arc<NiTable<P>>,
    /// All peers.
    pub peers: PeerTable<P>,
    /// All shards.
    pub shards: Shards<Shard<P>, P::Driver>,
    /// Bytes of held messages in memory, on all shards.
    pub(crate) held_bytes: AtomicUsize,
    /// The number of connections per peer for NIs that do not set it.
    conns_per_peer: AtomicU8,
    /// Additional shared state that the kind of network needs.
    pub own: P,
}

impl<P: Protocol> LndShared<P> {
    /// Makes the state without NIs and without shards ([`Shards::grow`]).
    pub fn new(config: P::Config, own: P) -> LndShared<P> {
        let (partitions, nscheds) = config.shards();
        let conns_per_peer = *P::Config::conns_per_peer(&mut NiConfig::<P>::from(&config));
        LndShared {
            config,
            nis: Arc::default(),
            peers: PeerTable::default(),
            shards: Shards::new(partitions, nscheds),
            held_bytes: AtomicUsize::new(0),
            conns_per_peer: AtomicU8::new(conns_per_peer),
            own,
        }
    }

    /// Makes the shards for `interfaces` hardware interfaces, if they are missing; `own` makes the
    /// network's part of the shard with this number. A shard's memory lies near its partition
    /// (S-305).
    ///
    /// # Errors
    /// Those of `own`.
    pub fn grow<E>(
        &self,
        interfaces: usize,
        own: impl Fn(usize) -> Result<P::ShardData, E>,
    ) -> Result<(), E> {
        self.shards.grow(interfaces, |number| {
            let make = || Ok((Shard::new(number, own(number)?), P::Driver::new(&self.config, number)));
            self.config.memory().near(self.shards.partition_of(number), make)
        })
    }

    /// Returns the number of connections per peer for NIs that do not set it.
    pub(crate) fn conns_per_peer(&self) -> u8 {
        self.conns_per_peer.load(Ordering::Relaxed)
    }

    /// Sets the number of connections per peer for NIs that do not set it.
    pub(crate) fn set_conns_per_peer(&self, count: u8) {
        self.conns_per_peer.store(count, Ordering::Relaxed);
    }

    /// Returns the peer of a message; makes it if it is missing, unless this side cannot connect to
    /// it.
    ///
    /// # Errors
    /// ESHUTDOWN if there is no such NI, EHOSTUNREACH if the NI's network has no such peer.
    pub fn peer_for(&self, tx: &Tx) -> Result<Arc<Peer<P>>, Errno> {
        let id = P::name_of(tx.peer);
        if let Some(peer) = self.peers.get(PeerKey { ni: tx.ni, id }) {
            return Ok(peer);
        }
        let ni = self.nis.get(tx.ni).ok_or(Errno::ESHUTDOWN)?;
        if id.nid.net() != tx.ni.net() || id.nid == tx.ni || !P::can_dial(id) {
            return Err(Errno::EHOSTUNREACH);
        }
        self.peer_of(&ni, id).ok_or(Errno::ESHUTDOWN)
    }

    /// Returns the peer with this id; makes it if it is missing, on the shard of its partition
    /// (S-209). `None` if the NI is ending.
    pub fn peer_of(&self, ni: &Arc<Ni<P>>, id: ProcessId) -> Option<Arc<Peer<P>>> {
        let key = PeerKey { ni: ni.id.nid, id };
        if let Some(peer) = self.peers.get(key).filter(|peer| Arc::ptr_eq(&peer.ni, ni)) {
            return Some(peer);
        }
        let shard = self.shards.shard(ni.sub, ni.upcalls.partition_of(ni.id.nid, id.nid));
        let make = || Peer::new(key, ni.clone(), shard.clone(), P::links(self, ni, id));
        // If the NI has ended and started again since, the entry may belong to its new incarnation.
        self.peers.get_or_insert(key, || self.nis.is_up(ni), make).filter(|peer| Arc::ptr_eq(&peer.ni, ni))
    }

    /// Calls `inspect` with the locked state of each peer. Returns the number of peers that have
    /// connections, and the number of connections.
    pub fn for_each_peer(&self, mut inspect: impl FnMut(&PeerState<P>)) -> (usize, usize) {
        self.peers.all(|_| true).iter().fold((0, 0), |(peers, connections), peer| {
            let state = peer.state.lock();
            inspect(&state);
            (peers + usize::from(!state.conns.is_empty()), connections + state.conns.len())
        })
    }

    /// Removes a message that waits for its peer to be connected, or on a connection, and of which
    /// no byte has been sent; returns whether it was found. A message that a thread is just sending
    /// fails with ECANCELED if that thread has to put it back. A message that is just moved from a
    /// connection that ends is not found, and is sent.
    pub(crate) fn withdraw(&self, key: PeerKey, token: TxToken) -> bool {
        let Some(peer) = self.peers.get(key) else { return false };
        let (waiting, conns) = {
            let mut state = peer.state.lock();
            (state.waiting.take(token), state.conns.clone())
        };
        waiting.is_some() || conns.iter().any(|conn| conn.withdraw(token))
    }
}
