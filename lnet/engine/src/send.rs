//! Sending: PUTs and GETs, the way to the peer (lnet-semantics 12 to 14).

use lnet_api::{
    AckRequest, Delivery, Errno, Event, EventKind, Get, LNetError, MdHandle, MdOptions, Put, RxContext, Sent,
    TxToken, Verdict,
};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{ReadVec, RegionError};

use crate::engine::Engine;
use crate::message::{Inbound, Launch, Local, Message, Op, Route, Way};
use crate::names::{MdName, Place, unpack};
use crate::net::Launched;
use crate::resources::Resources;
use crate::response::Response;
use crate::slab::Key;
use crate::work::{Outgoing, Work};

/// A message that is about to be sent from a bound MD.
struct Request {
    handle: MdHandle,
    op: Op,
    target: ProcessId,
    /// The kind of the answer that is waited for.
    answer: Option<EventKind>,
}

impl Engine {
    pub(crate) fn send_put(&self, put: &Put, work: &mut Work) -> Result<(), LNetError> {
        let answer = (put.ack == AckRequest::Ack).then_some(EventKind::Ack);
        let request = Request { handle: put.md, op: Op::Put, target: put.target, answer };
        let body = |_, handle| Body::Put {
            ack_wmd: answer.map_or(WireHandle::NONE, |_| handle),
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            portal: put.portal.get(),
            offset: put.offset,
        };
        let event = Event {
            target: put.target,
            portal: put.portal.get(),
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            offset: u64::from(put.offset),
            ..self.common.event(EventKind::Send)
        };
        let launch = self.request(&request, put.source, event, body)?;
        self.launch(launch, work);
        Ok(())
    }

    pub(crate) fn send_get(&self, get: &Get, work: &mut Work) -> Result<(), LNetError> {
        let answer = Some(EventKind::Reply);
        let request = Request { handle: get.md, op: Op::Get, target: get.target, answer };
        let body = |length, return_wmd| Body::Get {
            return_wmd,
            match_bits: get.match_bits,
            portal: get.portal.get(),
            src_offset: get.offset,
            sink_length: length,
        };
        let event = Event {
            target: get.target,
            portal: get.portal.get(),
            match_bits: get.match_bits,
            offset: u64::from(get.offset),
            ..self.common.event(EventKind::Send)
        };
        let launch = self.request(&request, get.source, event, body)?;
        self.launch(launch, work);
        Ok(())
    }

    /// Finds the way under the net lock, and commits the MD under its own; the message is launched under the net lock
    /// again. Never two at a time.
    fn request(
        &self,
        request: &Request,
        source: Option<Nid>,
        event: Event,
        body: impl FnOnce(u32, WireHandle) -> Body,
    ) -> Result<Launch, LNetError> {
        let gone = LNetError::NoSuch { object: "MD", handle: request.handle.0 };
        let (place, key) = self.common.handles.open_md(request.handle).ok_or(gone.clone())?;
        let Place { bound: true, partition } = place else { return Err(gone) };
        let route = {
            let net = self.net.lock(request.target.nid.cpt_of(self.common.partitions()));
            net.route(net.shared(), &self.common, source, request.target)
        };
        let (message, length, takes_refusals, route, payload) = {
            let part = &mut *self.bound.lock(partition);
            let md = part.sendable_md(key).ok_or(gone)?;
            let route = route?;
            let length = part.objects.md(md).len() as u32;
            let takes_refusals = part.objects.md(md).options.contains(MdOptions::TAKES_REFUSALS);
            let payload = if request.op == Op::Put { part.lease_whole(md, request.handle)? } else { None };
            let event = Event { rlength: length, mlength: length, ..event };
            let response = self.expect(part, request, md, &route)?;
            part.begin(md);
            let message = Message { op: request.op, md: Some(MdName { place, key }), event, response };
            (message, length, takes_refusals, route, payload)
        };
        let header = Header {
            dest: request.target,
            src: ProcessId::new(route.source, self.common.config.pid),
            payload_length: if request.op == Op::Put { length } else { 0 },
            body: body(length, self.wire_handle(request.handle, takes_refusals)),
        };
        Ok(Launch { way: route.way, message, header, payload, reply_to: None })
    }

    fn wire_handle(&self, md: MdHandle, takes_refusals: bool) -> WireHandle {
        let plain = WireHandle::new(self.common.config.interface_cookie, md.0);
        if takes_refusals { plain.taking_refusals() } else { plain }
    }

    /// Remembers that an ACK or REPLY is to come, if one is.
    fn expect(
        &self,
        part: &mut Resources,
        request: &Request,
        md: u32,
        route: &Route,
    ) -> Result<Key, LNetError> {
        let Some(kind) = request.answer else { return Ok(Key::NULL) };
        let mut response = Response::new(kind, md, route, request.target);
        if !part.objects.md(md).options.contains(MdOptions::NO_TRACK_RESPONSE) {
            let timeout_ns = self.common.config.transaction_timeout_ns;
            response.deadline_ns = Some(self.common.now_ns().saturating_add(timeout_ns));
        }
        let limit = part.responses.limit();
        part.track(&self.common, response).ok_or(LNetError::TooMany { objects: "answers waited for", limit })
    }

    /// Sends a message: over the network, or to this node itself.
    pub(crate) fn launch(&self, launch: Launch, work: &mut Work) {
        match launch.way {
            Way::Here => self.loop_back(launch, work),
            Way::Over { partition, .. } => {
                let launched = {
                    let mut net = self.net.lock(partition);
                    let (part, shared) = net.split();
                    part.launch(shared, &self.common, launch, work)
                };
                match launched {
                    // Behind those that have waited.
                    Some(Launched::Ready(outgoing)) if !work.sends.is_empty() => work.sends.push(outgoing),
                    Some(Launched::Ready(outgoing)) => self.hand_over(outgoing, work),
                    Some(Launched::Waits(md, token)) => self.remember(md, token, work),
                    None => {}
                }
            }
        }
    }

    /// Hands a message to its LND, in the caller's thread. One that has waited for credits is not sent for an MD that was
    /// unlinked meanwhile (lnet-semantics 7).
    pub(crate) fn hand_over(&self, outgoing: Outgoing, work: &mut Work) {
        let Outgoing { lnd, tx, md, waited } = outgoing;
        let token = tx.token;
        let sent = if waited && md.is_some_and(|name| self.is_unlinked(name)) {
            drop(tx);
            Sent::Now(Err(Errno::ECANCELED))
        } else {
            lnd.send(tx)
        };
        match sent {
            Sent::Now(result) => self.left(token, result, work),
            Sent::Later => self.remember(md, token, work),
        }
    }

    /// A message waits, or its LND has it: so the owner of its MD can take it back from now on. If he has unlinked the MD
    /// meanwhile, that is done now: he found nothing to take back. The message may be over already; then the token names
    /// nothing.
    fn remember(&self, md: Option<MdName>, token: TxToken, work: &mut Work) {
        let Some(MdName { place, key }) = md else { return };
        let part = &mut *self.table(place.bound).lock(place.partition);
        match part.objects.named_md_mut(key) {
            Some(md) if md.aborted => work.withdrawn.push(token),
            Some(md) => md.outgoing = Some(token),
            None => {}
        }
    }

    /// Takes back a message of which nothing has left, wherever it waits. Who has it and cannot give it back finalises it,
    /// sooner or later; who has it in hand and gives it to its LND looks at the MD afterwards.
    pub(crate) fn withdraw(&self, token: TxToken, work: &mut Work) {
        let (partition, key) = unpack(token.0);
        let handed = {
            let mut net = self.net.lock(partition);
            let (part, shared) = net.split();
            part.withdraw(shared, &self.common, key, work)
        };
        if handed.is_some_and(|handed| handed.withdraw(token)) {
            self.left(token, Err(Errno::ECANCELED), work);
        }
    }

    /// Whether an MD is unlinked: perhaps gone, with its message, for the NI has gone since.
    fn is_unlinked(&self, name: MdName) -> bool {
        let part = self.table(name.place.bound).lock(name.place.partition);
        part.objects.named_md(name.key).is_none_or(|md| md.aborted)
    }

    /// A message has left its LND, or could not: its credits go to the next ones, then its MD hears of it.
    pub(crate) fn left(&self, token: TxToken, result: Result<(), Errno>, work: &mut Work) {
        let (partition, key) = unpack(token.0);
        if partition >= self.common.partitions() {
            return;
        }
        let message = { self.net.lock(partition).finalize(&self.common, key, result, work) };
        if let Some(message) = message {
            self.end_outgoing(&message, result, work);
        }
    }

    /// Delivers a message of this node to itself: no LND, no credits (lnet-wire 14).
    fn loop_back(&self, launch: Launch, work: &mut Work) {
        let Launch { message, header, payload, .. } = launch;
        let kind = message.op.kind();
        self.net.lock(self.common.here()).count_loopback(kind, header.payload_length);
        let nids = smallvec::smallvec![header.src.nid];
        let inbound = Inbound { back: Way::Here, from: header.src, rx: RxContext(0), held: 0, nids };
        let mut local = Some(Local { message, payload });
        let verdict = self.receive(&inbound, &header, &mut local, work);
        let Some(local) = local else { return };
        match verdict {
            Verdict::Deliver(delivery) => self.copy(local, delivery, work),
            _ => {
                let Local { message, payload } = local;
                drop(payload);
                self.end_outgoing(&message, Ok(()), work);
            }
        }
    }

    /// Copies a payload from this node to itself, then ends both messages.
    pub(crate) fn copy(&self, local: Local, delivery: Delivery, work: &mut Work) {
        let Local { message, payload } = local;
        if let (Some(from), Some(mut to)) = (payload, delivery.sink) {
            lnet_region::copy(&from, &mut to);
        }
        self.end_outgoing(&message, Ok(()), work);
        self.received(delivery.token, Ok(()), work);
    }
}

impl Resources {
    /// A bound MD that takes another operation.
    fn sendable_md(&self, key: Key) -> Option<u32> {
        self.live_md(key).filter(|&index| !self.objects.md(index).is_exhausted())
    }

    fn lease_whole(&self, md: u32, handle: MdHandle) -> Result<Option<ReadVec>, LNetError> {
        let memory = &self.objects.md(md).memory;
        if memory.is_empty() {
            return Ok(None);
        }
        memory.outgoing(0..memory.len()).map(Some).map_err(|error| match error {
            RegionError::TooManyLeases { max } => {
                LNetError::TooMany { objects: "messages from one region", limit: max }
            }
            _ => LNetError::Busy { object: "the memory of MD", handle: handle.0 },
        })
    }
}
