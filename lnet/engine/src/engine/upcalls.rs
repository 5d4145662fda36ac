//! Upcalls from LNDs: headers that arrive (lnet-wire 9 to 13), messages that have left, peers whose
//! connection is lost.

use lnet_api::{
    Arrival, Dropped, Errno, Event, EventKind, MdHandle, MdOptions, RxToken, TxToken, Upcalls, Verdict,
};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Body, PING_PORTAL, WireHandle};
use lnet_region::WriteVec;
use nlx_sync::RuleEnd;

use super::Engine;
use crate::config::Stealing;
use crate::drops::{self, DropReason};
use crate::message::{AdmittedMessage, Inbound, Local, MessageOp, Path, PeerName, is_push};
use crate::names::{MdLocation, RxName, unpack};
use crate::net::AdmitError;
use crate::placement::{Lookup, PLACED};
use crate::portal_state::PortalState;
use crate::resources::{MatchAttempt, MatchRequest, PortalKind, Resources, Search};
use crate::slab::Key;
use crate::work::{Ack, DeferredWork};

impl Upcalls for Engine {
    fn partition_of(&self, ni: Nid, peer: Nid) -> usize {
        let net = self.net.lock(self.common.current_partition());
        net.shared().home_of(ni, peer).map_or(0, |(_, partition)| partition)
    }

    /// Applies the checks of lnet-wire 9 in their order, then processes the message by its kind.
    fn parse(&self, arrival: &Arrival<'_>) -> Verdict {
        let header = arrival.header;
        if header.payload_length > header.message_type().max_payload() {
            return Verdict::Close(Errno::EPROTO);
        }
        self.with(|work| match self.admit(arrival) {
            Ok(inbound) => self.receive(AdmittedMessage { inbound: &inbound, header }, &mut None, work),
            Err(AdmitError::Close(errno)) => Verdict::Close(errno),
            Err(AdmitError::Drop(reason)) => {
                drops::log(header, reason);
                Verdict::Discard
            }
        })
    }

    fn forget_delayed(&self, token: RxToken) -> bool {
        self.with(|work| self.forget_waiting(token, DropReason::ConnectionLost, work))
    }

    fn drop_delayed(&self, token: RxToken) -> bool {
        self.with(|work| self.forget_waiting(token, DropReason::NoMemory, work))
    }

    fn finalize_rx(&self, token: RxToken, result: Result<(), Errno>) {
        self.with(|work| self.received(token, result, work));
    }

    fn finalize_tx(&self, token: TxToken, result: Result<(), Errno>) {
        self.with(|work| self.left(token, result, work));
    }

    fn finalize_txs(&self, tokens: &[TxToken], result: Result<(), Errno>) {
        self.with(|work| {
            for &token in tokens {
                self.left(token, result, work);
                if work.is_urgent() {
                    self.run(work);
                    work.garbage.clear();
                }
            }
        });
    }

    fn sink_of_get(&self, token: TxToken) -> Option<WriteVec> {
        let (partition, key) = self.tx_name(token)?;
        let (md, response) = { self.net.lock(partition).get_under_way(key, MessageOp::Get)? };
        let sink = { self.bound.lock(md.location.partition).direct_sink(md.key, response)? };
        self.net.lock(partition).make_direct(key)?;
        Some(sink)
    }

    /// Delivers the SEND event of a GET whose data the network wrote directly, then its REPLY
    /// event.
    fn finalize_get(&self, token: TxToken, result: Result<u32, Errno>) {
        self.with(|work| {
            let Some((partition, key)) = self.tx_name(token) else { return };
            let direct = { self.net.lock(partition).get_under_way(key, MessageOp::DirectGet) };
            let Some((md, response)) = direct else { return };
            let bytes = match result {
                Ok(bytes) => bytes,
                Err(errno) => return self.left(token, Err(errno), work),
            };
            let bound = || self.bound.lock(md.location.partition);
            let event = { bound().claim_direct(md.key, response, bytes) };
            self.left(token, Ok(()), work);
            if let Some(event) = event {
                bound().end_direct(md.key, &event, work);
            }
        });
    }

    /// Ends the responses outstanding from a lost peer. Messages that are still being sent are
    /// finalised by the LND.
    fn peer_lost(&self, ni: Nid, peer: ProcessId, reason: Errno) {
        let home = { self.net.lock(self.common.current_partition()).shared().home_of(ni, peer.nid) };
        let Some((ni, home)) = home else { return };
        let debtor = PeerName::new(&self.common.hasher, ni, peer);
        self.with(|work| {
            for partition in 0..self.common.partitions() {
                self.in_batches(None, work, |passed, work| {
                    let part = &mut *self.bound.lock(partition);
                    part.fail_sent(&debtor, (passed, reason), work)
                });
            }
            self.net.lock(home).forget_if_idle(&debtor);
        });
    }

    fn link_changed(&self, ni: Nid, up: bool) {
        self.set_link(ni, up);
    }

    fn is_short(&self, ni: Nid) -> bool {
        (0..self.common.partitions()).any(|partition| {
            let net = self.net.lock(partition);
            net.is_short(net.shared(), ni)
        })
    }
}

impl Engine {
    /// Applies the checks that need the net lock: that of the peer's partition.
    fn admit(&self, arrival: &Arrival<'_>) -> Result<Inbound, AdmitError> {
        let mut partition = arrival.from.nid.cpt_of(self.common.partitions());
        let mut net = self.net.lock(partition);
        // An NI may be limited to some partitions; its peers then belong to those.
        while let Some((_, home)) = net.shared().home_of(arrival.ni, arrival.from.nid)
            && home != partition
        {
            partition = home;
            drop(net);
            net = self.net.lock(partition);
        }
        let (part, shared) = net.split();
        let inbound = part.admit(shared, arrival)?;
        let rail = inbound.back.ni().filter(|_| shared.has_rails_beside(arrival.ni));
        if let Some(rail) = rail {
            let from = arrival.from.nid;
            let hashed = from.cpt_of(self.common.partitions());
            if hashed != partition {
                drop(net);
                net = self.net.lock(hashed);
            }
            let (part, shared) = net.split();
            part.record_source_ni(shared, from, rail);
        }
        Ok(inbound)
    }

    /// Applies the fault rules to a header for this node, from the network or from itself, and
    /// processes it.
    pub(super) fn receive(
        &self,
        message: AdmittedMessage<'_>,
        local: &mut Option<Local>,
        work: &mut DeferredWork,
    ) -> Verdict {
        if self.faults.is_armed()
            && let Some(verdict) = self.apply_faults(message, local)
        {
            return verdict;
        }
        self.dispatch(message, local, work)
    }

    /// Processes a message by its kind.
    pub(super) fn dispatch(
        &self,
        message: AdmittedMessage<'_>,
        local: &mut Option<Local>,
        work: &mut DeferredWork,
    ) -> Verdict {
        let AdmittedMessage { inbound, header } = message;
        match header.body {
            Body::Put { match_bits, portal, offset, .. } => {
                let can_wait = self.portals.get(portal as usize).is_some_and(PortalState::is_lazy);
                let room = (header.payload_length, offset);
                let wanted =
                    MatchRequest::new(MdOptions::OP_PUT, inbound, header, match_bits, room).waiting(can_wait);
                self.receive_put(portal as usize, &Search { message, wanted: &wanted }, local, work)
            }
            Body::Get { match_bits, portal, src_offset, sink_length, .. } => {
                let room = (sink_length, src_offset);
                let wanted = MatchRequest::new(MdOptions::OP_GET, inbound, header, match_bits, room);
                self.receive_get(portal as usize, &Search { message, wanted: &wanted }, work)
            }
            Body::Ack { dst_wmd, .. } if dst_wmd.is_refusal() => self.receive_refusal(message, dst_wmd, work),
            Body::Ack { dst_wmd, match_bits, mlength } => {
                let event =
                    Event { match_bits, mlength, ..inbound.event(&self.common, EventKind::Ack, header) };
                self.receive_answer(message, dst_wmd, event, work)
            }
            Body::Reply { dst_wmd } => {
                let rlength = header.payload_length;
                let event = Event { rlength, ..inbound.event(&self.common, EventKind::Reply, header) };
                self.receive_answer(message, dst_wmd, event, work)
            }
        }
    }

    fn receive_put(
        &self,
        portal: usize,
        search: &Search<'_>,
        local: &mut Option<Local>,
        work: &mut DeferredWork,
    ) -> Verdict {
        if is_push(search.message.header) {
            return self.receive_push(search, work);
        }
        match self.search(portal, search, work) {
            MatchAttempt::Taken(verdict) => verdict,
            MatchAttempt::Refused(reason) => self.drop_put(search.message, reason, work),
            MatchAttempt::Nothing => self.delay(portal, search, local, work),
        }
    }

    /// Receives a PUT to the node's own portal. One per peer at a time, so that a peer that starts
    /// many and ends none leaves the buffers to others. A push that finds no buffer is received
    /// without one, and acknowledged: the pusher needs no more (lnet-wire 19, level B). If it
    /// waited instead, pushes whose payload never arrives would block the connections of all other
    /// peers.
    fn receive_push(&self, search: &Search<'_>, work: &mut DeferredWork) -> Verdict {
        let back = search.message.inbound.back;
        let begun = match back {
            Path::Here => true,
            Path::Over { ni, peer, partition } => self.net.lock(partition).begin_push(ni, peer),
        };
        let attempt =
            if begun { self.search(PING_PORTAL.index(), search, work) } else { MatchAttempt::Nothing };
        let verdict = match attempt {
            // A push ends in the partition that receives it.
            MatchAttempt::Taken(verdict) => return verdict,
            MatchAttempt::Refused(reason) => self.discard(search.message, reason),
            MatchAttempt::Nothing => {
                let part = &mut *self.posted.lock(self.partition_of_path(back));
                part.receive_without_buffer(search, work)
            }
        };
        if begun {
            self.end_push(back);
        }
        verdict
    }

    /// Ends a push: the peer may start the next one.
    pub(super) fn end_push(&self, back: Path) {
        if let Path::Over { ni, peer, partition } = back {
            self.net.lock(partition).end_push(ni, peer);
        }
    }

    fn receive_get(&self, portal: usize, search: &Search<'_>, work: &mut DeferredWork) -> Verdict {
        let reason = match self.search(portal, search, work) {
            MatchAttempt::Taken(verdict) => return verdict,
            MatchAttempt::Refused(reason) => reason,
            MatchAttempt::Nothing => self.no_match(portal),
        };
        self.refuse(search.message, work);
        self.discard(search.message, reason)
    }

    /// Searches for a buffer: on a unique portal in the partition of each of the source's NIDs; on
    /// a wildcard portal in the partitions that may have matching entries (S-308).
    fn search(&self, portal: usize, search: &Search<'_>, work: &mut DeferredWork) -> MatchAttempt {
        let Some(state) = self.portals.get(portal) else { return MatchAttempt::Nothing };
        match state.kind() {
            None => MatchAttempt::Nothing,
            Some(PortalKind::Unique) => self.search_unique(portal, search, work),
            Some(PortalKind::Wildcard) => self.search_wildcard(portal, search, work, Self::search_in_turn),
        }
    }

    fn search_unique(&self, portal: usize, search: &Search<'_>, work: &mut DeferredWork) -> MatchAttempt {
        for &nid in search.wanted.nids() {
            let part = &mut *self.posted.lock(nid.cpt_of(self.common.partitions()));
            let attempt = part.search_unique(portal, nid, search, work);
            if !attempt.is_nothing() {
                return attempt;
            }
        }
        MatchAttempt::Nothing
    }

    /// Searches a wildcard portal; with `in_turn` if the portal has local entries.
    fn search_wildcard(
        &self,
        portal: usize,
        search: &Search<'_>,
        work: &mut DeferredWork,
        in_turn: impl FnOnce(&Self, usize, &Search<'_>, &mut DeferredWork) -> MatchAttempt,
    ) -> MatchAttempt {
        let (state, partitions) = (&self.portals[portal], self.common.partitions());
        let lookup = || state.lookup(portal, search.wanted.bits(), partitions);
        match lookup() {
            Lookup::One(partition) => {
                let part = &mut *self.posted.lock(partition);
                // Checked again under the lock, as an entry may have been posted in another
                // partition. If none was, all entries that could match are here at this moment.
                if lookup() == Lookup::One(partition) {
                    return part.search_wildcard(portal, search, work);
                }
            }
            Lookup::EachPartition => return in_turn(self, portal, search, work),
            Lookup::WholeList => {}
        }
        self.search_list(portal, search, work)
    }

    /// Searches the partition that the rotor selects, then the others that have buffers (S-309).
    fn search_in_turn(&self, portal: usize, search: &Search<'_>, work: &mut DeferredWork) -> MatchAttempt {
        let (state, partitions) = (&self.portals[portal], self.common.partitions());
        let here = self.partition_of_path(search.message.inbound.back);
        let rotor = self.common.config.portal_rotor;
        let primary = search.message.inbound.primary(search.message.header);
        let first = state.first_partition(rotor, search.message.header, primary, here, partitions);
        let steals =
            self.common.config.stealing == Stealing::All || (state.is_lazy() && search.wanted.is_put());
        for partition in (first..partitions).chain(0..first).filter(|&at| state.is_active(at)) {
            let attempt = { self.posted.lock(partition).search_in_turn(portal, search, work) };
            if !attempt.is_nothing() || !steals {
                return attempt;
            }
        }
        MatchAttempt::Nothing
    }

    /// Searches all partitions one after the other, active or not.
    fn search_each(&self, portal: usize, search: &Search<'_>, work: &mut DeferredWork) -> MatchAttempt {
        for partition in 0..self.common.partitions() {
            let attempt = { self.posted.lock(partition).search_in_turn(portal, search, work) };
            if !attempt.is_nothing() {
                return attempt;
            }
        }
        MatchAttempt::Nothing
    }

    /// Gives a message to the first matching entry of the portal's list, over all partitions. Holds
    /// the locks of all partitions.
    fn search_list(&self, portal: usize, search: &Search<'_>, work: &mut DeferredWork) -> MatchAttempt {
        let mut posted = self.posted.lock_all();
        let mut first = None;
        for (partition, part) in posted.parts_mut().enumerate() {
            let position = part.list_position(portal, search.wanted).map(|position| (position, partition));
            first = first.into_iter().chain(position).min();
        }
        match first {
            Some((_, partition)) => posted.part(partition).search_wildcard(portal, search, work),
            None => MatchAttempt::Nothing,
        }
    }

    /// Searches once more for a message that has announced itself and is about to wait.
    pub(super) fn search_again(
        &self,
        portal: usize,
        search: &Search<'_>,
        work: &mut DeferredWork,
    ) -> MatchAttempt {
        PLACED.fence(RuleEnd::Load);
        let is_unique = || self.portals[portal].kind() == Some(PortalKind::Unique);
        if !is_unique() {
            let attempt = self.search_wildcard(portal, search, work, Self::search_each);
            // If the portal is unique now, its first entry was posted during the search. The poster
            // of a later one sees the announcement: because of the fences, and with one partition
            // because this search has held its lock.
            if !attempt.is_nothing() || !is_unique() {
                return attempt;
            }
        }
        self.search_unique(portal, search, work)
    }

    /// Drops a PUT for which there is no buffer, and refuses it if its initiator accepts refusals
    /// and can receive one. The watcher of drops is called once no lock is held.
    pub(super) fn drop_put(
        &self,
        message: AdmittedMessage<'_>,
        reason: DropReason,
        work: &mut DeferredWork,
    ) -> Verdict {
        let AdmittedMessage { inbound, header } = message;
        if reason != DropReason::ConnectionLost {
            self.refuse(message, work);
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
        self.discard(message, reason)
    }

    /// Drops a message that was admitted.
    pub(super) fn discard(
        &self,
        AdmittedMessage { inbound, header }: AdmittedMessage<'_>,
        reason: DropReason,
    ) -> Verdict {
        let back = inbound.back;
        self.net.lock(self.partition_of_path(back)).discard(back, header, reason);
        drops::log(header, reason);
        Verdict::Discard
    }

    /// Returns the reason why a message matches nothing on a portal.
    pub(super) fn no_match(&self, portal: usize) -> DropReason {
        if portal < self.portals.len() { DropReason::NoMatch } else { DropReason::NoPortal }
    }

    /// Sends a refusal to the initiator of a request without a buffer, if it accepts them
    /// ([`WireHandle::refusal`]). Like an ACK it goes to the requester, and counts among the
    /// answers that a peer may have in flight.
    fn refuse(&self, AdmittedMessage { inbound, header }: AdmittedMessage<'_>, work: &mut DeferredWork) {
        let (Body::Put { ack_wmd: wmd, match_bits, .. } | Body::Get { return_wmd: wmd, match_bits, .. }) =
            header.body
        else {
            return;
        };
        // Without memory the refusal is not sent, as if the network had lost it.
        if let Some(dst_wmd) = wmd.refusal().filter(|_| work.acks.reserve(1)) {
            let (path, dest, src) = (inbound.back, header.src, header.dest.nid);
            work.acks.push(Ack { path, dest, src, dst_wmd, match_bits, mlength: 0 });
        }
    }

    /// Processes a refusal: the request ends now, and not at its deadline.
    fn receive_refusal(
        &self,
        message: AdmittedMessage<'_>,
        wmd: WireHandle,
        work: &mut DeferredWork,
    ) -> Verdict {
        let taken = self.decode_bound(wmd).and_then(|(partition, key)| {
            let part = &mut *self.bound.lock(partition);
            part.take_refusal(message, key, work)
        });
        taken.unwrap_or_else(|| self.discard(message, DropReason::Unexpected))
    }

    /// Processes an ACK or REPLY; an answer that no request expects is dropped.
    fn receive_answer(
        &self,
        message: AdmittedMessage<'_>,
        wmd: WireHandle,
        event: Event,
        work: &mut DeferredWork,
    ) -> Verdict {
        let Some((partition, key)) = self.decode_bound(wmd).filter(|_| !wmd.is_refusal()) else {
            return self.discard(message, DropReason::Unexpected);
        };
        let verdict = { self.bound.lock(partition).take_answer(message, key, event, work) };
        verdict.unwrap_or_else(|reason| self.discard(message, reason))
    }

    /// Returns the bound MD of a handle. Only handles of this run of the node count (lnet-wire 5).
    fn decode_bound(&self, wmd: WireHandle) -> Option<(usize, Key)> {
        let plain = WireHandle::new(self.common.config.interface_cookie, wmd.object_cookie());
        let marked = plain.taking_refusals();
        if wmd != plain && wmd != marked && Some(wmd) != marked.refusal() {
            return None;
        }
        match self.common.handles.decode_md(MdHandle(wmd.object_cookie()))? {
            (MdLocation { bound: true, partition }, key) => Some((partition, key)),
            _ => None,
        }
    }

    /// Ends the reception of a payload, which is complete or lost.
    pub(super) fn received(&self, token: RxToken, result: Result<(), Errno>, work: &mut DeferredWork) {
        let RxName::Receiving(MdLocation { bound, partition }, key) = RxName::decode(token) else { return };
        if partition >= self.common.partitions() {
            return;
        }
        if bound {
            self.bound.lock(partition).received(key, result, work);
        } else {
            self.posted.lock(partition).received(key, result, work);
        }
    }

    /// Returns the partition in which a message has arrived.
    fn partition_of_path(&self, back: Path) -> usize {
        match back {
            Path::Here => self.common.current_partition(),
            Path::Over { partition, .. } => partition,
        }
    }

    /// Returns the partition and key of an outgoing message.
    fn tx_name(&self, token: TxToken) -> Option<(usize, Key)> {
        let (partition, key) = unpack(token.0);
        (partition < self.common.partitions()).then_some((partition, key))
    }
}
