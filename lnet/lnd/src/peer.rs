//! The table of an LND's peers.

use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use lnet_api::{Errno, Sent, Tx};
use lnet_nid::{Nid, ProcessId};
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::pass_timer::PassTimer;
use crate::protocol::{Conns, Links};
use crate::{ConnStep, Ni, PeerFailure, Protocol, Shard, ShardRequest, WaitQueue};

/// The key of a peer: the local NI and the remote process (S-204). In a protocol without PIDs, the
/// process is [`ProcessId::lnet`] of the NID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerKey {
    /// The local NI.
    pub ni: Nid,
    /// The remote process.
    pub id: ProcessId,
}

/// A node that this one communicates with over one of its NIs.
pub struct Peer<P: Protocol> {
    /// The peer's key in the table.
    pub key: PeerKey,
    /// The local NI over which the peer is reached.
    pub ni: Arc<Ni<P>>,
    /// The shard of all connections to the peer.
    pub shard: Arc<Shard<P>>,
    /// Additional state that the kind of network needs for a peer, not under the lock.
    pub own: P::OfPeer,
    /// The mutable state, under the peer's lock.
    pub state: Mutex<PeerState<P>>,
}

/// The mutable state of a peer.
pub struct PeerState<P: Protocol> {
    /// The rules for the connections to the peer. Only the driver of the shard begins and ends
    /// connection attempts.
    pub links: P::Links,
    /// The connections in use.
    pub conns: Conns<P>,
    /// Messages that have no connection yet, or found no connection with room.
    pub waiting: WaitQueue,
    /// Bytes of the peer's held messages in memory.
    pub(crate) held_bytes: usize,
    /// Set while a request to connect is queued at the driver.
    asked: bool,
    /// Set when the entry has left the table: users of the entry must look the peer up again
    /// (EAGAIN), or fail with this errno.
    pub retired: Option<Errno>,
    /// The failure of the last connection; `None` if there was a connection since.
    pub failure: Option<PeerFailure>,
    /// The progress of the connection that is being opened.
    pub step: Option<ConnStep>,
    /// Additional state that the kind of network needs, under the lock.
    pub own: P::OfState,
}

impl<P: Protocol> Peer<P> {
    /// Makes a peer without connections.
    pub(crate) fn new(key: PeerKey, ni: Arc<Ni<P>>, shard: Arc<Shard<P>>, links: P::Links) -> Peer<P> {
        let state = PeerState {
            links,
            conns: Conns::<P>::new(),
            waiting: WaitQueue::default(),
            held_bytes: 0,
            asked: false,
            retired: None,
            failure: None,
            step: None,
            own: P::OfState::default(),
        };
        Peer { key, ni, shard, own: P::OfPeer::default(), state: Mutex::new(state) }
    }

    /// Returns the address in the peer's NID with this port. For a NID without an address, which
    /// cannot become a peer, returns that of the NI.
    pub fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.key.id.nid.ip().unwrap_or(self.ni.ip), port)
    }

    /// Locks the mutable state; `None` if the entry has left the table, which may contain a new
    /// entry for the peer.
    ///
    /// # Errors
    /// ESHUTDOWN if the peer's NI is ending.
    pub fn enter(&self) -> Result<Option<MutexGuard<'_, PeerState<P>>>, Errno> {
        let state = self.state.lock();
        match state.retired {
            Some(Errno::EAGAIN) => Ok(None),
            Some(errno) => Err(errno),
            None => Ok(Some(state)),
        }
    }

    /// Queues a message until there is a connection, and requests one from the driver.
    ///
    /// # Errors
    /// ENOBUFS if too many messages wait.
    pub fn wait(self: &Arc<Peer<P>>, mut state: MutexGuard<'_, PeerState<P>>, tx: Tx) -> Result<Sent, Errno> {
        if state.waiting.is_full() {
            return Err(Errno::ENOBUFS);
        }
        state.waiting.push(tx);
        let asked = std::mem::replace(&mut state.asked, true);
        drop(state);
        if !asked {
            self.shard.request(ShardRequest::Connect(self.clone()));
        }
        Ok(Sent::Later)
    }

    /// Fails all messages that wait for a connection to the peer.
    pub fn fail_waiting(&self, errno: Errno) {
        let waiting = self.state.lock().waiting.take_all();
        waiting.fail(&*self.ni.upcalls, errno);
    }

    /// Marks the peer as retired if its entry holds no information, and returns whether it did. If
    /// there are too many entries (`crowded`), the reason of the last failure does not count.
    pub(crate) fn retire_if_idle(&self, now_ns: u64, crowded: bool) -> bool {
        let mut state = self.state.lock();
        let idle = state.conns.is_empty()
            && state.waiting.is_empty()
            && !state.asked
            && state.held_bytes == 0
            && (crowded || state.failure.is_none())
            && state.links.is_forgettable(now_ns);
        if idle {
            state.retired = Some(Errno::EAGAIN);
        }
        idle
    }
}

impl<P: Protocol> PeerState<P> {
    /// Begins the driver's step for this peer: clears the request to connect, and notes the
    /// deadline of the first waiting message. Returns whether messages wait; `None` if the entry
    /// has left the table.
    pub fn begin_step(&mut self, timers: &mut PassTimer) -> Option<bool> {
        self.asked = false;
        if self.retired.is_some() {
            return None;
        }
        if let Some(first) = self.waiting.first() {
            timers.note(first.deadline_ns);
        }
        Some(!self.waiting.is_empty())
    }
}

/// The number of pieces of the peer table. Each has its own lock, so threads that send to different
/// peers rarely contend.
const PIECES: usize = 32;

/// All peers of all NIs.
pub struct PeerTable<P: Protocol> {
    hasher: RandomState,
    pieces: [CachePadded<Piece<P>>; PIECES],
}

type Piece<P> = RwLock<HashTable<Arc<Peer<P>>>>;

impl<P: Protocol> Default for PeerTable<P> {
    fn default() -> PeerTable<P> {
        PeerTable {
            hasher: RandomState::default(),
            pieces: [const { CachePadded::new(Piece::new(HashTable::new())) }; PIECES],
        }
    }
}

impl<P: Protocol> PeerTable<P> {
    /// Returns the peer with this key.
    pub fn get(&self, key: PeerKey) -> Option<Arc<Peer<P>>> {
        let (hash, piece) = self.piece_of(key);
        piece.read().find(hash, |peer| peer.key == key).cloned()
    }

    /// Returns the peer with this key; makes it if it is missing and its NI is up. An NI that ends
    /// leaves its table first and then collects its peers, so none is made after that.
    pub(crate) fn get_or_insert(
        &self,
        key: PeerKey,
        is_up: impl FnOnce() -> bool,
        make: impl FnOnce() -> Peer<P>,
    ) -> Option<Arc<Peer<P>>> {
        let (hash, piece) = self.piece_of(key);
        let rehash = |peer: &Arc<Peer<P>>| self.hasher.hash_one(peer.key);
        match piece.write().entry(hash, |peer| peer.key == key, rehash) {
            Entry::Occupied(peer) => Some(peer.get().clone()),
            Entry::Vacant(entry) => is_up().then(|| entry.insert(Arc::new(make())).get().clone()),
        }
    }

    /// Removes this peer; a newer entry with the same key stays.
    pub(crate) fn remove(&self, peer: &Arc<Peer<P>>) {
        let (hash, piece) = self.piece_of(peer.key);
        if let Ok(listed) = piece.write().find_entry(hash, |listed| Arc::ptr_eq(listed, peer)) {
            listed.remove();
        }
    }

    /// Appends all peers that are `wanted` to a list, sorted by key, so that a simulated run can be
    /// repeated.
    pub fn collect(&self, list: &mut Vec<Arc<Peer<P>>>, wanted: impl Fn(&Peer<P>) -> bool) {
        let begin = list.len();
        for piece in &self.pieces {
            list.extend(piece.read().iter().filter(|peer| wanted(peer)).cloned());
        }
        list[begin..].sort_unstable_by_key(|peer| peer.key);
    }

    /// Returns all peers that are `wanted` in a new list.
    pub fn all(&self, wanted: impl Fn(&Peer<P>) -> bool) -> Vec<Arc<Peer<P>>> {
        let mut list = Vec::new();
        self.collect(&mut list, wanted);
        list
    }

    fn piece_of(&self, key: PeerKey) -> (u64, &Piece<P>) {
        let hash = self.hasher.hash_one(key);
        // Bits of the hash that the hash table itself uses little, as it uses the lowest and the
        // highest.
        (hash, &self.pieces[(hash >> 40) as usize % PIECES])
    }
}
