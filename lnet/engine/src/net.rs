//! One partition of the network's side: peers, credits, and the messages on their way out (lnet-semantics 13).

use std::sync::Arc;

use lnet_api::{Errno, Lnd, NiLimits, Tx, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::Header;

use crate::common::Common;
use crate::counters::{Counters, Traffic};
use crate::drops::RecentDrops;
use crate::host::{self, RELEASES};
use crate::identity::Identities;
use crate::list::List;
use crate::message::{Awaits, Launch, Message, Op, QUEUE, Way};
use crate::names::{MdName, pack};
use crate::ni::{Ni, Nis, Phase};
use crate::peer::{Peer, Peers};
use crate::slab::{Key, NONE, Slab, slab};
use crate::work::{Ended, Outgoing, Work};

/// Bytes that a message counts in its peer's queue beside its payload (lnet-semantics 13).
pub(crate) const HEADER_BYTES: u64 = Header::LEN as u64;

/// What all partitions of the net lock share: read under any private lock, changed under all of them (S-304).
pub(crate) struct NetShared {
    pub(crate) nis: Nis,
    pub(crate) identities: Identities,
}

/// One partition's part of an NI.
pub(crate) struct Share {
    pub(crate) ni: Key,
    /// The NI's LND, by a count of references of this partition's own: each message takes one.
    lnd: Arc<Arc<dyn Lnd>>,
    /// Messages that may still be handed to the LND; below 0, as many are queued.
    pub(crate) credits: i64,
    pub(crate) max_credits: i64,
    pub(crate) min_credits: i64,
    /// Those that one peer may have: any host may have as many ([`host::may_take`]).
    peer_credits: i64,
    pub(crate) queue: List<QUEUE>,
    /// Messages in the queue.
    pub(crate) waiting: usize,
    /// Messages in the queues of its hosts.
    pub(crate) held_back: usize,
    /// `received` counts the dropped ones too.
    pub(crate) traffic: Traffic,
}

/// What has become of a message that is sent.
#[allow(
    clippy::large_enum_variant,
    reason = "the large one is the common one, and a box would be allocated for it"
)]
pub(crate) enum Launched {
    /// It has its credits, and is to be handed over.
    Ready(Outgoing),
    /// It waits for credits, under this name, for this MD.
    Waits(Option<MdName>, TxToken),
}

/// Who has a message that has its credits.
pub(crate) struct Handed {
    pub(crate) lnd: Arc<Arc<dyn Lnd>>,
    pub(crate) ni: Nid,
    pub(crate) peer: ProcessId,
}

/// Peers with their credits, and what is sent to them.
pub(crate) struct Net {
    partition: usize,
    pub(crate) messages: Slab<Message>,
    /// The messages that wait for credits.
    pub(crate) waiting: Slab<Tx>,
    pub(crate) peers: Peers,
    /// By the index of the NI.
    pub(crate) shares: Vec<Option<Share>>,
    pub(crate) counters: Counters,
    pub(crate) drops: RecentDrops,
    /// What this node sent to itself.
    pub(crate) lo: Traffic,
}

impl Net {
    pub(crate) fn new(common: &Common, partition: usize) -> Net {
        let limits = &common.config.limits;
        Net {
            partition,
            messages: slab(limits.messages),
            waiting: slab(limits.messages),
            peers: Peers::new(limits.peers, limits.messages),
            shares: Vec::new(),
            counters: Counters::default(),
            drops: RecentDrops::default(),
            lo: Traffic::default(),
        }
    }

    /// This partition's part of an NI, if peers of the NI belong here.
    pub(crate) fn share(&self, ni: Key) -> Option<&Share> {
        self.shares.get(ni.index as usize)?.as_ref().filter(|share| share.ni == ni)
    }

    pub(crate) fn share_mut(&mut self, ni: Key) -> Option<&mut Share> {
        self.shares.get_mut(ni.index as usize)?.as_mut().filter(|share| share.ni == ni)
    }

    /// Begins this partition's part of an NI.
    pub(crate) fn enter_share(&mut self, ni: Key, lnd: &Arc<dyn Lnd>, credits: i64, peer_credits: u32) {
        let place = ni.index as usize;
        if self.shares.len() <= place {
            self.shares.resize_with(place + 1, || None);
        }
        let (max_credits, min_credits) = (credits, credits);
        let (queue, traffic) = (List::new(), Traffic::default());
        let lnd = Arc::new(lnd.clone());
        let peer_credits = i64::from(peer_credits.max(1));
        let (waiting, held_back) = (0, 0);
        self.shares[place] = Some(Share {
            ni,
            lnd,
            credits,
            max_credits,
            min_credits,
            peer_credits,
            queue,
            waiting,
            held_back,
            traffic,
        });
        self.peers.enter_ni(ni);
    }

    /// Sends a message: gives it back, to be handed over, when there are credits, or queues it. `None` if it ends at once: with
    /// ENETDOWN if the NI is gone or stops, with ENOMEM without room for the message or its peer.
    pub(crate) fn launch(
        &mut self,
        shared: &NetShared,
        common: &Common,
        launch: Launch,
        work: &mut Work,
    ) -> Option<Launched> {
        let Launch { way, mut message, header, payload, reply_to } = launch;
        let (ni, peer) = match self.next_hop(shared, common, way) {
            Ok(hop) => hop,
            Err(errno) => {
                self.counters.errors += 1;
                work.ended.push(Ended { message, result: Err(errno) });
                return None;
            }
        };
        let is_answer = message.op.is_answer();
        if !is_answer {
            // It goes to the address in the NID, whoever has spoken in its name.
            let address = self.peers[peer].id.nid;
            self.peers.settle(peer, address);
        }
        message.peer = peer;
        let md = message.md;
        let name = self.messages.insert(message)?;
        self.counters.msgs_max = self.counters.msgs_max.max(self.messages.len() as u64);
        let token = TxToken(pack(self.partition, name));
        let to = self.peers.get_mut(peer);
        to.answers += u32::from(is_answer);
        to.queued_bytes += u64::from(header.payload_length) + HEADER_BYTES;
        let (peer, key) = (to.id, to.ni);
        let deadline_ns = ni.deadline_ns(common.now_ns());
        let tx = Tx { ni: ni.id.nid, peer, header, payload, token, reply_to, deadline_ns };
        if self.take_peer_credit(name.index)
            && self.take_host_credit(name.index, key)
            && self.take_ni_credit(name.index, key)
        {
            return Some(Launched::Ready(self.outgoing(key, tx, md, false)));
        }
        self.keep_waiting(name.index, tx);
        Some(Launched::Waits(md, token))
    }

    /// The NI and the peer of a message, if there is room for it.
    fn next_hop<'a>(
        &mut self,
        shared: &'a NetShared,
        common: &Common,
        way: Way,
    ) -> Result<(&'a Ni, u32), Errno> {
        let Way::Over { ni: key, peer, .. } = way else { return Err(Errno::EINVAL) };
        let ni = shared.nis.get(key).filter(|ni| ni.phase != Phase::Stopping).ok_or(Errno::ENETDOWN)?;
        // Where it may have to wait, there must be room too: once it is in, it ends in one way, finalised.
        if !self.messages.make_room() || !self.waiting.make_room() {
            return Err(Errno::ENOMEM);
        }
        let peer =
            self.peers.enter(&common.hasher, key, peer, ni.limits.peer_credits).ok_or(Errno::ENOMEM)?;
        Ok((ni, peer))
    }

    /// Whether a message has got a credit of its peer; else it is in the queue for one.
    fn take_peer_credit(&mut self, message: u32) -> bool {
        let peer = self.peers.get_mut(self.messages[message].peer);
        peer.credits -= 1;
        peer.min_credits = peer.min_credits.min(peer.credits);
        if peer.credits < 0 {
            peer.waiting += 1;
            self.messages[message].awaits = Awaits::Peer;
            peer.queue.push_back(&mut self.messages, message);
            return false;
        }
        true
    }

    /// Whether a message may have a credit of its NI for its host; else it is in the host's queue.
    fn take_host_credit(&mut self, message: u32, ni: Key) -> bool {
        let share =
            self.shares[ni.index as usize].as_mut().expect("a peer's NI has a share in its partition");
        let of_peer = self.peers[self.messages[message].peer].host;
        self.messages[message].host = of_peer;
        let host = self.peers.host_mut(ni, of_peer);
        if host.waiting > 0 || !host::may_take(host.held, share.credits, share.peer_credits) {
            host.waiting += 1;
            share.held_back += 1;
            self.messages[message].awaits = Awaits::Host;
            host.queue.push_back(&mut self.messages, message);
            return false;
        }
        host.held += 1;
        true
    }

    /// Whether a message has got a credit of its NI; else it is in the queue for one.
    fn take_ni_credit(&mut self, message: u32, ni: Key) -> bool {
        let share =
            self.shares[ni.index as usize].as_mut().expect("a peer's NI has a share in its partition");
        share.credits -= 1;
        share.min_credits = share.min_credits.min(share.credits);
        if share.credits < 0 {
            share.waiting += 1;
            self.messages[message].awaits = Awaits::Ni;
            share.queue.push_back(&mut self.messages, message);
            return false;
        }
        true
    }

    /// A message with all its credits, for which it has waited or not.
    fn outgoing(&self, ni: Key, tx: Tx, md: Option<MdName>, waited: bool) -> Outgoing {
        let share = self.share(ni).expect("a share outlives its NI's messages");
        Outgoing { lnd: share.lnd.clone(), tx, md, waited }
    }

    /// Hands over a message that has waited.
    fn let_go(&self, message: u32, ni: Key, tx: Tx, work: &mut Work) {
        let md = self.messages[message].md;
        work.sends.push(self.outgoing(ni, tx, md, true));
    }

    /// Keeps a message that is in a queue. There is room for as many as there are messages.
    fn keep_waiting(&mut self, message: u32, tx: Tx) {
        self.messages[message].waiting = self.waiting.insert(tx).map_or(NONE, |key| key.index);
    }

    fn stop_waiting(&mut self, message: u32) -> Option<Tx> {
        let waiting = std::mem::replace(&mut self.messages[message].waiting, NONE);
        self.waiting.take(waiting)
    }

    /// A message has left its LND, or could not: its credits go to the next ones. Gives the message, to be ended.
    pub(crate) fn finalize(
        &mut self,
        common: &Common,
        key: Key,
        result: Result<(), Errno>,
        work: &mut Work,
    ) -> Option<Message> {
        self.messages.get(key).filter(|message| message.waiting == NONE)?;
        let message = self.take(key.index, result)?;
        self.give_back_credits(common, message.peer, message.host, work);
        Some(message)
    }

    /// Takes back a message that its MD's owner has no more use for. One that waits for credits ends; of another, gives
    /// whom it was handed to, or is about to be.
    pub(crate) fn withdraw(
        &mut self,
        shared: &NetShared,
        common: &Common,
        key: Key,
        work: &mut Work,
    ) -> Option<Handed> {
        let &Message { peer: index, waiting, awaits, host, .. } = self.messages.get(key)?;
        let peer = self.peers.get_mut(index);
        let (id, ni) = (peer.id, peer.ni);
        if waiting == NONE {
            let nid = shared.nis.get(ni)?.id.nid;
            return Some(Handed { lnd: self.share(ni)?.lnd.clone(), ni: nid, peer: id });
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
        // What it had goes to those that wait for it, at the ends of the queues.
        match awaits {
            Awaits::Peer => {}
            Awaits::Host => {
                self.peers.forget_host_if_unused(ni, host);
                self.give_back_peer_credit(common, index, work);
            }
            Awaits::Ni => {
                self.give_back_host_credit(common, ni, host, work);
                self.give_back_peer_credit(common, index, work);
            }
        }
        None
    }

    /// Takes a message out of the table and counts its end.
    fn take(&mut self, index: u32, result: Result<(), Errno>) -> Option<Message> {
        let message = self.messages.take(index)?;
        let bytes = match message.op {
            Op::Put | Op::Reply => u64::from(message.event.mlength),
            Op::Get | Op::DirectGet | Op::Ack => 0,
        };
        let peer = self.peers.get_mut(message.peer);
        peer.answers -= u32::from(message.op.is_answer());
        peer.queued_bytes -= bytes + HEADER_BYTES;
        let ni = peer.ni;
        match result {
            Ok(()) => {
                self.counters.send_count += 1;
                self.counters.send_length += bytes;
                peer.traffic.sent.count(message.op.kind());
                if let Some(share) = self.share_mut(ni) {
                    share.traffic.sent.count(message.op.kind());
                }
            }
            Err(_) => self.counters.errors += 1,
        }
        Some(message)
    }

    /// The NI's credit goes back first (lnet-semantics 13).
    fn give_back_credits(&mut self, common: &Common, peer: u32, host: u32, work: &mut Work) {
        let ni = self.peers[peer].ni;
        self.give_back_ni_credit(common, ni, work);
        self.give_back_host_credit(common, ni, host, work);
        self.give_back_peer_credit(common, peer, work);
    }

    /// A message of a host holds no credit of the NI any more. As long as messages wait for the host it holds some: so each that
    /// waits is looked at again, at the latest when the last of them comes back.
    fn give_back_host_credit(&mut self, common: &Common, ni: Key, host: u32, work: &mut Work) {
        if host == NONE {
            return;
        }
        self.peers.host_mut(ni, host).held -= 1;
        let mut releases = RELEASES;
        while releases > 0 {
            let Some(share) = self.shares[ni.index as usize].as_mut() else { return };
            let known = self.peers.host_mut(ni, host);
            if known.waiting == 0 || !host::may_take(known.held, share.credits, share.peer_credits) {
                break;
            }
            // There is room for one beside what the peer's credit lets go. More is taken where there is memory.
            if releases < RELEASES && !work.sends.reserve(2) {
                break;
            }
            let Some(message) = known.queue.pop_front(&mut self.messages) else { break };
            known.waiting -= 1;
            share.held_back -= 1;
            let Some(tx) = self.stop_waiting(message) else { break };
            if tx.deadline_ns <= common.now_ns() {
                let peer = self.messages[message].peer;
                self.end(message, Errno::ETIMEDOUT, work);
                self.give_back_peer_credit(common, peer, work);
                continue;
            }
            self.peers.host_mut(ni, host).held += 1;
            releases -= 1;
            match self.take_ni_credit(message, ni) {
                true => self.let_go(message, ni, tx, work),
                false => self.keep_waiting(message, tx),
            }
        }
        self.peers.forget_host_if_unused(ni, host);
    }

    fn give_back_ni_credit(&mut self, common: &Common, ni: Key, work: &mut Work) {
        loop {
            let Some(share) = self.shares[ni.index as usize].as_mut() else { return };
            share.credits += 1;
            if !lets_go(share.credits, share.waiting) {
                return;
            }
            let Some(message) = share.queue.pop_front(&mut self.messages) else { return };
            share.waiting -= 1;
            let Some(tx) = self.stop_waiting(message) else { return };
            if tx.deadline_ns > common.now_ns() {
                return self.let_go(message, ni, tx, work);
            }
            let Message { peer, host, .. } = self.messages[message];
            self.end(message, Errno::ETIMEDOUT, work);
            self.give_back_host_credit(common, ni, host, work);
            self.give_back_peer_credit(common, peer, work);
        }
    }

    fn give_back_peer_credit(&mut self, common: &Common, index: u32, work: &mut Work) {
        loop {
            let peer = self.peers.get_mut(index);
            peer.credits += 1;
            if !lets_go(peer.credits, peer.waiting) {
                return;
            }
            let Some(message) = peer.queue.pop_front(&mut self.messages) else { return };
            peer.waiting -= 1;
            let ni = peer.ni;
            let Some(tx) = self.stop_waiting(message) else { return };
            if tx.deadline_ns > common.now_ns() {
                if self.take_host_credit(message, ni) && self.take_ni_credit(message, ni) {
                    return self.let_go(message, ni, tx, work);
                }
                return self.keep_waiting(message, tx);
            }
            self.end(message, Errno::ETIMEDOUT, work);
        }
    }

    /// Ends a message that its LND does not have; its credits are the caller's business.
    fn end(&mut self, message: u32, errno: Errno, work: &mut Work) {
        let result = Err(errno);
        if let Some(message) = self.take(message, result) {
            work.ended.push(Ended { message, result });
        }
    }

    /// An LND has started an NI: its limits take the place of the ones assumed so far.
    pub(crate) fn change_limits(
        &mut self,
        shared: &NetShared,
        common: &Common,
        ni: Key,
        from: &NiLimits,
        to: &NiLimits,
        work: &mut Work,
    ) {
        let more = i64::from(to.peer_credits.max(1)) - i64::from(from.peer_credits.max(1));
        for index in self.peers.of_ni(ni) {
            let peer = self.peers.get_mut(index);
            peer.max_credits += more;
            peer.min_credits += more;
            peer.credits += more.min(0);
            // One by one as long as somebody waits for them.
            let mut left = more.max(0);
            while left > 0 && self.peers[index].credits < 0 {
                self.give_back_peer_credit(common, index, work);
                left -= 1;
            }
            self.peers.get_mut(index).credits += left;
        }
        let Some(known) = shared.nis.get(ni) else { return };
        let more = known.credits_per_partition(to) - known.credits_per_partition(from);
        let Some(share) = self.share_mut(ni) else { return };
        share.peer_credits = i64::from(to.peer_credits.max(1));
        share.max_credits += more;
        share.min_credits += more;
        share.credits += more.min(0);
        let mut left = more.max(0);
        while left > 0 && self.share(ni).is_some_and(|share| share.credits < 0) {
            self.give_back_ni_credit(common, ni, work);
            left -= 1;
        }
        if let Some(share) = self.share_mut(ni) {
            share.credits += left;
        }
    }

    /// Ends all messages that wait for credits of an NI or of its peers.
    pub(crate) fn flush_queues(&mut self, ni: Key, errno: Errno, work: &mut Work) {
        while let Some(Some(share)) = self.shares.get_mut(ni.index as usize)
            && share.ni == ni
            && let Some(message) = share.queue.pop_front(&mut self.messages)
        {
            share.waiting -= 1;
            share.credits += 1;
            let Message { peer, host, .. } = self.messages[message];
            self.peers.get_mut(peer).credits += 1;
            self.peers.host_mut(ni, host).held -= 1;
            self.peers.forget_host_if_unused(ni, host);
            let _tx = self.stop_waiting(message);
            self.end(message, errno, work);
        }
        for peer in self.peers.of_ni(ni) {
            // Each message in the queue of a host is one of its peers'.
            let host = self.peers[peer].host;
            while let Some(message) = self.peers.host_mut(ni, host).queue.pop_front(&mut self.messages) {
                self.peers.host_mut(ni, host).waiting -= 1;
                if let Some(share) = self.share_mut(ni) {
                    share.held_back -= 1;
                }
                self.peers.get_mut(self.messages[message].peer).credits += 1;
                let _tx = self.stop_waiting(message);
                self.end(message, errno, work);
            }
        }
        for peer in self.peers.of_ni(ni) {
            while let Some(message) = self.peers.get_mut(peer).queue.pop_front(&mut self.messages) {
                let known = self.peers.get_mut(peer);
                (known.credits, known.waiting) = (known.credits + 1, known.waiting - 1);
                let _tx = self.stop_waiting(message);
                self.end(message, errno, work);
            }
        }
    }

    /// An NI is gone: its messages end, whoever still has them, and its peers are forgotten.
    pub(crate) fn forget_ni(&mut self, ni: Key, errno: Errno, work: &mut Work) {
        self.flush_queues(ni, errno, work);
        let over_ni = |message: &Message| self.peers[message.peer].ni == ni;
        let left: Vec<u32> =
            self.messages.indices().filter(|&index| over_ni(&self.messages[index])).collect();
        for index in left {
            self.end(index, errno, work);
        }
        for peer in self.peers.of_ni(ni) {
            self.peers.forget(peer);
        }
        // Some still count messages that have just ended.
        self.peers.enter_ni(ni);
        if let Some(share) = self.shares.get_mut(ni.index as usize) {
            share.take_if(|share| share.ni == ni);
        }
    }

    /// The peer of an arrival, if it is known.
    pub(crate) fn known_peer(&mut self, common: &Common, ni: Key, id: ProcessId) -> Option<&mut Peer> {
        let index = self.peers.find(&common.hasher, ni, id)?;
        Some(self.peers.get_mut(index))
    }

    /// Messages that are on their way out.
    pub(crate) fn sending(&self) -> usize {
        self.messages.len()
    }

    /// Its part of the node's counters.
    pub(crate) fn counters(&self) -> Counters {
        Counters { msgs_alloc: self.messages.len() as u64, ..self.counters }
    }
}

/// Whether a credit that has come back lets a message go. Normally as many wait as there are credits below 0; after an
/// LND has lowered its limits, more may be in flight than may be, and the first credits that come back let nobody go.
fn lets_go(credits: i64, waiting: usize) -> bool {
    (credits.min(0).unsigned_abs() as usize) < waiting
}

impl NetShared {
    /// The NIDs of the node that a NID belongs to, the primary one first.
    pub(crate) fn nids_of(&self, nid: Nid) -> smallvec::SmallVec<[Nid; 2]> {
        match self.identities.nids(nid) {
            [] => smallvec::smallvec![nid],
            nids => nids.iter().copied().collect(),
        }
    }
}
