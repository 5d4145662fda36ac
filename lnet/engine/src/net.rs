//! The room (state owner) of the network: peers, credits, NIs, and outgoing messages
//! (lnet-semantics 13).
//!
//! Each partition has a [`NetPartition`] under a private lock. The state that all share ([`NetShared`]) is
//! read under any of these locks and changed under all of them (S-304).

mod admit;
mod audit;
mod choice;
mod credits;
#[cfg(test)]
pub(crate) mod damage;
mod host;
mod identity;
mod interfaces;
mod ni;
mod nid_map;
mod peer;
mod sending;

use std::sync::Arc;

use lnet_api::{Errno, LNetError, Lnd, Tx, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Header, MessageType};

pub(crate) use self::admit::AdmitError;
use self::identity::Identities;
pub(crate) use self::interfaces::PushedNids;
pub(crate) use self::ni::{Cpts, NiDistances};
use self::ni::{NiPhase, NiState, Nis};
use self::nid_map::NidMap;
use self::peer::PeerNis;
use self::sending::{Awaits, PendingSend, QUEUE};
use crate::common::Common;
use crate::counters::{Counters, NiStatistics, PeerStatistics, Traffic};
use crate::drops::{RecentDrop, RecentDrops};
use crate::list::List;
use crate::message::{Launch, Launched, MessageOp, NewOperation, OutgoingMessage, Path, PeerName, Route};
use crate::names::{MdName, pack};
use crate::slab::{Key, NONE, Slab, slab};
use crate::work::{DeferredWork, EndedMessage};

/// Bytes that a message counts in its peer's queue in addition to its payload (lnet-semantics 13).
const HEADER_BYTES: u64 = Header::LEN as u64;

/// State that all partitions share: the NIs, and the NIDs of each known node.
pub(crate) struct NetShared {
    nis: Nis,
    identities: Identities,
}

/// One partition's part of an NI.
pub(crate) struct NiShare {
    ni: Key,
    /// The NI's LND, behind a separate reference count for this partition: each message takes a
    /// reference.
    lnd: Arc<Arc<dyn Lnd>>,
    /// Messages that may still be handed to the LND; negative if messages are queued, by their
    /// number.
    credits: i64,
    max_credits: i64,
    min_credits: i64,
    /// Credits that one peer may have. Every host may have at least this number
    /// ([`host::may_take`]).
    peer_credits: i64,
    queue: List<QUEUE>,
    /// Messages in the queue for credits of the NI.
    waiting: usize,
    /// Messages in the queues of the NI's hosts.
    held_back: usize,
    /// Counts of messages over the NI; `received` includes the dropped messages.
    traffic: Traffic,
}

/// The LND that has a message, or is about to get it, with the NI and the peer of the message.
pub(crate) struct MessageHolder {
    lnd: Arc<Arc<dyn Lnd>>,
    ni: Nid,
    peer: ProcessId,
}

impl MessageHolder {
    /// Asks the LND to give the message back, if nothing of it has left; without any lock.
    pub(crate) fn withdraw(&self, token: TxToken) -> bool {
        self.lnd.withdraw(self.ni, self.peer, token)
    }
}

/// One partition of the room: peers with their credits, and the messages to them.
pub(crate) struct NetPartition {
    common: Arc<Common>,
    partition: usize,
    messages: Slab<PendingSend>,
    /// The messages that wait for credits.
    waiting: Slab<Tx>,
    peers: PeerNis,
    /// The NIs of the first messages to or from peers, where several NIs are on a peer's network
    /// (lnet-routing 17). A NID is in the partition of its hash among all partitions.
    preferred: NidMap<Key>,
    /// The parts of the NIs, by the index of the NI.
    shares: Vec<Option<NiShare>>,
    counters: Counters,
    drops: RecentDrops,
    /// Traffic of this node to itself.
    lo: Traffic,
}

impl NetPartition {
    pub(crate) fn new(common: &Arc<Common>, partition: usize) -> NetPartition {
        let (limits, room) = (&common.config.limits, common.room(partition));
        NetPartition {
            common: common.clone(),
            partition,
            messages: slab(limits.messages).within(&room),
            waiting: slab(limits.messages).within(&room),
            peers: PeerNis::new(limits.peers, limits.messages, &room),
            preferred: NidMap::within(limits.peers, &room),
            shares: Vec::new(),
            counters: Counters::default(),
            drops: RecentDrops::default(),
            lo: Traffic::default(),
        }
    }

    /// Returns this partition's part of an NI, if peers of the NI belong here.
    fn share(&self, ni: Key) -> Option<&NiShare> {
        self.shares.get(ni.index as usize)?.as_ref().filter(|share| share.ni == ni)
    }

    fn share_mut(&mut self, ni: Key) -> Option<&mut NiShare> {
        self.shares.get_mut(ni.index as usize)?.as_mut().filter(|share| share.ni == ni)
    }

    /// Starts to send a message: returns it, to be handed over, if there are credits, otherwise
    /// queues it. `None` if it ends at once: with ENETDOWN if the NI is gone or stops, with ENOMEM
    /// without room for the message or its peer.
    pub(crate) fn launch(
        &mut self,
        shared: &NetShared,
        launch: Launch,
        work: &mut DeferredWork,
    ) -> Option<Launched> {
        let Launch { path, message, header, payload, reply_to } = launch;
        let (ni, peer) = match self.next_hop(shared, path) {
            Ok(hop) => hop,
            Err(errno) => {
                self.counters.errors += 1;
                work.ended.push(EndedMessage { message, result: Err(errno) });
                return None;
            }
        };
        let is_answer = message.op.is_answer();
        if !is_answer {
            // The message goes to the address in the peer's NID, regardless of the address that has
            // used the NID.
            let address = self.peers[peer].id.nid;
            self.peers.assign_host(peer, address);
        }
        let md = message.md;
        let name = self.messages.insert(PendingSend::new(message, peer))?;
        self.counters.msgs_max = self.counters.msgs_max.max(self.messages.len() as u64);
        let token = TxToken(pack(self.partition, name));
        let to = self.peers.get_mut(peer);
        to.answers += u32::from(is_answer);
        to.queued_bytes += u64::from(header.payload_length) + HEADER_BYTES;
        let (peer, key) = (to.id, to.ni);
        let deadline_ns = ni.deadline_ns(self.common.now_ns());
        let tx = Tx { ni: ni.id.nid, peer, header, payload, token, reply_to, deadline_ns };
        if self.take_peer_credit(name.index)
            && self.take_host_credit(name.index, key)
            && self.take_ni_credit(name.index, key)
        {
            return Some(self.ready(key, tx, md, false));
        }
        self.keep_waiting(name.index, tx);
        Some(Launched::Waits { md, token })
    }

    /// Returns the NI and the peer of a message, if there is room for it.
    fn next_hop<'a>(&mut self, shared: &'a NetShared, path: Path) -> Result<(&'a NiState, u32), Errno> {
        let Path::Over { ni: key, peer, .. } = path else { return Err(Errno::EINVAL) };
        let ni = shared.nis.get(key).filter(|ni| ni.phase != NiPhase::Stopping).ok_or(Errno::ENETDOWN)?;
        // Both tables need room: a message that is in the table ends in one way only, by being
        // finalised.
        if !self.messages.make_room() || !self.waiting.make_room() {
            return Err(Errno::ENOMEM);
        }
        let peer =
            self.peers.enter(&self.common.hasher, key, peer, ni.limits.peer_credits).ok_or(Errno::ENOMEM)?;
        Ok((ni, peer))
    }

    /// Returns the launch of a message that has all its credits.
    fn ready(&self, ni: Key, tx: Tx, md: Option<MdName>, waited: bool) -> Launched {
        let share = self.share(ni).expect("a share outlives its NI's messages");
        Launched::Ready { lnd: share.lnd.clone(), tx, md, waited }
    }

    /// Queues a message that has waited for its hand-over.
    fn queue_send(&self, message: u32, ni: Key, tx: Tx, work: &mut DeferredWork) {
        let md = self.messages[message].message.md;
        work.sends.push(self.ready(ni, tx, md, true));
    }

    /// Keeps a message that is in a queue. There is room for every message.
    fn keep_waiting(&mut self, message: u32, tx: Tx) {
        self.messages[message].waiting = self.waiting.insert(tx).map_or(NONE, |key| key.index);
    }

    fn stop_waiting(&mut self, message: u32) -> Option<Tx> {
        let waiting = std::mem::replace(&mut self.messages[message].waiting, NONE);
        self.waiting.take(waiting)
    }

    /// Ends a message that has left its LND or failed: its credits go to the next ones. Returns the
    /// message, to be ended.
    pub(crate) fn finalize(
        &mut self,
        key: Key,
        result: Result<(), Errno>,
        work: &mut DeferredWork,
    ) -> Option<OutgoingMessage> {
        self.messages.get(key).filter(|message| message.waiting == NONE)?;
        let PendingSend { message, peer, host, .. } = self.take(key.index, result)?;
        self.give_back_credits(peer, host, work);
        Some(message)
    }

    /// Withdraws a message whose MD is unlinked. One that waits for credits ends; for another,
    /// returns the LND that has it, or is about to.
    pub(crate) fn withdraw(
        &mut self,
        shared: &NetShared,
        key: Key,
        work: &mut DeferredWork,
    ) -> Option<MessageHolder> {
        let &PendingSend { peer: index, waiting, awaits, host, .. } = self.messages.get(key)?;
        let peer = self.peers.get_mut(index);
        let (id, ni) = (peer.id, peer.ni);
        if waiting == NONE {
            let nid = shared.nis.get(ni)?.id.nid;
            return Some(MessageHolder { lnd: self.share(ni)?.lnd.clone(), ni: nid, peer: id });
        }
        let share = self.shares[ni.index as usize].as_mut()?;
        match awaits {
            Awaits::Peer => {
                peer.queue.remove(&mut self.messages, key.index);
                (peer.credits, peer.waiting) = (peer.credits + 1, peer.waiting - 1);
            }
            Awaits::Host => {
                let known = self.peers.host_mut(ni, host);
                known.queue.remove(&mut self.messages, key.index);
                known.waiting -= 1;
                share.held_back -= 1;
            }
            Awaits::Ni => {
                share.queue.remove(&mut self.messages, key.index);
                (share.credits, share.waiting) = (share.credits + 1, share.waiting - 1);
            }
        }
        let _tx = self.stop_waiting(key.index);
        self.end(key.index, Errno::ECANCELED, work);
        // The message's credits go to the messages that wait for them, at the ends of the queues.
        match awaits {
            Awaits::Peer => {}
            Awaits::Host => {
                self.peers.forget_host_if_unused(ni, host);
                self.give_back_peer_credit(index, work);
            }
            Awaits::Ni => {
                self.give_back_host_credit(ni, host, work);
                self.give_back_peer_credit(index, work);
            }
        }
        None
    }

    /// Removes a message from the table and counts its end.
    fn take(&mut self, index: u32, result: Result<(), Errno>) -> Option<PendingSend> {
        let sending = self.messages.take(index)?;
        let (op, bytes) = (sending.message.op, sending.message.payload_bytes());
        let peer = self.peers.get_mut(sending.peer);
        peer.answers -= u32::from(op.is_answer());
        peer.queued_bytes -= bytes + HEADER_BYTES;
        let ni = peer.ni;
        match result {
            Ok(()) => {
                self.counters.send_count += 1;
                self.counters.send_length += bytes;
                peer.traffic.sent.count(op.kind());
                if let Some(share) = self.share_mut(ni) {
                    share.traffic.sent.count(op.kind());
                }
            }
            Err(_) => self.counters.errors += 1,
        }
        Some(sending)
    }

    /// Ends a message that its LND does not have; the caller returns its credits.
    fn end(&mut self, message: u32, errno: Errno, work: &mut DeferredWork) {
        let result = Err(errno);
        if let Some(PendingSend { message, .. }) = self.take(message, result) {
            work.ended.push(EndedMessage { message, result });
        }
    }

    /// Returns the MD and the expected response of a GET of kind `op` in flight.
    pub(crate) fn get_under_way(&self, key: Key, op: MessageOp) -> Option<(MdName, Key)> {
        let PendingSend { message, .. } = self.messages.get(key)?;
        (message.op == op).then_some((message.md?, message.response))
    }

    /// Marks a GET whose data the network writes directly; `None` if the GET has ended.
    pub(crate) fn make_direct(&mut self, key: Key) -> Option<()> {
        self.messages.get_mut(key)?.message.op = MessageOp::DirectGet;
        Some(())
    }

    /// Counts a message of this node to itself: no LND, no credits (lnet-wire 14).
    pub(crate) fn count_loopback(&mut self, kind: MessageType, payload_length: u32) {
        self.lo.sent.count(kind);
        self.lo.received.count(kind);
        self.counters.send_count += 1;
        self.counters.send_length += u64::from(payload_length);
    }

    /// Returns the route of a message to a process (lnet-semantics 14), from an MD of this
    /// partition: straight to the target, as this node does not route and has no router.
    ///
    /// # Errors
    /// EADDRNOTAVAIL for a source that is no NI, EHOSTUNREACH if no NI leads there, ENOMEM if this
    /// partition has too many messages.
    pub(crate) fn route(
        &mut self,
        shared: &NetShared,
        request: &NewOperation,
        partition: usize,
    ) -> Result<Route, LNetError> {
        let NetShared { nis, identities } = shared;
        let &NewOperation { via, target, .. } = request;
        if let Some(nid) = via.filter(|&nid| !nis.is_local(nid)) {
            return Err(LNetError::NotLocal { nid });
        }
        if nis.is_local(target.nid) {
            let (path, nid) = (Path::Here, target.nid);
            return Ok(Route { path, source: nid, primary: nid, debtor: None });
        }
        let (key, ni) =
            self.choose_ni(shared, request, partition).ok_or(LNetError::NoRoute { nid: target.nid })?;
        let partition = ni.cpts.of(target.nid);
        // In another partition, a full table is detected at the launch of the message.
        if partition == self.partition && self.messages.is_full() {
            return Err(LNetError::TooMany { objects: "messages in flight", limit: self.messages.limit() });
        }
        Ok(Route {
            path: Path::Over { ni: key, peer: target, partition },
            source: ni.id.nid,
            primary: identities.primary(target.nid),
            debtor: Some(self.peers.name_of(&self.common.hasher, key, target)),
        })
    }

    /// Removes an idle peer.
    pub(crate) fn forget_if_idle(&mut self, name: &PeerName) {
        if let Some(index) = self.peers.lookup(name) {
            self.peers.forget_if_idle(index);
        }
    }

    /// Returns the number of outgoing messages.
    pub(crate) fn sending(&self) -> usize {
        self.messages.len()
    }

    /// Returns this partition's part of the node's counters.
    pub(crate) fn counters(&self) -> Counters {
        Counters { msgs_alloc: self.messages.len() as u64, ..self.counters }
    }

    /// Returns this partition's part of the last dropped messages, the newest first.
    pub(crate) fn recent_drops(&self, now_ns: u64) -> impl Iterator<Item = RecentDrop> {
        self.drops.iter(now_ns)
    }

    /// Adds this partition's part of the traffic of an NI, `0@lo` included; `None` if there is no
    /// such NI.
    pub(crate) fn add_ni_statistics(
        &self,
        shared: &NetShared,
        nid: Nid,
        all: &mut NiStatistics,
    ) -> Option<()> {
        if nid.is_loopback() {
            all.traffic += self.lo;
            return Some(());
        }
        let (key, ni) = shared.nis.find(nid)?;
        all.up = ni.phase == NiPhase::Up && ni.link;
        if let Some(share) = self.share(key) {
            all.traffic += share.traffic;
            all.credits += share.max_credits;
            all.available_tx_credits += share.credits;
            all.min_tx_credits += share.min_credits;
            all.held_back += share.held_back;
        }
        Some(())
    }

    /// Returns the statistics of this partition's peers.
    pub(crate) fn peer_statistics(&self) -> impl Iterator<Item = PeerStatistics> {
        self.peers.iter().map(|peer| {
            let mut traffic = peer.traffic;
            traffic.subtract_dropped();
            PeerStatistics {
                nid: peer.id.nid,
                traffic,
                max_ni_tx_credits: peer.max_credits,
                available_tx_credits: peer.credits,
                min_tx_credits: peer.min_credits,
                tx_q_num_of_buf: peer.queued_bytes,
            }
        })
    }

    /// Returns whether messages wait here for credits of an NI, or of their host on it.
    pub(crate) fn is_short(&self, shared: &NetShared, ni: Nid) -> bool {
        let share = shared.nis.find(ni).and_then(|(key, _)| self.share(key));
        share.is_some_and(|share| share.waiting > 0 || share.held_back > 0)
    }

    /// Counts a push whose content is ignored.
    pub(crate) fn count_ignored_push(&mut self) {
        self.counters.pushes_ignored += 1;
    }

    /// Returns the MD, if any, of a message in flight; `None` if the message has ended.
    pub(crate) fn md_of(&self, key: Key) -> Option<Option<MdName>> {
        self.messages.get(key).map(|sending| sending.message.md)
    }

    /// Returns the messages in flight, by their index.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (u32, &OutgoingMessage)> {
        self.messages.indices().map(|index| (index, &self.messages[index].message))
    }
}
