//! The NIs and peers of an LND, by their names.

use std::hash::BuildHasher;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use lnet_nid::{Nid, ProcessId};
use parking_lot::RwLock;

/// What an LND keeps of a local NI that is up.
pub trait LocalNi {
    /// Its name.
    fn nid(&self) -> Nid;

    /// Its peers are on this one of their partition's shards ([`Shards`](crate::shards::Shards)).
    fn sub(&self) -> usize;
}

/// The local NIs by NID, as handshakes and senders look them up.
#[derive(Debug)]
pub struct NiTable<N>(RwLock<HashMap<Nid, Arc<N>, RandomState>>);

impl<N> Default for NiTable<N> {
    fn default() -> NiTable<N> {
        NiTable(RwLock::default())
    }
}

impl<N: LocalNi> NiTable<N> {
    /// The one of this NID.
    pub fn get(&self, nid: Nid) -> Option<Arc<N>> {
        self.0.read().get(&nid).cloned()
    }

    /// Adds one; `false` if there is one of this NID.
    pub fn insert(&self, ni: Arc<N>) -> bool {
        self.0.write().try_insert(ni.nid(), ni).is_ok()
    }

    /// Takes one out.
    pub fn remove(&self, nid: Nid) -> Option<Arc<N>> {
        self.0.write().remove(&nid)
    }

    /// All NIs, or the one of this NID.
    pub fn matching(&self, nid: Option<Nid>) -> Vec<Arc<N>> {
        self.0.read().values().filter(|ni| nid.is_none_or(|nid| ni.nid() == nid)).cloned().collect()
    }

    /// The names of all.
    pub fn nids(&self) -> Vec<Nid> {
        self.0.read().keys().copied().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// Whether this very NI is up, and not only one of its NID.
    pub fn is_up(&self, ni: &Arc<N>) -> bool {
        self.0.read().get(&ni.nid()).is_some_and(|listed| Arc::ptr_eq(listed, ni))
    }

    /// Whether one of them is such.
    pub fn any(&self, is_such: impl FnMut(&Arc<N>) -> bool) -> bool {
        self.0.read().values().any(is_such)
    }

    /// The sub among so many that has the fewest NIs, the first of these.
    pub fn emptiest_sub(&self, subs: usize) -> usize {
        let nis = self.0.read();
        (0..subs).min_by_key(|sub| nis.values().filter(|ni| ni.sub() == *sub).count()).unwrap_or(0)
    }
}

/// Names a peer: the local NI and the remote process (S-204). Where a protocol knows no PIDs, the process is
/// [`ProcessId::lnet`] of the NID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerKey {
    /// The local NI.
    pub ni: Nid,
    /// The remote process.
    pub id: ProcessId,
}

/// What an LND keeps of a peer of one of its NIs.
pub trait RemotePeer {
    /// Its name.
    fn key(&self) -> PeerKey;
}

/// In how many pieces the table of peers is, each with a lock of its own: threads that send to different peers seldom
/// meet.
const PIECES: usize = 32;

/// All peers of all NIs.
#[derive(Debug)]
pub struct PeerTable<P> {
    hasher: RandomState,
    pieces: [CachePadded<Piece<P>>; PIECES],
}

type Piece<P> = RwLock<HashTable<Arc<P>>>;

impl<P> Default for PeerTable<P> {
    fn default() -> PeerTable<P> {
        PeerTable {
            hasher: RandomState::default(),
            pieces: [const { CachePadded::new(Piece::new(HashTable::new())) }; PIECES],
        }
    }
}

impl<P: RemotePeer> PeerTable<P> {
    /// The peer of this name.
    pub fn get(&self, key: PeerKey) -> Option<Arc<P>> {
        let (hash, piece) = self.place(key);
        piece.read().find(hash, |peer| peer.key() == key).cloned()
    }

    /// The peer of this name; made if it is not there and its NI is up. An NI that ends leaves its table first and collects
    /// its peers then: none is made behind its back.
    pub fn get_or_insert(
        &self,
        key: PeerKey,
        is_up: impl FnOnce() -> bool,
        make: impl FnOnce() -> P,
    ) -> Option<Arc<P>> {
        let (hash, piece) = self.place(key);
        let rehash = |peer: &Arc<P>| self.hasher.hash_one(peer.key());
        match piece.write().entry(hash, |peer| peer.key() == key, rehash) {
            Entry::Occupied(peer) => Some(peer.get().clone()),
            Entry::Vacant(place) => is_up().then(|| place.insert(Arc::new(make())).get().clone()),
        }
    }

    /// Removes this peer; one that has come in its place stays.
    pub fn remove(&self, peer: &Arc<P>) {
        let (hash, piece) = self.place(peer.key());
        if let Ok(listed) = piece.write().find_entry(hash, |listed| Arc::ptr_eq(listed, peer)) {
            listed.remove();
        }
    }

    /// All peers that are `wanted`, appended to a list, in an order that no hash decides: a simulated run can be had again.
    pub fn collect(&self, list: &mut Vec<Arc<P>>, wanted: impl Fn(&P) -> bool) {
        let begin = list.len();
        for piece in &self.pieces {
            list.extend(piece.read().iter().filter(|peer| wanted(peer)).cloned());
        }
        list[begin..].sort_unstable_by_key(|peer| peer.key());
    }

    fn place(&self, key: PeerKey) -> (u64, &Piece<P>) {
        let hash = self.hasher.hash_one(key);
        // Bits that the hash table itself makes little of: it goes by the lowest and the highest.
        (hash, &self.pieces[(hash >> 40) as usize % PIECES])
    }
}
