//! Who is let in: the checks of lnet-wire 9 that need the net lock, and what a peer may have under way.

use lnet_api::{Arrival, Errno, Verdict};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Header, MessageType};

use super::{ack_of, is_push};
use crate::common::Common;
use crate::drops::{self, DropReason};
use crate::engine::Engine;
use crate::message::{Inbound, Way};
use crate::net::Net;
use crate::ni::Phase;
use crate::peer::Peer;

/// The most answers under way to one peer before its requests are dropped. A peer that asks but does not take the
/// answers must not fill the table of messages, nor lease a region as often as it can be (4096 times); one that works has
/// its few credits' worth in flight (8 over TCP), and waiting what its program asks for at once: a Lustre server, for some
/// hundred requests of a few MiB each, over a thousand.
const PEER_ANSWERS_MAX: u32 = 2048;

/// The part of the table of messages beyond which no answer is queued behind others to the same peer: one in this many.
/// What is left is for those who take their answers, whatever number of peers does not.
const CROWDED: usize = 2;

/// Why a message goes no further than the checks.
enum Refusal {
    /// The peer breaks the protocol: its connection is closed.
    Close(Errno),
    Drop(DropReason),
}

impl Engine {
    /// The checks that need the net lock: those of the NIDs, and whether the peer may ask for more.
    pub(super) fn admit(&self, arrival: &Arrival<'_>) -> Result<Inbound, Verdict> {
        self.check(arrival).map_err(|refusal| match refusal {
            Refusal::Close(errno) => Verdict::Close(errno),
            Refusal::Drop(reason) => {
                drops::log(arrival.header, reason);
                Verdict::Discard
            }
        })
    }

    fn check(&self, arrival: &Arrival<'_>) -> Result<Inbound, Refusal> {
        let (header, dest) = (arrival.header, arrival.header.dest.nid);
        let mut partition = arrival.from.nid.cpt_of(self.common.partitions());
        let mut net = self.net.lock(partition);
        // An NI may be bound to some partitions; then its peers belong to those.
        while let Some((_, ni)) = net.shared().nis.find(arrival.ni)
            && ni.cpts.of(arrival.from.nid) != partition
        {
            partition = ni.cpts.of(arrival.from.nid);
            drop(net);
            net = self.net.lock(partition);
        }
        let (part, shared) = net.split();
        if dest != arrival.ni && (dest.net() == arrival.ni.net() || shared.nis.is_local(dest)) {
            return Err(Refusal::Close(Errno::EPROTO));
        }
        let found = shared.nis.find(arrival.ni).filter(|(_, ni)| ni.phase != Phase::Stopping);
        let Some((key, ni)) = found else {
            part.refuse(&self.common, header, DropReason::NiStopping);
            return Err(Refusal::Drop(DropReason::NiStopping));
        };
        let kind = header.message_type();
        if let Some(share) = part.share_mut(key) {
            share.traffic.received.count(kind);
        }
        // No peer is this node itself (lnet-wire 14): what this node sends to itself goes through no network. And no
        // one is everybody.
        let nobody = shared.nis.is_local(header.src.nid) || header.src.nid.is_any();
        let welcome = dest == arrival.ni && !nobody;
        let peer = match asks(header) {
            true if welcome => {
                part.peers.enter(&self.common.hasher, key, arrival.from, ni.limits.peer_credits)
            }
            _ => part.peers.find(&self.common.hasher, key, arrival.from),
        };
        if let Some(peer) = peer {
            part.peers.get_mut(peer).traffic.received.count(kind);
            if asks(header) && welcome {
                // What it asks for counts for the address that it asks from.
                let nid = arrival.from.nid;
                let address = arrival.host.map_or(nid, |host| Nid::new_ip(nid.net(), host));
                part.peers.settle(peer, address);
            }
        }
        let may_ask = !asks(header) || peer.is_some_and(|peer| part.may_answer(&part.peers[peer]));
        let refused = match () {
            () if dest != arrival.ni => Some(DropReason::OtherNode),
            () if nobody => Some(DropReason::BadSource),
            () if !may_ask => Some(DropReason::TooManyAnswers),
            () => None,
        };
        let back = Way::Over { ni: key, peer: arrival.from, partition };
        if let Some(reason) = refused {
            part.drop_from(&self.common, back, peer, header, reason);
            return Err(Refusal::Drop(reason));
        }
        Ok(Inbound {
            back,
            from: arrival.from,
            rx: arrival.rx,
            held: 0,
            nids: shared.nids_of(header.src.nid),
        })
    }

    /// Drops a message that was admitted.
    pub(crate) fn discard(&self, inbound: &Inbound, header: &Header, reason: DropReason) -> Verdict {
        let mut net = self.net.lock(self.partition_of(inbound));
        match inbound.back {
            Way::Here => {
                net.lo.dropped.count(header.message_type());
                net.refuse(&self.common, header, reason);
            }
            Way::Over { ni, peer, .. } => {
                let peer = net.peers.find(&self.common.hasher, ni, peer);
                net.drop_from(&self.common, inbound.back, peer, header, reason);
            }
        }
        drop(net);
        drops::log(header, reason);
        Verdict::Discard
    }

    /// The address, as a NID, from which a peer speaks under this NID; the NID itself if that is not known.
    pub(crate) fn address_of(&self, nid: Nid) -> Nid {
        for partition in 0..self.common.partitions() {
            let mut net = self.net.lock(partition);
            let (part, shared) = net.split();
            let mut here = shared.nis.iter().filter(|(_, ni)| ni.cpts.of(nid) == partition);
            let find = |ni| part.peers.find(&self.common.hasher, ni, ProcessId::lnet(nid));
            if let Some(peer) = here.find_map(|(ni, _)| find(ni)) {
                return part.peers.address(peer);
            }
        }
        nid
    }

    /// A push begins, unless a buffer is taking one from this peer.
    pub(super) fn begin_push(&self, back: Way) -> bool {
        let Way::Over { ni, peer, partition } = back else { return true };
        let mut net = self.net.lock(partition);
        net.known_peer(&self.common, ni, peer).is_none_or(|peer| !std::mem::replace(&mut peer.pushing, true))
    }

    /// A push is over.
    pub(crate) fn end_push(&self, back: Way) {
        if let Way::Over { ni, peer, partition } = back
            && let Some(peer) = self.net.lock(partition).known_peer(&self.common, ni, peer)
        {
            peer.pushing = false;
        }
    }
}

impl Net {
    fn may_answer(&self, peer: &Peer) -> bool {
        let crowded = self.messages.len() >= self.messages.limit() / CROWDED;
        let queues_answers = peer.answers > 0 && peer.waiting > 0;
        peer.answers < PEER_ANSWERS_MAX && !(crowded && queues_answers)
    }

    /// Counts and remembers a dropped message.
    fn refuse(&mut self, common: &Common, header: &Header, reason: DropReason) {
        self.counters.drop_count += 1;
        self.counters.drop_length += u64::from(header.payload_length);
        self.drops.note(header, reason, common.now_ns());
    }

    /// Counts a dropped message of a peer.
    fn drop_from(
        &mut self,
        common: &Common,
        back: Way,
        peer: Option<u32>,
        header: &Header,
        reason: DropReason,
    ) {
        self.refuse(common, header, reason);
        let kind = header.message_type();
        if let Way::Over { ni, .. } = back
            && let Some(share) = self.share_mut(ni)
        {
            share.traffic.dropped.count(kind);
        }
        if let Some(peer) = peer {
            self.peers.get_mut(peer).traffic.dropped.count(kind);
        }
    }
}

/// Whether a message causes an answer, or is a push.
fn asks(header: &Header) -> bool {
    match header.message_type() {
        MessageType::Get => true,
        MessageType::Put => !ack_of(header).is_none() || is_push(header),
        MessageType::Ack | MessageType::Reply => false,
    }
}
