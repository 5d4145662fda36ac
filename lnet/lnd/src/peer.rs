//! The peers of an LND's NIs, by their names.

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

use crate::protocol::{Conns, Links};
use crate::timers::Timers;
use crate::{Failure, Ni, Protocol, Request, Shard, Step, Waiting};

/// Names a peer: the local NI and the remote process (S-204). Where a protocol knows no PIDs, the process is
/// [`ProcessId::lnet`] of the NID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerKey {
    /// The local NI.
    pub ni: Nid,
    /// The remote process.
    pub id: ProcessId,
}

/// A node this one talks to over one of its NIs.
pub struct Peer<P: Protocol> {
    /// Its name.
    pub key: PeerKey,
    /// The NI over which it is talked to.
    pub ni: Arc<Ni<P>>,
    /// All its connections are there.
    pub shard: Arc<Shard<P>>,
    /// What else its kind of network keeps of it, under no lock.
    pub own: P::OfPeer,
    /// What changes.
    pub state: Mutex<PeerState<P>>,
}

/// What of a peer changes.
pub struct PeerState<P: Protocol> {
    /// The rules for its connections. Attempts are begun and ended by its shard's driver alone.
    pub links: P::Links,
    /// Its connections in use.
    pub conns: Conns<P>,
    /// Messages for which there is no connection yet, or no room on any.
    pub waiting: Waiting,
    /// Bytes of its held messages in memory.
    pub(crate) held_bytes: usize,
    /// The driver has been asked to connect.
    asked: bool,
    /// The entry has left the table: whoever still holds it must look again (EAGAIN), or fail with this errno.
    pub retired: Option<Errno>,
    /// Why the last connection failed, if one did since the last that stood.
    pub failure: Option<Failure>,
    /// How far the connection is that is being opened.
    pub step: Option<Step>,
    /// What else its kind of network keeps of it.
    pub own: P::OfState,
}

impl<P: Protocol> Peer<P> {
    /// One without connections.
    pub(crate) fn new(key: PeerKey, ni: Arc<Ni<P>>, shard: Arc<Shard<P>>, links: P::Links) -> Peer<P> {
        let state = PeerState {
            links,
            conns: Conns::<P>::new(),
            waiting: Waiting::default(),
            held_bytes: 0,
            asked: false,
            retired: None,
            failure: None,
            step: None,
            own: P::OfState::default(),
        };
        Peer { key, ni, shard, own: P::OfPeer::default(), state: Mutex::new(state) }
    }

    /// A port at its NID's address, without which it would not have become a peer.
    pub fn address(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.key.id.nid.ip().unwrap_or(self.ni.ip), port)
    }

    /// What of it changes, locked; `None` if its entry has left the table, where there may be another one.
    ///
    /// # Errors
    /// ESHUTDOWN if its NI ends.
    pub fn enter(&self) -> Result<Option<MutexGuard<'_, PeerState<P>>>, Errno> {
        let state = self.state.lock();
        match state.retired {
            Some(Errno::EAGAIN) => Ok(None),
            Some(errno) => Err(errno),
            None => Ok(Some(state)),
        }
    }

    /// A message waits for a connection to it, which the driver is asked to make.
    ///
    /// # Errors
    /// ENOBUFS if too many wait.
    pub fn wait(self: &Arc<Peer<P>>, mut state: MutexGuard<'_, PeerState<P>>, tx: Tx) -> Result<Sent, Errno> {
        if state.waiting.is_full() {
            return Err(Errno::ENOBUFS);
        }
        state.waiting.push(tx);
        let asked = std::mem::replace(&mut state.asked, true);
        drop(state);
        if !asked {
            self.shard.request(Request::Connect(self.clone()));
        }
        Ok(Sent::Later)
    }

    /// Fails all messages that wait for a connection to it.
    pub fn fail_waiting(&self, errno: Errno) {
        let waiting = self.state.lock().waiting.take_all();
        waiting.fail(&*self.ni.upcalls, errno);
    }

    /// Whether nothing is remembered of it, from now on for good: its entry is of no use any more. If there are too many entries the
    /// reason of its last failure does not count.
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
    /// Its driver looks at what is next for it: whether messages wait, the first of them until a time that the driver notes. `None` if
    /// the entry has left the table.
    pub fn look(&mut self, timers: &mut Timers) -> Option<bool> {
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

/// In how many pieces the table of peers is, each with a lock of its own: threads that send to different peers seldom
/// meet.
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
    /// The peer of this name.
    pub fn get(&self, key: PeerKey) -> Option<Arc<Peer<P>>> {
        let (hash, piece) = self.place(key);
        piece.read().find(hash, |peer| peer.key == key).cloned()
    }

    /// The peer of this name; made if it is not there and its NI is up. An NI that ends leaves its table first and collects
    /// its peers then: none is made behind its back.
    pub(crate) fn get_or_insert(
        &self,
        key: PeerKey,
        is_up: impl FnOnce() -> bool,
        make: impl FnOnce() -> Peer<P>,
    ) -> Option<Arc<Peer<P>>> {
        let (hash, piece) = self.place(key);
        let rehash = |peer: &Arc<Peer<P>>| self.hasher.hash_one(peer.key);
        match piece.write().entry(hash, |peer| peer.key == key, rehash) {
            Entry::Occupied(peer) => Some(peer.get().clone()),
            Entry::Vacant(place) => is_up().then(|| place.insert(Arc::new(make())).get().clone()),
        }
    }

    /// Removes this peer; one that has come in its place stays.
    pub(crate) fn remove(&self, peer: &Arc<Peer<P>>) {
        let (hash, piece) = self.place(peer.key);
        if let Ok(listed) = piece.write().find_entry(hash, |listed| Arc::ptr_eq(listed, peer)) {
            listed.remove();
        }
    }

    /// All peers that are `wanted`, appended to a list, in an order that no hash decides: a simulated run can be had again.
    pub fn collect(&self, list: &mut Vec<Arc<Peer<P>>>, wanted: impl Fn(&Peer<P>) -> bool) {
        let begin = list.len();
        for piece in &self.pieces {
            list.extend(piece.read().iter().filter(|peer| wanted(peer)).cloned());
        }
        list[begin..].sort_unstable_by_key(|peer| peer.key);
    }

    /// The same in a list of its own.
    pub fn all(&self, wanted: impl Fn(&Peer<P>) -> bool) -> Vec<Arc<Peer<P>>> {
        let mut list = Vec::new();
        self.collect(&mut list, wanted);
        list
    }

    fn place(&self, key: PeerKey) -> (u64, &Piece<P>) {
        let hash = self.hasher.hash_one(key);
        // Bits that the hash table itself makes little of: it goes by the lowest and the highest.
        (hash, &self.pieces[(hash >> 40) as usize % PIECES])
    }
}
