//! Receiving: what becomes of an arrived header (lnet-wire 9 to 13).

use std::ops::Range;

use lnet_api::{Arrival, Delivery, Errno, Event, EventKind, MdHandle, MdOptions, RxToken, Verdict};
use lnet_nid::{MatchBits, Nid, Portal, ProcessId};
use lnet_proto::{Body, Header, PING_PORTAL, WireHandle};

use crate::list::Links;
use crate::matching::{Found, Match, Wanted};
use crate::message::{Delayed, Inbound, Message, Op};
use crate::ni::Phase;
use crate::partition::Partition;
use crate::peer::Peer;
use crate::slab::{NONE, some};
use crate::work::{LocalCopy, Resume, Work};

/// The most answers under way to one peer before its requests are dropped. A peer that asks but does not take the
/// answers must not fill the table of messages, nor lease a region as often as it can be; one that works has its few
/// credits' worth in flight (8 over TCP) and some hundred answers waiting at the worst.
const PEER_ANSWERS_MAX: u32 = 512;

/// The part of the table of messages beyond which no answer is queued behind others to the same peer: one in this many.
/// What is left is for those who take their answers, whatever number of peers does not.
const CROWDED: usize = 2;

impl Partition {
    /// A header from the network: the checks of lnet-wire 9, in that order, then what its kind asks for.
    pub(crate) fn parse(&mut self, arrival: &Arrival<'_>, work: &mut Work) -> Verdict {
        let header = arrival.header;
        if header.payload_length > header.message_type().max_payload() {
            return Verdict::Close(Errno::EPROTO);
        }
        let dest = header.dest.nid;
        if dest != arrival.ni && (dest.net() == arrival.ni.net() || self.is_local(dest)) {
            return Verdict::Close(Errno::EPROTO);
        }
        let ni = self.nis.find(arrival.ni).filter(|&ni| self.nis[ni].phase != Phase::Stopping);
        // No peer is this node itself (lnet-wire 14): what this node sends to itself goes through no network. And no
        // one is everybody.
        let nobody = self.is_local(header.src.nid) || header.src.nid.is_any();
        match ni {
            Some(ni) if dest == arrival.ni && !nobody => {
                let inbound = Inbound { ni, from: arrival.from, rx: arrival.rx };
                self.receive(&inbound, header, work)
            }
            _ => self.drop_message(header),
        }
    }

    /// A header for this node, from the network or from itself.
    pub(crate) fn receive(&mut self, inbound: &Inbound, header: &Header, work: &mut Work) -> Verdict {
        match header.body {
            Body::Put { .. } => self.receive_put(inbound, header, work),
            Body::Get { .. } => self.receive_get(inbound, header, work),
            Body::Ack { dst_wmd, match_bits, mlength } => {
                self.receive_ack(inbound, header, dst_wmd, match_bits, mlength, work)
            }
            Body::Reply { dst_wmd } => self.receive_reply(inbound, header, dst_wmd, work),
        }
    }

    fn receive_put(&mut self, inbound: &Inbound, header: &Header, work: &mut Work) -> Verdict {
        let Body::Put { ack_wmd, match_bits, hdr_data, portal, offset } = header.body else {
            return self.drop_message(header);
        };
        let push = portal == PING_PORTAL.get() && match_bits == MatchBits::PING;
        if push && self.is_pushing(inbound) {
            return self.throw_push_away(inbound, header, ack_wmd, work);
        }
        let wanted = self.wanted(MdOptions::OP_PUT, header, match_bits, header.payload_length, offset);
        let found = match self.find(portal, &wanted) {
            Found::Match(found) => found,
            Found::TooLong => return self.drop_message(header),
            Found::Nothing if push => return self.throw_push_away(inbound, header, ack_wmd, work),
            Found::Nothing => return self.delay_or_drop(inbound, header, portal),
        };
        let ack = if self.objects.md(found.md).options.contains(MdOptions::ACK_DISABLE) {
            WireHandle::NONE
        } else {
            ack_wmd
        };
        let Some(peer) = self.way_back(inbound, push || !ack.is_none()) else {
            return self.drop_message(header);
        };
        let Ok(sink) = self.objects.md(found.md).memory.write(found.range()) else {
            return self.drop_message(header);
        };
        self.take(&found);
        self.hold(peer, push);
        let event = Event {
            portal,
            match_bits,
            hdr_data,
            rlength: header.payload_length,
            mlength: found.mlength,
            offset: found.offset,
            ..self.arrival_event(EventKind::Put, inbound, header)
        };
        let op = if push { Op::PushReceived } else { Op::PutReceived };
        let message = Message { ack, ..Message::new(op, found.md, peer, event) };
        self.deliver_payload(message, (!sink.is_empty()).then_some(sink), work)
    }

    /// Whether a buffer is taking a push from this peer. One at a time, so that a peer that starts many and ends none
    /// leaves the buffers to others.
    fn is_pushing(&self, inbound: &Inbound) -> bool {
        let peer = self.peers.find(&self.hasher, inbound.ni, inbound.from);
        peer.is_some_and(|peer| self.peers[peer].pushing)
    }

    /// Receives a push for which there is no buffer into nothing, and acknowledges it; whoever pushes asks for no more
    /// (lnet-wire 19, level B). If it waited instead, those whose payload never comes would hold the connections of
    /// all others.
    fn throw_push_away(
        &mut self,
        inbound: &Inbound,
        header: &Header,
        ack: WireHandle,
        work: &mut Work,
    ) -> Verdict {
        let Some(peer) = self.way_back(inbound, !ack.is_none()) else { return self.drop_message(header) };
        self.hold(peer, false);
        let event = Event {
            portal: PING_PORTAL.get(),
            match_bits: MatchBits::PING,
            rlength: header.payload_length,
            ..self.arrival_event(EventKind::Put, inbound, header)
        };
        let message = Message { ack, ..Message::new(Op::PutReceived, NONE, peer, event) };
        self.deliver_payload(message, None, work)
    }

    /// Keeps the peer of a PUT until the PUT is received.
    fn hold(&mut self, peer: u32, push: bool) {
        if peer != NONE {
            let peer = self.peers.get_mut(peer);
            peer.holds += 1;
            peer.pushing |= push;
        }
    }

    fn receive_get(&mut self, inbound: &Inbound, header: &Header, work: &mut Work) -> Verdict {
        let Body::Get { return_wmd, match_bits, portal, src_offset, sink_length } = header.body else {
            return self.drop_message(header);
        };
        let wanted = self.wanted(MdOptions::OP_GET, header, match_bits, sink_length, src_offset);
        let Found::Match(found) = self.find(portal, &wanted) else { return self.drop_message(header) };
        let Some(peer) = self.way_back(inbound, true) else { return self.drop_message(header) };
        let Ok(payload) = self.objects.md(found.md).memory.read(found.range()) else {
            return self.drop_message(header);
        };
        self.take(&found);
        self.counters.recv_count += 1;
        let event = Event {
            portal,
            match_bits,
            mlength: found.mlength,
            offset: found.offset,
            ..self.arrival_event(EventKind::Get, inbound, header)
        };
        let reply = Header {
            dest: header.src,
            src: ProcessId::new(header.dest.nid, self.config.pid),
            payload_length: found.mlength,
            body: Body::Reply { dst_wmd: return_wmd },
        };
        let payload = (!payload.is_empty()).then_some(payload);
        let message = Message::new(Op::Reply, found.md, peer, event);
        self.send(message, reply, payload, Some(inbound.rx), work);
        Verdict::Done
    }

    fn receive_ack(
        &mut self,
        inbound: &Inbound,
        header: &Header,
        wmd: WireHandle,
        match_bits: MatchBits,
        mlength: u32,
        work: &mut Work,
    ) -> Verdict {
        let Some((md, response)) = self.expecting(wmd, EventKind::Ack, inbound, header.src.nid) else {
            return self.drop_message(header);
        };
        self.remove_response(response);
        self.objects.md_mut(md).consume();
        self.objects.md_mut(md).busy += 1;
        self.counters.recv_count += 1;
        let event = Event { match_bits, mlength, ..self.arrival_event(EventKind::Ack, inbound, header) };
        self.finish(md, &event, Ok(()), work);
        Verdict::Done
    }

    fn receive_reply(
        &mut self,
        inbound: &Inbound,
        header: &Header,
        wmd: WireHandle,
        work: &mut Work,
    ) -> Verdict {
        let Some((md, response)) = self.expecting(wmd, EventKind::Reply, inbound, header.src.nid) else {
            return self.drop_message(header);
        };
        let (rlength, room) = (header.payload_length, self.objects.md(md).len() as u32);
        let truncates = self.objects.md(md).options.contains(MdOptions::TRUNCATE);
        let mlength = rlength.min(room);
        if self.messages.is_full() || (mlength < rlength && !truncates) {
            return self.drop_message(header);
        }
        let Ok(sink) = self.objects.md(md).memory.write(0..mlength as usize) else {
            return self.drop_message(header);
        };
        self.remove_response(response);
        self.objects.md_mut(md).consume();
        self.objects.md_mut(md).busy += 1;
        let event = Event { rlength, mlength, ..self.arrival_event(EventKind::Reply, inbound, header) };
        let message = Message::new(Op::ReplyReceived, md, NONE, event);
        self.deliver_payload(message, (!sink.is_empty()).then_some(sink), work)
    }

    /// Has the payload put in place; a message without one is done.
    fn deliver_payload(
        &mut self,
        message: Message,
        sink: Option<lnet_region::WriteVec>,
        work: &mut Work,
    ) -> Verdict {
        if message.event.rlength == 0 {
            self.end_incoming(message, Ok(()), work);
            return Verdict::Done;
        }
        let Some(key) = self.messages.insert(message) else { return Verdict::Discard };
        self.counters.msgs_max = self.counters.msgs_max.max(self.messages.len() as u64);
        Verdict::Deliver(Delivery { token: RxToken(key.to_u64()), sink })
    }

    /// The MD and the response that an ACK or REPLY is for. Only handles of this life of the node count (lnet-wire 5).
    fn expecting(
        &self,
        wmd: WireHandle,
        kind: EventKind,
        inbound: &Inbound,
        source: Nid,
    ) -> Option<(u32, u32)> {
        if wmd.interface_cookie() != self.config.interface_cookie {
            return None;
        }
        let md = self.live_md(MdHandle(wmd.object_cookie()))?;
        let usable = self.objects.md(md).bound && !self.objects.md(md).is_spent();
        Some((md, self.answered(md, kind, inbound, source).filter(|_| usable)?))
    }

    /// The next hop for an answer, if one is wanted ([`NONE`] if not, or if it stays here); `None` if the message must be
    /// dropped because there is no room for it or its answer.
    fn way_back(&mut self, inbound: &Inbound, answer: bool) -> Option<u32> {
        if self.messages.is_full() {
            return None;
        }
        if !answer || inbound.ni == NONE {
            return Some(NONE);
        }
        let peer = self.peer(inbound.ni, inbound.from)?;
        self.may_answer(&self.peers[peer]).then_some(peer)
    }

    fn may_answer(&self, peer: &Peer) -> bool {
        let crowded = self.messages.len() >= self.messages.limit() / CROWDED;
        let queues_answers = peer.answers > 0 && peer.queued() > 0;
        peer.answers < PEER_ANSWERS_MAX && !(crowded && queues_answers)
    }

    fn wanted(&self, op: MdOptions, header: &Header, bits: MatchBits, length: u32, offset: u32) -> Wanted {
        let source = ProcessId::new(self.identities.primary(header.src.nid), header.src.pid);
        Wanted { op, bits, source, length, offset }
    }

    /// What an event tells of where a message came from.
    fn arrival_event(&self, kind: EventKind, inbound: &Inbound, header: &Header) -> Event {
        Event {
            target: header.dest,
            initiator: ProcessId::new(self.identities.primary(header.src.nid), header.src.pid),
            source: header.src,
            sender: inbound.from.nid,
            ..self.event(kind)
        }
    }

    pub(crate) fn drop_message(&mut self, header: &Header) -> Verdict {
        self.counters.drop_count += 1;
        self.counters.drop_length += u64::from(header.payload_length);
        Verdict::Discard
    }

    fn delay_or_drop(&mut self, inbound: &Inbound, header: &Header, portal: u32) -> Verdict {
        // On the node's own portal there is nobody to wait for.
        let portal = Portal::new(portal).ok().filter(|&portal| portal != PING_PORTAL);
        let lazy = portal.filter(|portal| self.portals[portal.index()].lazy);
        let delayed = Delayed { inbound: *inbound, header: *header, local: None, links: Links::NONE };
        let entered = lazy.and_then(|portal| Some((portal, self.delayed.insert(delayed)?)));
        let Some((portal, key)) = entered else { return self.drop_message(header) };
        self.portals[portal.index()].delayed.push_back(&mut self.delayed, key.index);
        Verdict::Delay(RxToken(key.to_u64()))
    }

    /// An MD was attached to an entry: messages that waited on its portal try again, in order (S-109).
    pub(crate) fn retry_delayed(&mut self, me: u32, work: &mut Work) {
        let portal = self.objects[me].portal;
        let mut next = self.portals[portal.index()].delayed.head();
        while let Some(index) = next {
            let Delayed { header, links, .. } = self.delayed[index];
            next = some(links.next);
            if self.matches_delayed(portal, &header) {
                self.go_on(portal, index, work);
            }
        }
    }

    fn matches_delayed(&self, portal: Portal, header: &Header) -> bool {
        let Body::Put { match_bits, offset, .. } = header.body else { return true };
        let wanted = self.wanted(MdOptions::OP_PUT, header, match_bits, header.payload_length, offset);
        !matches!(self.find(portal.get(), &wanted), Found::Nothing)
    }

    /// Takes a message off the list of a lazy portal and receives it: whatever becomes of it now is final.
    fn go_on(&mut self, portal: Portal, index: u32, work: &mut Work) {
        self.portals[portal.index()].delayed.remove(&mut self.delayed, index);
        let Some(delayed) = self.delayed.take(index) else { return };
        let verdict = self.receive(&delayed.inbound, &delayed.header, work);
        let delivery = if let Verdict::Deliver(delivery) = verdict { Some(delivery) } else { None };
        self.resume(delayed, delivery, work);
    }

    fn resume(&mut self, delayed: Delayed, delivery: Option<Delivery>, work: &mut Work) {
        match (delayed.local, delivery) {
            (Some(tx), Some(delivery)) => {
                work.copies.push(LocalCopy { payload: tx.payload, delivery, tx: tx.token });
            }
            (Some(tx), None) => self.finalize_tx(tx.token, Ok(()), work),
            (None, delivery) => {
                if let Some(ni) = self.nis.at(delayed.inbound.ni) {
                    work.resumes.push(Resume { lnd: ni.lnd.clone(), rx: delayed.inbound.rx, delivery });
                }
            }
        }
    }

    /// Messages that match nothing wait on this portal from now on.
    pub(crate) fn set_lazy(&mut self, portal: Portal) {
        self.portals[portal.index()].lazy = true;
    }

    /// Messages that match nothing are dropped from now on, those that wait as well.
    pub(crate) fn clear_lazy(&mut self, portal: Portal, work: &mut Work) {
        self.portals[portal.index()].lazy = false;
        self.drop_delayed(portal, |_| true, work);
    }

    /// Drops the waiting messages of one portal that came over an NI.
    pub(crate) fn drop_delayed(&mut self, portal: Portal, which: impl Fn(&Delayed) -> bool, work: &mut Work) {
        let mut next = self.portals[portal.index()].delayed.head();
        while let Some(index) = next {
            next = some(self.delayed[index].links.next);
            if which(&self.delayed[index]) {
                self.portals[portal.index()].delayed.remove(&mut self.delayed, index);
                if let Some(delayed) = self.delayed.take(index) {
                    let _ = self.drop_message(&delayed.header);
                    self.resume(delayed, None, work);
                }
            }
        }
    }

    /// Counts a match: the ME goes now if the MD is exhausted, the MD when its last message is done (S-108).
    fn take(&mut self, found: &Match) {
        let md = self.objects.md_mut(found.md);
        md.busy += 1;
        md.consume_range(found.offset, found.mlength);
        if md.auto_unlink && md.is_exhausted() {
            self.retire(found.md);
        }
    }
}

impl Match {
    fn range(&self) -> Range<usize> {
        let start = self.offset as usize;
        start..start + self.mlength as usize
    }
}
