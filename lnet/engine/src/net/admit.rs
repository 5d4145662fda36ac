//! Admission of messages: the checks of lnet-wire 9 that need the net lock, and the limits on
//! answers in flight to a peer.

use lnet_api::{Arrival, Errno};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Header, MessageType};

use super::ni::NiPhase;
use super::peer::PeerNi;
use super::{NetPartition, NetShared};
use crate::drops::DropReason;
use crate::message::{Inbound, Path, ack_of, is_push};
use crate::slab::Key;

/// Maximum number of answers in flight to one peer before its requests are dropped. A peer that
/// sends requests but does not take the answers must neither fill the table of messages, nor use up
/// the leases of a region (4096). A working peer has a few credits' worth in flight (8 over TCP),
/// and waiting those to the GETs that its program issues at once: a Lustre server, for some hundred
/// requests of a few MiB each, over a thousand.
const PEER_ANSWERS_MAX: u32 = 2048;

/// Fraction of the table of messages (one in this many) beyond which no answer is queued behind
/// others to the same peer. The rest is for peers that take their answers, whatever the number of
/// those that do not.
const CROWDED: usize = 2;

/// The reason why a message fails the checks.
pub(crate) enum AdmitError {
    /// The peer breaks the protocol: close its connection.
    Close(Errno),
    /// The message is dropped, and has been counted.
    Drop(DropReason),
}

impl NetPartition {
    /// Checks an arrival: the NIDs, and whether the peer may send another request. Must be called
    /// on the peer's partition.
    ///
    /// # Errors
    /// The [`AdmitError`].
    pub(crate) fn admit(&mut self, shared: &NetShared, arrival: &Arrival<'_>) -> Result<Inbound, AdmitError> {
        let (header, dest) = (arrival.header, arrival.header.dest.nid);
        if dest != arrival.ni && (dest.net() == arrival.ni.net() || shared.nis.is_local(dest)) {
            return Err(AdmitError::Close(Errno::EPROTO));
        }
        let found = shared.nis.find(arrival.ni).filter(|(_, ni)| ni.phase != NiPhase::Stopping);
        let Some((key, ni)) = found else {
            self.note_drop(header, DropReason::NiStopping);
            return Err(AdmitError::Drop(DropReason::NiStopping));
        };
        let kind = header.message_type();
        if let Some(share) = self.share_mut(key) {
            share.traffic.received.count(kind);
        }
        // The source of a message over the network cannot be the wildcard NID, nor this node, whose
        // messages to itself use no network (lnet-wire 14).
        let nobody = shared.nis.is_local(header.src.nid) || header.src.nid.is_any();
        let welcome = dest == arrival.ni && !nobody;
        let peer = match asks(header) {
            true if welcome => {
                self.peers.enter(&self.common.hasher, key, arrival.from, ni.limits.peer_credits)
            }
            _ => self.peers.find(&self.common.hasher, key, arrival.from),
        };
        if let Some(peer) = peer {
            self.peers.get_mut(peer).traffic.received.count(kind);
            if asks(header) && welcome {
                // The requests of a peer count for the address from which they come.
                let nid = arrival.from.nid;
                let address = arrival.host.map_or(nid, |host| Nid::new_ip(nid.net(), host));
                self.peers.assign_host(peer, address);
            }
        }
        let may_ask = !asks(header) || peer.is_some_and(|peer| self.may_answer(&self.peers[peer]));
        let refused = match () {
            () if dest != arrival.ni => Some(DropReason::OtherNode),
            () if nobody => Some(DropReason::BadSource),
            () if !may_ask => Some(DropReason::TooManyAnswers),
            () => None,
        };
        if let Some(reason) = refused {
            self.drop_from(key, peer, header, reason);
            return Err(AdmitError::Drop(reason));
        }
        Ok(Inbound {
            back: Path::Over { ni: key, peer: arrival.from, partition: self.partition },
            from: arrival.from,
            rx: arrival.rx,
            held: 0,
            nids: shared.nids_of(header.src.nid),
        })
    }

    /// Counts and remembers an admitted message that is dropped.
    pub(crate) fn discard(&mut self, back: Path, header: &Header, reason: DropReason) {
        match back {
            Path::Here => {
                self.lo.dropped.count(header.message_type());
                self.note_drop(header, reason);
            }
            Path::Over { ni, peer, .. } => {
                let peer = self.peers.find(&self.common.hasher, ni, peer);
                self.drop_from(ni, peer, header, reason);
            }
        }
    }

    /// Returns the address, as a NID, of a peer of this partition with this NID; `None` if there is
    /// none.
    pub(crate) fn address_of(&self, shared: &NetShared, nid: Nid) -> Option<Nid> {
        let mut here = shared.nis.iter().filter(|(_, ni)| ni.cpts.of(nid) == self.partition);
        let find = |ni| self.peers.find(&self.common.hasher, ni, ProcessId::lnet(nid));
        here.find_map(|(ni, _)| find(ni)).map(|peer| self.peers.address(peer))
    }

    /// Marks the start of a peer's push; `false` if a push from the peer is already being received.
    pub(crate) fn begin_push(&mut self, ni: Key, peer: ProcessId) -> bool {
        let known = self.peers.find(&self.common.hasher, ni, peer);
        known.is_none_or(|peer| !std::mem::replace(&mut self.peers.get_mut(peer).pushing, true))
    }

    /// Marks the end of a peer's push.
    pub(crate) fn end_push(&mut self, ni: Key, peer: ProcessId) {
        if let Some(peer) = self.peers.find(&self.common.hasher, ni, peer) {
            self.peers.get_mut(peer).pushing = false;
        }
    }

    fn may_answer(&self, peer: &PeerNi) -> bool {
        let crowded = self.messages.len() >= self.messages.limit() / CROWDED;
        let queues_answers = peer.answers > 0 && peer.waiting > 0;
        peer.answers < PEER_ANSWERS_MAX && !(crowded && queues_answers)
    }

    fn note_drop(&mut self, header: &Header, reason: DropReason) {
        self.counters.drop_count += 1;
        self.counters.drop_length += u64::from(header.payload_length);
        self.drops.note(header, reason, self.common.now_ns());
    }

    /// Counts a dropped message of a peer.
    fn drop_from(&mut self, ni: Key, peer: Option<u32>, header: &Header, reason: DropReason) {
        self.note_drop(header, reason);
        let kind = header.message_type();
        if let Some(share) = self.share_mut(ni) {
            share.traffic.dropped.count(kind);
        }
        if let Some(peer) = peer {
            self.peers.get_mut(peer).traffic.dropped.count(kind);
        }
    }
}

/// Returns whether a message requests an answer, or is a push.
fn asks(header: &Header) -> bool {
    match header.message_type() {
        MessageType::Get => true,
        MessageType::Put => !ack_of(header).is_none() || is_push(header),
        MessageType::Ack | MessageType::Reply => false,
    }
}
