//! Receiving: what becomes of an arrived header (lnet-wire 9 to 13).

mod search;
mod take;

use lnet_api::{Arrival, Dropped, Errno, Event, EventKind, MdHandle, MdOptions, Verdict};
use lnet_nid::{MatchBits, Nid, ProcessId};
use lnet_proto::{Body, Header, PING_PORTAL, WireHandle};

use crate::drops::{self, DropReason};
use crate::engine::Engine;
use crate::matching::Wanted;
use crate::message::{Inbound, Local, Way, is_push};
use crate::names::Place;
use crate::net::Refusal;
use crate::portal_state::PortalState;
use crate::slab::Key;
use crate::work::{Ack, Work};
pub(crate) use search::{Attempt, Search};

impl Engine {
    /// A header from the network: the checks of lnet-wire 9, in that order, then what its kind asks for.
    pub(crate) fn arrive(&self, arrival: &Arrival<'_>, work: &mut Work) -> Verdict {
        let header = arrival.header;
        if header.payload_length > header.message_type().max_payload() {
            return Verdict::Close(Errno::EPROTO);
        }
        match self.admit(arrival) {
            Ok(inbound) => self.receive(&inbound, header, &mut None, work),
            Err(Refusal::Close(errno)) => Verdict::Close(errno),
            Err(Refusal::Drop(reason)) => {
                drops::log(header, reason);
                Verdict::Discard
            }
        }
    }

    /// The checks that need the net lock, under that of the peer's partition.
    fn admit(&self, arrival: &Arrival<'_>) -> Result<Inbound, Refusal> {
        let mut partition = arrival.from.nid.cpt_of(self.common.partitions());
        let mut net = self.net.lock(partition);
        // An NI may be bound to some partitions; then its peers belong to those.
        while let Some((_, home)) = net.shared().home_of(arrival.ni, arrival.from.nid)
            && home != partition
        {
            partition = home;
            drop(net);
            net = self.net.lock(partition);
        }
        let (part, shared) = net.split();
        part.admit(shared, &self.common, arrival)
    }

    /// Drops a message that was admitted.
    pub(crate) fn discard(&self, inbound: &Inbound, header: &Header, reason: DropReason) -> Verdict {
        let partition = self.partition_of(inbound);
        self.net.lock(partition).discard(&self.common, inbound.back, header, reason);
        drops::log(header, reason);
        Verdict::Discard
    }

    /// The address, as a NID, from which a peer speaks under this NID; the NID itself if that is not known.
    pub(crate) fn address_of(&self, nid: Nid) -> Nid {
        let mut all = 0..self.common.partitions();
        let address = all.find_map(|partition| {
            let net = self.net.lock(partition);
            net.address_of(net.shared(), &self.common, nid)
        });
        address.unwrap_or(nid)
    }

    /// A push is over.
    pub(crate) fn end_push(&self, back: Way) {
        if let Way::Over { ni, peer, partition } = back {
            self.net.lock(partition).end_push(&self.common, ni, peer);
        }
    }

    /// A header for this node, from the network or from itself, to which something may happen on purpose.
    pub(crate) fn receive(
        &self,
        inbound: &Inbound,
        header: &Header,
        local: &mut Option<Local>,
        work: &mut Work,
    ) -> Verdict {
        if self.faults.is_armed()
            && let Some(verdict) = self.strike(inbound, header, local)
        {
            return verdict;
        }
        self.dispatch(inbound, header, local, work)
    }

    /// What its kind asks for.
    pub(crate) fn dispatch(
        &self,
        inbound: &Inbound,
        header: &Header,
        local: &mut Option<Local>,
        work: &mut Work,
    ) -> Verdict {
        match header.body {
            Body::Put { .. } => self.receive_put(inbound, header, local, work),
            Body::Get { .. } => self.receive_get(inbound, header, work),
            Body::Ack { dst_wmd, .. } if dst_wmd.is_refusal() => {
                self.receive_refusal(inbound, header, dst_wmd, work)
            }
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
            return self.discard(inbound, header, DropReason::NoMatch);
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
            Attempt::Refused(reason) => self.drop_put(inbound, header, reason, work),
            Attempt::Nothing => self.delay(portal, &search, local, work),
        }
    }

    /// Drops a PUT for which there is no buffer, and refuses it if its initiator takes a refusal and can get it. Whoever
    /// watches is told when no lock is held.
    pub(crate) fn drop_put(
        &self,
        inbound: &Inbound,
        header: &Header,
        reason: DropReason,
        work: &mut Work,
    ) -> Verdict {
        if reason != DropReason::ConnectionLost {
            self.refuse(inbound, header, work);
        }
        if let Body::Put { match_bits, portal, .. } = header.body
            && self.watcher.get().is_some()
        {
            work.drops.push(Dropped {
                target: ProcessId::new(header.dest.nid, self.common.config.pid),
                portal,
                match_bits,
                initiator: ProcessId::new(inbound.primary(header), header.src.pid),
                length: header.payload_length,
            });
        }
        self.discard(inbound, header, reason)
    }

    /// A PUT to the node's own portal. One at a time, so that a peer that starts many and ends none leaves the buffers to
    /// others; what finds no buffer is received into nothing, and acknowledged: whoever pushes asks for no more
    /// (lnet-wire 19, level B). If it waited instead, those whose payload never comes would hold the connections of
    /// all others.
    fn receive_push(&self, search: &Search<'_>, work: &mut Work) -> Verdict {
        let begun = match search.inbound.back {
            Way::Here => true,
            Way::Over { ni, peer, partition } => self.net.lock(partition).begin_push(&self.common, ni, peer),
        };
        let attempt = if begun { self.search(PING_PORTAL.index(), search, work) } else { Attempt::Nothing };
        let verdict = match attempt {
            // It ends where it is received.
            Attempt::Taken(verdict) => return verdict,
            Attempt::Refused(reason) => self.discard(search.inbound, search.header, reason),
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
            return self.discard(inbound, header, DropReason::NoMatch);
        };
        let wanted = wanted(MdOptions::OP_GET, inbound, header, match_bits, sink_length, src_offset);
        match self.search(portal as usize, &Search { inbound, header, wanted: &wanted }, work) {
            Attempt::Taken(verdict) => verdict,
            Attempt::Refused(reason) => self.drop_get(inbound, header, reason, work),
            Attempt::Nothing => self.drop_get(inbound, header, self.no_match(portal), work),
        }
    }

    fn drop_get(&self, inbound: &Inbound, header: &Header, reason: DropReason, work: &mut Work) -> Verdict {
        self.refuse(inbound, header, work);
        self.discard(inbound, header, reason)
    }

    /// Tells the initiator of a request that nothing here takes it, if it takes that ([`WireHandle::refusal`]). Like an
    /// ACK it goes to whoever asked, and counts among the answers that a peer may have under way.
    fn refuse(&self, inbound: &Inbound, header: &Header, work: &mut Work) {
        let (Body::Put { ack_wmd: wmd, match_bits, .. } | Body::Get { return_wmd: wmd, match_bits, .. }) =
            header.body
        else {
            return;
        };
        // Without memory it is as if the refusal had been lost.
        if let Some(dst_wmd) = wmd.refusal().filter(|_| work.acks.reserve(1)) {
            let (way, dest, src) = (inbound.back, header.src, header.dest.nid);
            work.acks.push(Ack { way, dest, src, dst_wmd, match_bits, mlength: 0 });
        }
    }

    /// A refusal: what is waited for ends now, and not at its deadline.
    fn receive_refusal(
        &self,
        inbound: &Inbound,
        header: &Header,
        wmd: WireHandle,
        work: &mut Work,
    ) -> Verdict {
        let taken = self.open_bound(wmd).and_then(|(partition, key)| {
            let part = &mut *self.bound.lock(partition);
            part.take_refusal(&self.common, inbound, header.src.nid, key, work)
        });
        taken.unwrap_or_else(|| self.discard(inbound, header, DropReason::Unexpected))
    }

    /// The bound MD that a handle names. Only handles of this life of the node count (lnet-wire 5).
    fn open_bound(&self, wmd: WireHandle) -> Option<(usize, Key)> {
        let plain = WireHandle::new(self.common.config.interface_cookie, wmd.object_cookie());
        let marked = plain.taking_refusals();
        if wmd != plain && wmd != marked && Some(wmd) != marked.refusal() {
            return None;
        }
        match self.common.handles.open_md(MdHandle(wmd.object_cookie()))? {
            (Place { bound: true, partition }, key) => Some((partition, key)),
            _ => None,
        }
    }

    /// An ACK or REPLY. Only answers that are waited for count.
    fn receive_answer(
        &self,
        inbound: &Inbound,
        header: &Header,
        wmd: WireHandle,
        event: Event,
        work: &mut Work,
    ) -> Verdict {
        let Some((partition, key)) = self.open_bound(wmd).filter(|_| !wmd.is_refusal()) else {
            return self.discard(inbound, header, DropReason::Unexpected);
        };
        let verdict = {
            let part = &mut *self.bound.lock(partition);
            part.take_answer(&self.common, inbound, header.src.nid, key, event, work)
        };
        verdict.unwrap_or_else(|reason| self.discard(inbound, header, reason))
    }

    /// Why nothing on a portal takes a message.
    pub(crate) fn no_match(&self, portal: u32) -> DropReason {
        let exists = self.portals.get(portal as usize).is_some();
        if exists { DropReason::NoMatch } else { DropReason::NoPortal }
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
            initiator: ProcessId::new(inbound.primary(header), header.src.pid),
            source: header.src,
            sender: inbound.from.nid,
            ..self.common.event(kind)
        }
    }
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
