//! What a buffer makes of a message that it matches, and an MD of an answer.

use lnet_api::{Delivery, Errno, Event, EventKind, MdOptions, Verdict};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::WriteVec;

use super::{Attempt, Search};
use crate::common::Common;
use crate::drops::DropReason;
use crate::engine::Engine;
use crate::matching::{Found, Match};
use crate::message::{Inbound, Launch, Message, Op, ack_of, is_push};
use crate::names::{MdName, RxName};
use crate::resources::{Intake, Receiving, Resources};
use crate::slab::{Key, NONE};
use crate::work::Work;

impl Engine {
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
            Found::TooLong => return Attempt::Refused(DropReason::TooLong),
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
                Err(_) => return Attempt::Refused(DropReason::Busy),
            },
        };
        if !part.receiving.make_room() {
            return Attempt::Refused(DropReason::NoRoom);
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
            return Attempt::Refused(DropReason::NoMatch);
        };
        let Ok(payload) = part.objects.md(found.md).memory.outgoing(found.range()) else {
            return Attempt::Refused(DropReason::Busy);
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
        let message = Message { op: Op::Reply, md: Some(name), event, response: Key::NULL };
        let (way, reply_to) = (search.inbound.back, Some(search.inbound.rx));
        work.launches.push(Launch { way, message, header, payload, reply_to });
        Attempt::Taken(Verdict::Done)
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
    pub(super) fn take_nowhere(
        &mut self,
        common: &Common,
        search: &Search<'_>,
        event: Event,
        work: &mut Work,
    ) -> Verdict {
        if !self.receiving.make_room() {
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
        Verdict::Deliver(Delivery { token: RxName::Receiving(self.place, key).token(), sink })
    }

    /// Takes the refusal of a PUT or GET; `None` if nothing waits for an answer to it.
    pub(super) fn take_refusal(
        &mut self,
        common: &Common,
        inbound: &Inbound,
        source: Nid,
        key: Key,
        work: &mut Work,
    ) -> Option<Verdict> {
        let md = self.live_md(key).filter(|&md| !self.objects.md(md).is_spent())?;
        let response = [EventKind::Ack, EventKind::Reply]
            .into_iter()
            .find_map(|kind| self.answered(common, md, kind, inbound, source))?;
        self.counters.recv_count += 1;
        self.fail_response(common, response, Errno::ENODATA, work);
        Some(Verdict::Done)
    }

    /// Takes an ACK or REPLY, or says why not.
    pub(super) fn take_answer(
        &mut self,
        common: &Common,
        inbound: &Inbound,
        source: Nid,
        key: Key,
        event: Event,
        work: &mut Work,
    ) -> Result<Verdict, DropReason> {
        let unexpected = DropReason::Unexpected;
        let md = self.live_md(key).filter(|&md| !self.objects.md(md).is_spent()).ok_or(unexpected)?;
        let response = self.answered(common, md, event.kind, inbound, source).ok_or(unexpected)?;
        if event.kind == EventKind::Ack {
            self.remove_response(response);
            self.begin(md);
            self.counters.recv_count += 1;
            self.finish(common, md, &event, Ok(()), work);
            return Ok(Verdict::Done);
        }
        let (rlength, room) = (event.rlength, self.objects.md(md).len() as u32);
        let truncates = self.objects.md(md).options.contains(MdOptions::TRUNCATE);
        let mlength = rlength.min(room);
        if mlength < rlength && !truncates {
            return Err(DropReason::TooLong);
        }
        if !self.receiving.make_room() {
            return Err(DropReason::NoRoom);
        }
        let Ok(sink) = self.objects.md(md).memory.incoming(0..mlength as usize) else {
            // Its memory is in use: the data is lost, which is better known now than at the deadline.
            self.fail_response(common, response, Errno::EBUSY, work);
            return Err(DropReason::Busy);
        };
        self.remove_response(response);
        self.begin(md);
        let (kind, back, ack) = (Intake::Reply, inbound.back, WireHandle::NONE);
        let receiving = Receiving { kind, md, back, event: Event { mlength, ..event }, ack };
        Ok(self.deliver_payload(common, receiving, Some(sink), work))
    }
}
