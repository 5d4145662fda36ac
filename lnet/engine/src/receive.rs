//! Receiving: what becomes of an arrived header (lnet-wire 9 to 13).

use lnet_api::{Arrival, Delivery, Errno, Event, EventKind, MdHandle, MdOptions, RxToken, Verdict};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::{Body, Header, MessageType, PING_PORTAL, WireHandle};
use lnet_region::WriteVec;

use crate::config::Stealing;
use crate::engine::{Common, Engine};
use crate::matching::{Found, Match, Wanted};
use crate::message::{Inbound, Intake, Launch, Local, Message, Op, Receiving, Way};
use crate::names::{MdName, Place, pack};
use crate::net::Net;
use crate::ni::Phase;
use crate::peer::Peer;
use crate::portal::Kind;
use crate::portal_state::PortalState;
use crate::resources::Resources;
use crate::slab::{Key, NONE};
use crate::work::Work;

/// The most answers under way to one peer before its requests are dropped. A peer that asks but does not take the
/// answers must not fill the table of messages, nor lease a region as often as it can be (4096 times); one that works has
/// its few credits' worth in flight (8 over TCP), and waiting what its program asks for at once: a Lustre server, for some
/// hundred requests of a few MiB each, over a thousand.
const PEER_ANSWERS_MAX: u32 = 2048;

/// The part of the table of messages beyond which no answer is queued behind others to the same peer: one in this many.
/// What is left is for those who take their answers, whatever number of peers does not.
const CROWDED: usize = 2;

/// What one partition has made of a PUT or GET.
pub(crate) enum Attempt {
    /// It is received, or at least on its way.
    Taken(Verdict),
    /// It matches here, but cannot be taken.
    Refused,
    /// Nothing here matches.
    Nothing,
}

/// A PUT or GET in search of a buffer.
pub(crate) struct Search<'a> {
    pub(crate) inbound: &'a Inbound,
    pub(crate) header: &'a Header,
    pub(crate) wanted: &'a Wanted,
}

impl Engine {
    /// A header from the network: the checks of lnet-wire 9, in that order, then what its kind asks for.
    pub(crate) fn arrive(&self, arrival: &Arrival<'_>, work: &mut Work) -> Verdict {
        let header = arrival.header;
        if header.payload_length > header.message_type().max_payload() {
            return Verdict::Close(Errno::EPROTO);
        }
        match self.admit(arrival) {
            Ok(inbound) => self.receive(&inbound, header, &mut None, work),
            Err(verdict) => verdict,
        }
    }

    /// The checks that need the net lock: those of the NIDs, and whether the peer may ask for more.
    fn admit(&self, arrival: &Arrival<'_>) -> Result<Inbound, Verdict> {
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
            return Err(Verdict::Close(Errno::EPROTO));
        }
        let found = shared.nis.find(arrival.ni).filter(|(_, ni)| ni.phase != Phase::Stopping);
        let Some((key, ni)) = found else { return Err(part.refuse(header)) };
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
        }
        let may_ask = !asks(header) || peer.is_some_and(|peer| part.may_answer(&part.peers[peer]));
        let back = Way::Over { ni: key, peer: arrival.from, partition };
        if !welcome || !may_ask {
            part.drop_from(back, peer, header);
            return Err(Verdict::Discard);
        }
        Ok(Inbound { back, from: arrival.from, rx: arrival.rx, nids: shared.nids_of(header.src.nid) })
    }

    /// A header for this node, from the network or from itself.
    pub(crate) fn receive(
        &self,
        inbound: &Inbound,
        header: &Header,
        local: &mut Option<Local>,
        work: &mut Work,
    ) -> Verdict {
        match header.body {
            Body::Put { .. } => self.receive_put(inbound, header, local, work),
            Body::Get { .. } => self.receive_get(inbound, header, work),
            Body::Ack { dst_wmd, match_bits, mlength } => {
                let event =
                    Event { match_bits, mlength, ..self.arrival_event(EventKind::Ack, inbound, header) };
                self.receive_answer(inbound, header, dst_wmd, event, work)
            }
            Body::Reply { dst_wmd } => {
                let rlength = header.payload_length;
                let event = Event { rlength, ..self.arrival_event(EventKind::Reply, inbound, header) };
                self.receive_answer(inbound, header, dst_wmd, event, work)
            }
        }
    }

    fn receive_put(
        &self,
        inbound: &Inbound,
        header: &Header,
        local: &mut Option<Local>,
        work: &mut Work,
    ) -> Verdict {
        let Body::Put { match_bits, portal, offset, .. } = header.body else {
            return self.discard(inbound, header);
        };
        let can_wait = self.portals.get(portal as usize).is_some_and(PortalState::is_lazy);
        let wanted = Wanted {
            can_wait,
            ..wanted(MdOptions::OP_PUT, inbound, header, match_bits, header.payload_length, offset)
        };
        let search = Search { inbound, header, wanted: &wanted };
        if is_push(header) {
            return self.receive_push(&search, work);
        }
        let portal = portal as usize;
        match self.search(portal, &search, work) {
            Attempt::Taken(verdict) => verdict,
            Attempt::Refused => self.discard(inbound, header),
            Attempt::Nothing => self.delay(portal, &search, local, work),
        }
    }

    /// A PUT to the node's own portal. One at a time, so that a peer that starts many and ends none leaves the buffers to
    /// others; what finds no buffer is received into nothing, and acknowledged: whoever pushes asks for no more
    /// (lnet-wire 19, level B). If it waited instead, those whose payload never comes would hold the connections of
    /// all others.
    fn receive_push(&self, search: &Search<'_>, work: &mut Work) -> Verdict {
        let begun = self.begin_push(search.inbound.back);
        let attempt = if begun { self.search(PING_PORTAL.index(), search, work) } else { Attempt::Nothing };
        let verdict = match attempt {
            // It ends where it is received.
            Attempt::Taken(verdict) => return verdict,
            Attempt::Refused => self.discard(search.inbound, search.header),
            Attempt::Nothing => {
                let part = &mut *self.posted.lock(self.partition_of(search.inbound));
                part.take_nowhere(&self.common, search, self.put_event(search, 0, 0), work)
            }
        };
        if begun {
            self.end_push(search.inbound.back);
        }
        verdict
    }

    fn receive_get(&self, inbound: &Inbound, header: &Header, work: &mut Work) -> Verdict {
        let Body::Get { match_bits, portal, src_offset, sink_length, .. } = header.body else {
            return self.discard(inbound, header);
        };
        let wanted = wanted(MdOptions::OP_GET, inbound, header, match_bits, sink_length, src_offset);
        match self.search(portal as usize, &Search { inbound, header, wanted: &wanted }, work) {
            Attempt::Taken(verdict) => verdict,
            Attempt::Refused | Attempt::Nothing => self.discard(inbound, header),
        }
    }

    /// Looks for a buffer: on a unique portal in the partition of each of the source's NIDs; on a wildcard portal where
    /// the rotor says, then in the other partitions that have buffers (S-308, S-309).
    fn search(&self, portal: usize, search: &Search<'_>, work: &mut Work) -> Attempt {
        let Some(state) = self.portals.get(portal) else { return Attempt::Nothing };
        match state.kind() {
            None => Attempt::Nothing,
            Some(Kind::Unique) => self.search_unique(portal, search, work),
            Some(Kind::Wildcard) => {
                let (partitions, here) = (self.common.partitions(), self.partition_of(search.inbound));
                let rotor = self.common.config.portal_rotor;
                let primary = primary(search.inbound, search.header);
                let first = state.first_partition(rotor, search.header, primary, here, partitions);
                let steals = self.common.config.stealing == Stealing::All
                    || (state.is_lazy() && search.wanted.op == MdOptions::OP_PUT);
                for partition in (first..partitions).chain(0..first).filter(|&at| state.is_active(at)) {
                    let attempt = self.attempt(portal, partition, search, work);
                    if !matches!(attempt, Attempt::Nothing) || !steals {
                        return attempt;
                    }
                }
                Attempt::Nothing
            }
        }
    }

    fn search_unique(&self, portal: usize, search: &Search<'_>, work: &mut Work) -> Attempt {
        for &nid in &search.wanted.nids {
            let part = &mut *self.posted.lock(self.source_partition(nid));
            let found = part.find_unique(&self.common, portal, nid, search.wanted);
            let attempt = self.take(part, search, found, work);
            if !matches!(attempt, Attempt::Nothing) {
                return attempt;
            }
        }
        Attempt::Nothing
    }

    /// Looks in one partition of a wildcard portal.
    fn attempt(&self, portal: usize, partition: usize, search: &Search<'_>, work: &mut Work) -> Attempt {
        let part = &mut *self.posted.lock(partition);
        let found = part.find_wildcard(&self.common, portal, search.wanted);
        if found == Found::Nothing {
            let table = &part.tables[portal];
            let state = &self.portals[portal];
            state.rest(partition, table.attached, table.attached_at_ns, self.common.now_ns());
        }
        self.take(part, search, found, work)
    }

    /// Looks everywhere, whether buffers are known to be there or not: for a message that is about to wait.
    pub(crate) fn search_everywhere(&self, portal: usize, search: &Search<'_>, work: &mut Work) -> Attempt {
        if self.portals[portal].kind() == Some(Kind::Unique) {
            return self.search_unique(portal, search, work);
        }
        for partition in 0..self.common.partitions() {
            let attempt = self.attempt(portal, partition, search, work);
            if !matches!(attempt, Attempt::Nothing) {
                return attempt;
            }
        }
        Attempt::Nothing
    }

    /// Has a found MD take the message.
    pub(crate) fn take(
        &self,
        part: &mut Resources,
        search: &Search<'_>,
        found: Found,
        work: &mut Work,
    ) -> Attempt {
        let found = match found {
            Found::Nothing => return Attempt::Nothing,
            Found::TooLong => return Attempt::Refused,
            Found::Match(found) => found,
        };
        if search.wanted.op == MdOptions::OP_GET {
            return self.take_get(part, search, &found, work);
        }
        // An empty message touches no memory.
        let sink = match found.mlength {
            0 => None,
            _ => match part.objects.md(found.md).memory.incoming(found.range()) {
                Ok(sink) => Some(sink),
                Err(_) => return Attempt::Refused,
            },
        };
        if !part.receiving.reserve() {
            return Attempt::Refused;
        }
        part.consume(&found);
        let event = self.put_event(search, found.mlength, found.offset);
        let kind = if is_push(search.header) { Intake::Push } else { Intake::Put };
        let wants_no_ack = part.objects.md(found.md).options.contains(MdOptions::ACK_DISABLE);
        let ack = if wants_no_ack { WireHandle::NONE } else { ack_of(search.header) };
        let receiving = Receiving { kind, md: found.md, back: search.inbound.back, event, ack };
        Attempt::Taken(part.deliver_payload(&self.common, receiving, sink, work))
    }

    fn take_get(&self, part: &mut Resources, search: &Search<'_>, found: &Match, work: &mut Work) -> Attempt {
        let Body::Get { return_wmd, match_bits, portal, .. } = search.header.body else {
            return Attempt::Refused;
        };
        let Ok(payload) = part.objects.md(found.md).memory.outgoing(found.range()) else {
            return Attempt::Refused;
        };
        part.consume(found);
        part.counters.recv_count += 1;
        let event = Event {
            portal,
            match_bits,
            mlength: found.mlength,
            offset: found.offset,
            ..self.arrival_event(EventKind::Get, search.inbound, search.header)
        };
        let header = Header {
            dest: search.header.src,
            src: ProcessId::new(search.header.dest.nid, self.common.config.pid),
            payload_length: found.mlength,
            body: Body::Reply { dst_wmd: return_wmd },
        };
        let payload = (!payload.is_empty()).then_some(payload);
        let name = MdName { place: part.place, key: part.objects.key(found.md) };
        let message = Message::new(Op::Reply, Some(name), Key::NULL, event);
        let (way, reply_to) = (search.inbound.back, Some(search.inbound.rx));
        work.launches.push(Launch { way, message, header, payload, reply_to });
        Attempt::Taken(Verdict::Done)
    }

    /// An ACK or REPLY. Only handles of this life of the node count (lnet-wire 5), and only answers that are waited for.
    fn receive_answer(
        &self,
        inbound: &Inbound,
        header: &Header,
        wmd: WireHandle,
        event: Event,
        work: &mut Work,
    ) -> Verdict {
        let ours = wmd.interface_cookie() == self.common.config.interface_cookie;
        let md = self.common.handles.open_md(MdHandle(wmd.object_cookie())).filter(|_| ours);
        let Some((Place { bound: true, partition }, key)) = md else { return self.discard(inbound, header) };
        let verdict = {
            let part = &mut *self.bound.lock(partition);
            part.take_answer(&self.common, inbound, header.src.nid, key, event, work)
        };
        verdict.unwrap_or_else(|| self.discard(inbound, header))
    }

    /// The partition where a message has arrived.
    fn partition_of(&self, inbound: &Inbound) -> usize {
        match inbound.back {
            Way::Here => self.common.here(),
            Way::Over { partition, .. } => partition,
        }
    }

    /// What the owner of a PUT's buffer is told.
    fn put_event(&self, search: &Search<'_>, mlength: u32, offset: u64) -> Event {
        let Body::Put { match_bits, hdr_data, portal, .. } = search.header.body else {
            return self.common.event(EventKind::Put);
        };
        Event {
            portal,
            match_bits,
            hdr_data,
            rlength: search.header.payload_length,
            mlength,
            offset,
            ..self.arrival_event(EventKind::Put, search.inbound, search.header)
        }
    }

    /// What an event tells of where a message came from.
    fn arrival_event(&self, kind: EventKind, inbound: &Inbound, header: &Header) -> Event {
        Event {
            target: header.dest,
            initiator: ProcessId::new(primary(inbound, header), header.src.pid),
            source: header.src,
            sender: inbound.from.nid,
            ..self.common.event(kind)
        }
    }

    /// Drops a message that was admitted.
    pub(crate) fn discard(&self, inbound: &Inbound, header: &Header) -> Verdict {
        let mut net = self.net.lock(self.partition_of(inbound));
        match inbound.back {
            Way::Here => {
                net.lo.dropped.count(header.message_type());
                net.refuse(header)
            }
            Way::Over { ni, peer, .. } => {
                let peer = net.peers.find(&self.common.hasher, ni, peer);
                net.drop_from(inbound.back, peer, header);
                Verdict::Discard
            }
        }
    }

    /// A push begins, unless a buffer is taking one from this peer.
    fn begin_push(&self, back: Way) -> bool {
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

    /// Counts a message that nobody takes.
    pub(crate) fn refuse(&mut self, header: &Header) -> Verdict {
        self.counters.drop_count += 1;
        self.counters.drop_length += u64::from(header.payload_length);
        Verdict::Discard
    }

    /// Counts a dropped message of a peer.
    fn drop_from(&mut self, back: Way, peer: Option<u32>, header: &Header) {
        let _ = self.refuse(header);
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

impl Resources {
    /// Counts a match: the ME goes now if the MD is exhausted, the MD when its last message is done (S-108).
    fn consume(&mut self, found: &Match) {
        let md = self.objects.md_mut(found.md);
        md.busy += 1;
        md.consume_range(found.offset, found.mlength);
        if md.auto_unlink && md.is_exhausted() {
            self.retire(found.md);
        }
    }

    /// Receives a push for which there is no buffer.
    fn take_nowhere(
        &mut self,
        common: &Common,
        search: &Search<'_>,
        event: Event,
        work: &mut Work,
    ) -> Verdict {
        if !self.receiving.reserve() {
            return Verdict::Discard;
        }
        let (back, ack) = (search.inbound.back, ack_of(search.header));
        self.deliver_payload(common, Receiving { kind: Intake::Put, md: NONE, back, event, ack }, None, work)
    }

    /// Has the payload put in place; a message without one is done. There is room in the table.
    fn deliver_payload(
        &mut self,
        common: &Common,
        receiving: Receiving,
        sink: Option<WriteVec>,
        work: &mut Work,
    ) -> Verdict {
        if receiving.event.rlength == 0 {
            self.end_incoming(common, &receiving, Ok(()), work);
            return Verdict::Done;
        }
        let Some(key) = self.receiving.insert(receiving) else { return Verdict::Discard };
        self.counters.msgs_max = self.counters.msgs_max.max(self.receiving.len() as u64);
        let sink = sink.filter(|sink| !sink.is_empty());
        Verdict::Deliver(Delivery { token: self.token(key), sink })
    }

    fn token(&self, key: Key) -> RxToken {
        RxToken(u64::from(self.place.bound) << 62 | pack(self.place.partition, key))
    }

    /// Takes an ACK or REPLY; `None` if nothing waits for it, or it does not fit.
    fn take_answer(
        &mut self,
        common: &Common,
        inbound: &Inbound,
        source: Nid,
        key: Key,
        event: Event,
        work: &mut Work,
    ) -> Option<Verdict> {
        let md = self.live_md(key).filter(|&md| !self.objects.md(md).is_spent())?;
        let response = self.answered(common, md, event.kind, inbound, source)?;
        if event.kind == EventKind::Ack {
            self.remove_response(response);
            self.begin(md);
            self.counters.recv_count += 1;
            self.finish(common, md, &event, Ok(()), work);
            return Some(Verdict::Done);
        }
        let (rlength, room) = (event.rlength, self.objects.md(md).len() as u32);
        let truncates = self.objects.md(md).options.contains(MdOptions::TRUNCATE);
        let mlength = rlength.min(room);
        if !self.receiving.reserve() || (mlength < rlength && !truncates) {
            return None;
        }
        let Ok(sink) = self.objects.md(md).memory.incoming(0..mlength as usize) else {
            // Its memory is in use: the data is lost, which is better known now than at the deadline.
            self.fail_response(common, response, Errno::EBUSY, work);
            return None;
        };
        self.remove_response(response);
        self.begin(md);
        let (kind, back, ack) = (Intake::Reply, inbound.back, WireHandle::NONE);
        let receiving = Receiving { kind, md, back, event: Event { mlength, ..event }, ack };
        Some(self.deliver_payload(common, receiving, Some(sink), work))
    }
}

/// The primary NID of a message's source.
fn primary(inbound: &Inbound, header: &Header) -> Nid {
    inbound.nids.first().copied().unwrap_or(header.src.nid)
}

fn wanted(
    op: MdOptions,
    inbound: &Inbound,
    header: &Header,
    bits: MatchBits,
    length: u32,
    offset: u32,
) -> Wanted {
    Wanted { op, bits, nids: inbound.nids.clone(), pid: header.src.pid, length, offset, can_wait: false }
}

/// Whether a message is a push (lnet-wire 17).
fn is_push(header: &Header) -> bool {
    matches!(header.body, Body::Put { portal, match_bits: MatchBits::PING, .. } if portal == PING_PORTAL.get())
}

/// Whether a message causes an answer, or is a push.
fn asks(header: &Header) -> bool {
    match header.message_type() {
        MessageType::Get => true,
        MessageType::Put => !ack_of(header).is_none() || is_push(header),
        MessageType::Ack | MessageType::Reply => false,
    }
}

/// What the ACK of a PUT echoes; none if it wants no ACK.
fn ack_of(header: &Header) -> WireHandle {
    match header.body {
        Body::Put { ack_wmd, .. } => ack_wmd,
        _ => WireHandle::NONE,
    }
}
