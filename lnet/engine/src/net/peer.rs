//! Peers: next hops, with their credits (lnet-semantics 13).

use lnet_nid::{Nid, ProcessId};
use nlx_sync::Room;

use super::host::PeerHost;
use super::nid_map::NidMap;
use super::sending::QUEUE;
use crate::buckets::{Buckets, CHAIN, Hashed};
use crate::counters::Traffic;
use crate::keys::Hasher;
use crate::list::{List, ListLinks, linked};
use crate::message::{PeerName, peer_id};
use crate::slab::{Key, NONE, Slab, slab};

/// Peers that a search for an idle one visits when the table is full. It bounds the time of a
/// search; the next search continues from there.
const EVICTION_STEPS: u32 = 64;

/// A remote process to which messages are handed over one NI.
#[derive(Debug)]
pub(super) struct PeerNi {
    pub(super) id: ProcessId,
    pub(super) ni: Key,
    hash: u32,
    chain: ListLinks,
    /// Index of the peer's NID in [`PeerNis::nids`].
    counted: u32,
    /// Index of the peer's host among the hosts of the NI.
    pub(super) host: u32,
    /// Messages that may still be handed over; negative if messages are queued, or too many are in
    /// flight.
    pub(super) credits: i64,
    pub(super) max_credits: i64,
    pub(super) min_credits: i64,
    pub(super) queue: List<QUEUE>,
    /// Messages in the queue for the peer's credits.
    pub(super) waiting: usize,
    /// True while a buffer takes a push from the peer.
    pub(super) pushing: bool,
    /// ACKs and REPLYs to the peer that have not left yet.
    pub(super) answers: u32,
    /// Bytes of the messages in flight or queued, headers included.
    pub(super) queued_bytes: u64,
    pub(super) traffic: Traffic,
}

linked!(PeerNi: CHAIN => chain);

impl Hashed for PeerNi {
    fn hash(&self) -> u32 {
        self.hash
    }
}

impl PeerNi {
    fn is_idle(&self) -> bool {
        self.credits == self.max_credits && !self.pushing
    }
}

/// The peers of one partition.
#[derive(Debug)]
pub(super) struct PeerNis {
    pub(super) slab: Slab<PeerNi>,
    index: Buckets,
    /// The number of peers with each NID.
    pub(super) nids: NidMap<u32>,
    /// Hosts by their address as a NID, for each NI by its index.
    hosts: Vec<NidMap<PeerHost>>,
    /// Maximum number of hosts of one NI: one per peer, and one per message to a peer that has
    /// changed its host.
    hosts_limit: usize,
    /// Index at which the next search for an idle peer starts.
    hand: u32,
    /// Index of the peer found last, which may be gone. A cache: messages of one peer come in runs,
    /// and are answered at once.
    recent: u32,
    room: Room,
}

impl PeerNis {
    /// Creates a table for `limit` peers, and `messages` messages to them.
    pub(super) fn new(limit: usize, messages: usize, room: &Room) -> PeerNis {
        let (slab, nids, index) =
            (slab(limit).within(room), NidMap::within(limit, room), Buckets::within(room));
        let (hosts, hosts_limit) = (Vec::new(), limit.saturating_add(messages));
        PeerNis { slab, index, nids, hosts, hosts_limit, hand: 0, recent: NONE, room: room.clone() }
    }

    /// Creates the table of an NI's hosts, without hosts.
    pub(super) fn enter_ni(&mut self, ni: Key) {
        let (index, limit) = (ni.index as usize, self.hosts_limit);
        if self.hosts.len() <= index {
            self.hosts.resize_with(index + 1, || NidMap::new(limit));
        }
        self.hosts[index] = NidMap::within(limit, &self.room);
    }

    /// Returns a host of an NI, which must exist.
    pub(super) fn host_mut(&mut self, ni: Key, host: u32) -> &mut PeerHost {
        self.hosts[ni.index as usize].at_mut(host)
    }

    /// Returns the hosts of an NI.
    pub(super) fn hosts(&self, ni: Key) -> impl Iterator<Item = (u32, &PeerHost)> {
        self.hosts.get(ni.index as usize).into_iter().flat_map(NidMap::iter)
    }

    /// Removes a host that is unused.
    pub(super) fn forget_host_if_unused(&mut self, ni: Key, host: u32) {
        let hosts = &mut self.hosts[ni.index as usize];
        if hosts.at_mut(host).is_unused() {
            hosts.remove(host);
        }
    }

    /// Returns the address of a peer's host, as a NID.
    pub(super) fn address(&self, index: u32) -> Nid {
        let PeerNi { ni, host, .. } = self.slab[index];
        self.hosts[ni.index as usize].nid_at(host)
    }

    /// Counts a peer of a host; returns the host, or `None` if there is no memory.
    fn enter_host(&mut self, ni: Key, address: Nid) -> Option<u32> {
        let hosts = self.hosts.get_mut(ni.index as usize)?;
        let host = hosts.find(address).or_else(|| hosts.insert(address, PeerHost::new()))?;
        hosts.at_mut(host).peers += 1;
        Some(host)
    }

    fn leave_host(&mut self, ni: Key, host: u32) {
        self.host_mut(ni, host).peers -= 1;
        self.forget_host_if_unused(ni, host);
    }

    /// Assigns a peer to the host with the address of a message from or to it. While messages to
    /// the peer are in flight the host does not change, as they count for the host with which they
    /// started.
    pub(super) fn assign_host(&mut self, index: u32, address: Nid) {
        let PeerNi { ni, host, credits, max_credits, .. } = self.slab[index];
        if credits != max_credits || self.hosts[ni.index as usize].nid_at(host) == address {
            return;
        }
        // Without memory the peer stays with its present host.
        if let Some(new) = self.enter_host(ni, address) {
            self.slab[index].host = new;
            self.leave_host(ni, host);
        }
    }

    /// Returns the key of a process, as [`PeerName::new`] does.
    pub(super) fn name_of(&self, hasher: &Hasher, ni: Key, id: ProcessId) -> PeerName {
        match self.recent_if(ni, peer_id(id)) {
            Some(known) => PeerName { ni, id: known.id, hash: known.hash },
            None => PeerName::new(hasher, ni, id),
        }
    }

    /// Returns the peer, if it is known.
    pub(super) fn find(&self, hasher: &Hasher, ni: Key, id: ProcessId) -> Option<u32> {
        match self.recent_if(ni, peer_id(id)) {
            Some(_) => Some(self.recent),
            None => self.lookup(&PeerName::new(hasher, ni, id)),
        }
    }

    /// Returns the peer of the last search, if it is this one.
    fn recent_if(&self, ni: Key, id: ProcessId) -> Option<&PeerNi> {
        self.slab.at(self.recent).filter(|known| known.ni == ni && known.id == id)
    }

    /// Returns the peer; adds it, with the host of the address in its NID, if it is unknown. `None`
    /// if there is no room.
    pub(super) fn enter(&mut self, hasher: &Hasher, ni: Key, id: ProcessId, credits: u32) -> Option<u32> {
        if self.recent_if(ni, peer_id(id)).is_some() {
            return Some(self.recent);
        }
        let name = PeerName::new(hasher, ni, id);
        if let Some(known) = self.lookup(&name) {
            self.recent = known;
            return Some(known);
        }
        if self.slab.is_full() {
            self.evict();
        }
        if !self.slab.make_room() {
            return None;
        }
        let counted = self.count(name.id.nid)?;
        let Some(host) = self.enter_host(ni, name.id.nid) else {
            self.discount(counted);
            return None;
        };
        let max_credits = i64::from(credits.max(1));
        let key = self.slab.insert(PeerNi {
            id: name.id,
            ni,
            hash: name.hash,
            chain: ListLinks::NONE,
            counted,
            host,
            credits: max_credits,
            max_credits,
            min_credits: max_credits,
            queue: List::new(),
            waiting: 0,
            pushing: false,
            answers: 0,
            queued_bytes: 0,
            traffic: Traffic::default(),
        })?;
        if !self.index.insert(&mut self.slab, key.index) {
            self.slab.take(key.index);
            self.discount(counted);
            self.leave_host(ni, host);
            return None;
        }
        Some(key.index)
    }

    /// Counts one more peer with this NID; returns the NID's index, or `None` if there is no
    /// memory.
    fn count(&mut self, nid: Nid) -> Option<u32> {
        let counted = self.nids.find(nid).or_else(|| self.nids.insert(nid, 0))?;
        *self.nids.at_mut(counted) += 1;
        Some(counted)
    }

    /// Counts one peer less with the NID at this index of [`PeerNis::nids`].
    fn discount(&mut self, counted: u32) {
        let peers = self.nids.at_mut(counted);
        *peers -= 1;
        if *peers == 0 {
            self.nids.remove(counted);
        }
    }

    pub(super) fn lookup(&self, name: &PeerName) -> Option<u32> {
        let mut at = self.index.first(name.hash);
        while at != NONE {
            let peer = &self.slab[at];
            if peer.hash == name.hash && peer.ni == name.ni && peer.id == name.id {
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

    /// Removes an idle peer.
    pub(super) fn forget_if_idle(&mut self, index: u32) -> bool {
        let idle = self.slab.at(index).is_some_and(PeerNi::is_idle);
        if idle {
            self.forget(index);
        }
        idle
    }

    /// Removes a peer, whether it is idle or not; its messages have ended.
    pub(super) fn forget(&mut self, index: u32) {
        let Some(&PeerNi { counted, ni, host, .. }) = self.slab.at(index) else { return };
        self.index.remove(&mut self.slab, index);
        self.slab.take(index);
        self.discount(counted);
        self.leave_host(ni, host);
    }

    /// Returns whether this node has sent anything to this NID, answers included, over any NI and
    /// under any PID.
    pub(super) fn knows(&self, nid: Nid) -> bool {
        self.nids.find(nid).is_some()
    }

    /// Returns the peer at this index, which must exist.
    pub(super) fn get_mut(&mut self, index: u32) -> &mut PeerNi {
        &mut self.slab[index]
    }

    /// Returns all peers, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &PeerNi> {
        self.slab.indices().map(|index| &self.slab[index])
    }

    /// Returns the peers that are reached over an NI.
    pub(super) fn of_ni(&self, ni: Key) -> Vec<u32> {
        self.slab.indices().filter(|&index| self.slab[index].ni == ni).collect()
    }
}

impl std::ops::Index<u32> for PeerNis {
    type Output = PeerNi;

    fn index(&self, index: u32) -> &PeerNi {
        &self.slab[index]
    }
}
