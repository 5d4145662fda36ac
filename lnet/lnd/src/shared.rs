//! What senders, drivers and everybody else share, of all shards.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use lnet_api::{Errno, Tx, TxToken};
use lnet_nid::ProcessId;

use crate::config::Config;
use crate::peer::{PeerKey, PeerTable};
use crate::protocol::{Connection, Driver, NiConfig};
use crate::shards::Shards;
use crate::{Ni, NiTable, Peer, PeerState, Protocol, Shard};

/// What senders, drivers and everybody else share, of all shards.
pub struct Shared<P: Protocol> {
    /// The tunables that the LND was made with.
    pub config: P::Config,
    /// The NIs that are up.
    pub nis: Arc<NiTable<P>>,
    /// All peers.
    pub peers: PeerTable<P>,
    /// All shards.
    pub shards: Shards<Shard<P>, P::Driver>,
    /// Bytes of held messages in memory, of all shards.
    pub(crate) held_bytes: AtomicUsize,
    /// What NIs have that say nothing of their own.
    conns_per_peer: AtomicU8,
    /// What else its kind of network shares.
    pub own: P,
}

impl<P: Protocol> Shared<P> {
    /// Without NIs, and without shards ([`Shards::grow`]).
    pub fn new(config: P::Config, own: P) -> Shared<P> {
        let (partitions, nscheds) = config.shards();
        let conns_per_peer = *P::Config::conns_per_peer(&mut NiConfig::<P>::from(&config));
        Shared {
            config,
            nis: Arc::default(),
            peers: PeerTable::default(),
            shards: Shards::new(partitions, nscheds),
            held_bytes: AtomicUsize::new(0),
            conns_per_peer: AtomicU8::new(conns_per_peer),
            own,
        }
    }

    /// Makes sure that there are the shards of so many hardware interfaces; `own` makes what a shard of this number has of its
    /// kind of network. What a shard has lies in memory near its partition (S-305).
    ///
    /// # Errors
    /// Those of `own`.
    pub fn grow<E>(&self, interfaces: usize, own: impl Fn(usize) -> Result<P::OfShard, E>) -> Result<(), E> {
        self.shards.grow(interfaces, |number| {
            let make = || Ok((Shard::new(number, own(number)?), P::Driver::new(&self.config, number)));
            self.config.memory().near(self.shards.partition_of(number), make)
        })
    }

    /// Connections to a peer that NIs have which say nothing of their own.
    pub(crate) fn conns_per_peer(&self) -> u8 {
        self.conns_per_peer.load(Ordering::Relaxed)
    }

    /// So many from now on.
    pub(crate) fn set_conns_per_peer(&self, count: u8) {
        self.conns_per_peer.store(count, Ordering::Relaxed);
    }

    /// The peer of a message; made if it is not there, unless this side can connect to no such one.
    ///
    /// # Errors
    /// ESHUTDOWN without the NI, EHOSTUNREACH if the NI's network has no such peer.
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

    /// The peer of this name; made if it is not there, on the shard of its partition (S-209). `None` if the NI is ending.
    pub fn peer_of(&self, ni: &Arc<Ni<P>>, id: ProcessId) -> Option<Arc<Peer<P>>> {
        let key = PeerKey { ni: ni.id.nid, id };
        if let Some(peer) = self.peers.get(key).filter(|peer| Arc::ptr_eq(&peer.ni, ni)) {
            return Some(peer);
        }
        let shard = self.shards.shard(ni.sub, ni.upcalls.partition_of(ni.id.nid, id.nid));
        let make = || Peer::new(key, ni.clone(), shard.clone(), P::links(self, ni, id));
        // If the NI has ended and started again meanwhile, the entry may be of its next life.
        self.peers.get_or_insert(key, || self.nis.is_up(ni), make).filter(|peer| Arc::ptr_eq(&peer.ni, ni))
    }

    /// Looks at what changes of each peer, its lock held. Gives how many of them have connections, and how many connections that is.
    pub fn look_at_all(&self, mut look: impl FnMut(&PeerState<P>)) -> (usize, usize) {
        self.peers.all(|_| true).iter().fold((0, 0), |(peers, connections), peer| {
            let state = peer.state.lock();
            look(&state);
            (peers + usize::from(!state.conns.is_empty()), connections + state.conns.len())
        })
    }

    /// Takes back a message that waits for its peer to be connected, or on a connection, and of which nothing is gone. It is in
    /// one of them, or in the hands of a thread that sends it; if that thread has to put it back it fails with ECANCELED. One that moves
    /// over from a connection that ends is not found in that moment, and is sent.
    pub(crate) fn withdraw(&self, key: PeerKey, token: TxToken) -> bool {
        let Some(peer) = self.peers.get(key) else { return false };
        let (waiting, conns) = {
            let mut state = peer.state.lock();
            (state.waiting.take(token), state.conns.clone())
        };
        waiting.is_some() || conns.iter().any(|conn| conn.withdraw(token))
    }
}
