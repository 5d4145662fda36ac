//! Addition and removal of NIs while others carry traffic (S-202), and queries about them.

use std::sync::Arc;

use lnet_api::{Distance, Errno, LNetError, Lnd, LndError, NiLimits};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::ping::{NiStatus, PingInterface};
use smallvec::SmallVec;

use super::identity::Identities;
use super::ni::{Cpts, NIS_MAX, NiDistances, NiPhase, NiState, Nis, STARTING_LIMITS};
use super::{NetPartition, NetShared, NiShare};
use crate::counters::Traffic;
use crate::list::List;
use crate::names::PARTITIONS_MAX;
use crate::slab::Key;
use crate::work::DeferredWork;

/// The content of a push: the NIDs of the node behind it, the primary one first.
pub(crate) struct PushedNids<I> {
    source: Nid,
    sender: Nid,
    nids: I,
}

impl<I: Iterator<Item = Nid> + Clone> PushedNids<I> {
    /// Creates the list of a push that names `source` as its source, and arrived over a connection
    /// of `sender`.
    pub(crate) fn new(source: Nid, sender: Nid, nids: I) -> PushedNids<I> {
        PushedNids { source, sender, nids }
    }

    /// Returns the NID over whose connection it arrived.
    pub(crate) fn sender(&self) -> Nid {
        self.sender
    }

    /// Returns whether the sender may announce NIDs of the source. For a node to which this node
    /// has sent something, or whose NIDs it has stored, no other node may do so.
    fn may_announce(&self, identities: &Identities, sent_to: impl Fn(Nid) -> bool) -> bool {
        let known = sent_to(self.source) || !identities.nids(self.source).is_empty();
        identities.same(self.sender, self.source) || !known
    }
}

impl NetShared {
    /// Creates the state without NIs, with room for the NIDs of `known_nodes` nodes.
    pub(crate) fn new(known_nodes: usize) -> NetShared {
        NetShared { nis: Nis::new(), identities: Identities::new(known_nodes) }
    }

    /// Adds an NI that its LND is about to start; its peers belong to the partitions `cpts`, and
    /// `distances` are those of its device from each partition.
    ///
    /// # Errors
    /// EEXIST if there is one with its NID, ENOMEM if there are too many.
    pub(crate) fn enter_ni<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut NetPartition>,
        (id, lnd): (ProcessId, Arc<dyn Lnd>),
        (cpts, distances): (Cpts, NiDistances),
    ) -> Result<Key, LNetError> {
        let nid = id.nid;
        if self.nis.find(nid).is_some() {
            return Err(LndError { what: format!("NI {nid} already exists"), errno: Errno::EEXIST }.into());
        }
        let ni = NiState::new(id, lnd.clone(), cpts.clone(), distances);
        let credits = ni.credits_per_partition(&STARTING_LIMITS);
        let key = self.nis.enter(ni).ok_or(LNetError::TooMany { objects: "NIs", limit: NIS_MAX })?;
        let parts = parts.filter(|part| cpts.contains(part.partition));
        parts.for_each(|part| part.enter_share(key, &lnd, credits));
        Ok(key)
    }

    /// Replaces the assumed limits of an NI by those of its LND, which has started it.
    pub(crate) fn ni_started<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut NetPartition>,
        ni: Key,
        limits: NiLimits,
        work: &mut DeferredWork,
    ) {
        parts.for_each(|part| part.change_limits(self, ni, &STARTING_LIMITS, &limits, work));
        if let Some(ni) = self.nis.get_mut(ni) {
            (ni.limits, ni.phase) = (limits, NiPhase::Up);
        }
    }

    /// Prepares the stop of an NI: nothing is sent over it any more, and messages that wait for its
    /// credits end.
    pub(crate) fn ni_stopping<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut NetPartition>,
        ni: Key,
        work: &mut DeferredWork,
    ) {
        if let Some(ni) = self.nis.get_mut(ni) {
            ni.phase = NiPhase::Stopping;
        }
        parts.for_each(|part| part.flush_queues(ni, Errno::ESHUTDOWN, work));
    }

    /// Removes an NI that its LND has stopped or could not start. Returns the LND, to be dropped
    /// without the lock; `None` if the NI is gone.
    pub(crate) fn ni_gone<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut NetPartition>,
        ni: Key,
        reason: Errno,
        work: &mut DeferredWork,
    ) -> Option<Arc<dyn Lnd>> {
        parts.for_each(|part| part.forget_ni(ni, reason, work));
        self.nis.remove(ni).map(|ni| ni.lnd)
    }

    /// Sets whether the link of an NI is up; `false` if that is no change.
    pub(crate) fn set_link(&mut self, nid: Nid, up: bool) -> bool {
        let key = self.nis.find(nid).map(|(key, _)| key);
        let ni = key.and_then(|key| self.nis.get_mut(key)).filter(|ni| ni.link != up);
        ni.map(|ni| ni.link = up).is_some()
    }

    /// Stores the NIDs of a node that announces itself as one peer. It cannot claim other NIDs to
    /// which this node has sent something.
    pub(crate) fn learn<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a mut NetPartition>,
        pushed: &PushedNids<impl Iterator<Item = Nid> + Clone>,
    ) {
        let parts: SmallVec<[&mut NetPartition; PARTITIONS_MAX]> = parts.collect();
        let NetShared { nis, identities } = self;
        let sent_to = |nid| parts.iter().any(|part| part.peers.knows(nid));
        if pushed.may_announce(identities, sent_to) {
            let nids = pushed.nids.clone();
            identities.learn(pushed.source, nids, |nid| nis.find(nid).is_some(), sent_to);
        }
    }

    /// Returns the NI with this NID, and the partition of a peer of it.
    pub(crate) fn home_of(&self, ni: Nid, peer: Nid) -> Option<(Key, usize)> {
        self.nis.find(ni).map(|(key, ni)| (key, ni.cpts.of(peer)))
    }

    /// Returns whether there is an NI with this NID, in any phase.
    pub(crate) fn has_ni(&self, nid: Nid) -> bool {
        self.nis.find(nid).is_some()
    }

    /// Returns the NI with this NID, and its LND.
    pub(crate) fn find_ni(&self, nid: Nid) -> Option<(Key, Arc<dyn Lnd>)> {
        self.nis.find(nid).map(|(key, ni)| (key, ni.lnd.clone()))
    }

    /// Returns the LND of an NI, if the NI still exists.
    pub(crate) fn lnd(&self, ni: Key) -> Option<Arc<dyn Lnd>> {
        self.nis.get(ni).map(|ni| ni.lnd.clone())
    }

    /// Returns whether messages may still arrive over an NI.
    pub(crate) fn is_open(&self, ni: Key) -> bool {
        self.nis.get(ni).is_some_and(|ni| ni.phase != NiPhase::Stopping)
    }

    /// Returns whether an NI still exists.
    pub(crate) fn exists(&self, ni: Key) -> bool {
        self.nis.get(ni).is_some()
    }

    /// Returns the number of NIs, not counting `0@lo`.
    pub(crate) fn count(&self) -> usize {
        self.nis.iter().count()
    }

    /// Returns the identities of the NIs that are up, in the order in which they were added.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ProcessId> {
        self.nis.iter().filter(|(_, ni)| ni.phase == NiPhase::Up).map(|(_, ni)| ni.id)
    }

    /// Returns the NIs that are announced to peers.
    pub(crate) fn published(&self) -> impl Iterator<Item = PingInterface> {
        let status = |link| if link { NiStatus::UP } else { NiStatus::DOWN };
        let nis = self.nis.iter().filter(|(_, ni)| ni.is_published());
        nis.map(move |(_, ni)| PingInterface { nid: ni.id.nid, status: status(ni.link) })
    }

    /// Returns the distance of a NID and the NI that leads there; this node itself is `here` hops
    /// away.
    ///
    /// # Errors
    /// EHOSTUNREACH if no NI leads there.
    pub(crate) fn distance(&self, nid: Nid, here: u32) -> Result<Distance, LNetError> {
        if nid.is_loopback() {
            return Ok(Distance { hops: here, order: 0, source: nid });
        }
        // `0@lo` is the first NI of every node.
        let up = || self.nis.iter().zip(1..).filter(|((_, ni), _)| ni.phase == NiPhase::Up);
        let local = up().find(|((_, ni), _)| ni.id.nid == nid);
        if let Some((_, order)) = local {
            return Ok(Distance { hops: here, order, source: nid });
        }
        let ((_, ni), order) =
            up().find(|((_, ni), _)| ni.id.nid.net() == nid.net()).ok_or(LNetError::NoRoute { nid })?;
        Ok(Distance { hops: 1, order, source: ni.id.nid })
    }

    /// Returns the primary NID of the node to which `nid` belongs, if that node has announced it;
    /// otherwise `nid`.
    pub(crate) fn primary(&self, nid: Nid) -> Nid {
        self.identities.primary(nid)
    }

    /// Returns the NIDs of the node to which a NID belongs, the primary one first.
    pub(super) fn nids_of(&self, nid: Nid) -> SmallVec<[Nid; 2]> {
        match self.identities.nids(nid) {
            [] => smallvec::smallvec![nid],
            nids => nids.iter().copied().collect(),
        }
    }
}

impl NetPartition {
    /// Returns whether a push may contain changes, going by the peers of this partition alone.
    /// Usually it contains none.
    pub(crate) fn is_news(
        &self,
        shared: &NetShared,
        pushed: &PushedNids<impl Iterator<Item = Nid> + Clone>,
    ) -> bool {
        let NetShared { nis, identities } = shared;
        let sent_to = |nid| self.peers.knows(nid);
        let nids = pushed.nids.clone();
        pushed.may_announce(identities, sent_to)
            && identities.is_news(pushed.source, nids, |nid| nis.find(nid).is_some(), sent_to)
    }

    /// Creates this partition's part of an NI.
    fn enter_share(&mut self, ni: Key, lnd: &Arc<dyn Lnd>, credits: i64) {
        let index = ni.index as usize;
        if self.shares.len() <= index {
            self.shares.resize_with(index + 1, || None);
        }
        self.shares[index] = Some(NiShare {
            ni,
            lnd: Arc::new(lnd.clone()),
            credits,
            max_credits: credits,
            min_credits: credits,
            peer_credits: i64::from(STARTING_LIMITS.peer_credits),
            queue: List::new(),
            waiting: 0,
            held_back: 0,
            traffic: Traffic::default(),
        });
        self.peers.enter_ni(ni);
    }

    /// Removes an NI: ends its messages, wherever they are, and forgets its peers.
    fn forget_ni(&mut self, ni: Key, errno: Errno, work: &mut DeferredWork) {
        self.flush_queues(ni, errno, work);
        let over_ni = |&index: &u32| self.peers[self.messages[index].peer].ni == ni;
        let left: Vec<u32> = self.messages.indices().filter(over_ni).collect();
        for index in left {
            self.end(index, errno, work);
        }
        for peer in self.peers.of_ni(ni) {
            self.peers.forget(peer);
        }
        // Some hosts still count messages that have just ended.
        self.peers.enter_ni(ni);
        if let Some(share) = self.shares.get_mut(ni.index as usize) {
            share.take_if(|share| share.ni == ni);
        }
    }
}
