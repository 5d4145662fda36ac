//! Peers: next hops, with their credits (lnet-semantics 13).

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use lnet_nid::{Nid, Pid, ProcessId};

use crate::buckets::{Buckets, CHAIN, Hashed};
use crate::keys::Hasher;
use crate::list::{Linked, Links, List};
use crate::message::QUEUE;
use crate::response::BY_PEER;
use crate::slab::{NONE, Slab};

/// How many peers are looked at to find an idle one when the table is full. A bound on the time it takes; the search
/// goes on there the next time.
const EVICTION_STEPS: u32 = 64;

/// A remote process that messages are handed to over one NI.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: ProcessId,
    pub(crate) ni: u32,
    hash: u32,
    chain: Links,
    /// Messages that may still be handed over; below 0, as many are queued.
    pub(crate) credits: i64,
    pub(crate) max_credits: i64,
    pub(crate) queue: List<QUEUE>,
    /// ACKs and REPLYs expected from it.
    pub(crate) responses: List<BY_PEER>,
    /// PUTs being received that it wants acknowledged, or that are pushes.
    pub(crate) holds: u32,
    /// A buffer is taking a push from it.
    pub(crate) pushing: bool,
    /// ACKs and REPLYs to it that have not left yet.
    pub(crate) answers: u32,
}

impl Linked<CHAIN> for Peer {
    fn links(&self) -> Links {
        self.chain
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.chain
    }
}

impl Hashed for Peer {
    fn hash(&self) -> u32 {
        self.hash
    }
}

impl Peer {
    /// Messages waiting for its credits.
    pub(crate) fn queued(&self) -> usize {
        self.credits.min(0).unsigned_abs() as usize
    }

    fn is_idle(&self) -> bool {
        self.credits == self.max_credits && self.holds == 0 && self.responses.is_empty()
    }
}

/// All peers.
#[derive(Debug)]
pub(crate) struct Peers {
    slab: Slab<Peer>,
    index: Buckets,
    /// How many peers have each NID.
    nids: HashMap<Nid, u32, RandomState>,
    /// Where the next search for an idle peer starts.
    hand: u32,
}

impl Peers {
    pub(crate) fn new(limit: usize) -> Peers {
        let (index, nids) = (Buckets::default(), HashMap::default());
        Peers { slab: Slab::new(limit), index, nids, hand: 0 }
    }

    /// What a peer is known by: its PID counts only if it names a connection (lnet-wire 27).
    fn key(id: ProcessId) -> ProcessId {
        if id.pid.is_userspace() { id } else { ProcessId::new(id.nid, Pid::LNET) }
    }

    /// The peer, if it is known.
    pub(crate) fn find(&self, hasher: &Hasher, ni: u32, id: ProcessId) -> Option<u32> {
        let id = Peers::key(id);
        let hash = hasher.process(id, u64::from(ni));
        self.lookup(hash, ni, id)
    }

    /// The peer, made known if it was not; `None` if there is no room.
    pub(crate) fn enter(&mut self, hasher: &Hasher, ni: u32, id: ProcessId, credits: u32) -> Option<u32> {
        let id = Peers::key(id);
        let hash = hasher.process(id, u64::from(ni));
        if let Some(known) = self.lookup(hash, ni, id) {
            return Some(known);
        }
        if self.slab.is_full() {
            self.evict();
        }
        let max_credits = i64::from(credits.max(1));
        let key = self.slab.insert(Peer {
            id,
            ni,
            hash,
            chain: Links::NONE,
            credits: max_credits,
            max_credits,
            queue: List::new(),
            responses: List::new(),
            holds: 0,
            pushing: false,
            answers: 0,
        })?;
        self.index.insert(&mut self.slab, key.index);
        *self.nids.entry(id.nid).or_insert(0) += 1;
        Some(key.index)
    }

    fn lookup(&self, hash: u32, ni: u32, id: ProcessId) -> Option<u32> {
        let mut at = self.index.first(hash);
        while at != NONE {
            let peer = &self.slab[at];
            if peer.hash == hash && peer.ni == ni && peer.id == id {
                return Some(at);
            }
            at = peer.chain.next;
        }
        None
    }

    fn evict(&mut self) {
        for _ in 0..EVICTION_STEPS.min(self.slab.used()) {
            self.hand = if self.hand + 1 < self.slab.used() { self.hand + 1 } else { 0 };
            if self.forget_if_idle(self.hand) {
                return;
            }
        }
    }

    /// Forgets a peer with which nothing goes on.
    pub(crate) fn forget_if_idle(&mut self, index: u32) -> bool {
        let idle = self.slab.at(index).is_some_and(Peer::is_idle);
        if idle {
            self.forget(index);
        }
        idle
    }

    /// Forgets a peer, whatever the tables say; its messages are gone.
    pub(crate) fn forget(&mut self, index: u32) {
        let Some(nid) = self.slab.at(index).map(|peer| peer.id.nid) else { return };
        self.index.remove(&mut self.slab, index);
        self.slab.take(index);
        if let Entry::Occupied(mut peers) = self.nids.entry(nid) {
            *peers.get_mut() -= 1;
            if *peers.get() == 0 {
                peers.remove();
            }
        }
    }

    /// Whether this node has sent something to this NID, an answer perhaps, over whatever NI and under whatever PID.
    pub(crate) fn knows(&self, nid: Nid) -> bool {
        self.nids.contains_key(&nid)
    }

    /// The peer, if there is one at this index.
    pub(crate) fn at(&self, index: u32) -> Option<&Peer> {
        self.slab.at(index)
    }

    /// The peer at this index, which must exist.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Peer {
        &mut self.slab[index]
    }

    /// The peers reached over an NI.
    pub(crate) fn of_ni(&self, ni: u32) -> Vec<u32> {
        self.slab.indices().filter(|&index| self.slab[index].ni == ni).collect()
    }

    /// The most peers there can be.
    pub(crate) fn limit(&self) -> usize {
        self.slab.limit()
    }
}

impl std::ops::Index<u32> for Peers {
    type Output = Peer;

    fn index(&self, index: u32) -> &Peer {
        &self.slab[index]
    }
}
