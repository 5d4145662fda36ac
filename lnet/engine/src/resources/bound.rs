//! MDs bound for PUTs and GETs, and the responses for which these wait (lnet-semantics 12).

use std::sync::Arc;

use lnet_api::{Errno, Event, EventKind, LNetError, Md, MdHandle, MdOptions, TxToken, Unlink, Verdict};
use lnet_nid::ProcessId;
use lnet_proto::{Header, WireHandle};
use lnet_region::{ReadVec, RegionError, WriteVec};

use super::response::{BY_DEADLINE, Response};
use super::{FAIL_BATCH, Intake, MdTable, Receiving, Resources, deliver_payload};
use crate::common::Common;
use crate::counters::Counters;
use crate::drops::DropReason;
use crate::groups::{GROUP, Groups};
use crate::list::{Linked, List};
use crate::message::{
    AdmittedMessage, Launch, MessageOp, NewOperation, OutgoingMessage, Path, PeerName, Route, peer_id,
};
use crate::names::{MdLocation, MdName};
use crate::slab::{Key, NONE, Slab, slab, some};
use crate::work::DeferredWork;

/// Expired responses that one hold of a partition's lock ends.
const EXPIRE_BATCH: usize = 1024;

/// Expected responses of an MD, and of a peer, that are compared with an arrived answer. An MD
/// usually expects one; an MD that expects many from many peers finds its answer among the few that
/// the sender owes.
const ANSWER_SEARCH: usize = 256;

/// One partition of the bound MDs, with the responses for which they wait.
pub(crate) struct Bound {
    pub(super) mds: MdTable,
    pub(super) responses: Slab<Response>,
    pub(super) deadlines: List<BY_DEADLINE>,
    pub(super) by_debtor: Groups,
}

impl Resources for Bound {
    fn mds(&self) -> &MdTable {
        &self.mds
    }

    fn mds_mut(&mut self) -> &mut MdTable {
        &mut self.mds
    }

    /// Marks the MD as dead, and removes its outstanding responses.
    fn retire(&mut self, md: u32) {
        self.mds.objects.md_mut(md).dead = true;
        while let Some(head) = self.mds.objects.md(md).responses.head() {
            self.remove_response(head);
        }
    }
}

impl Bound {
    pub(crate) fn new(common: &Arc<Common>, partition: usize) -> Bound {
        let room = common.room(partition);
        Bound {
            mds: MdTable::new(common, MdLocation { bound: true, partition }),
            responses: slab(common.config.limits.messages).within(&room),
            deadlines: List::new(),
            by_debtor: Groups::within(&room),
        }
    }

    /// Binds an MD.
    ///
    /// # Errors
    /// ENOENT if its EQ is gone, ENOMEM if there are too many.
    pub(crate) fn bind(&mut self, md: Md, unlink: Unlink) -> Result<MdHandle, LNetError> {
        let index = self.mds.enter(md, NONE, unlink)?;
        Ok(self.mds.handle(index))
    }

    /// Binds an MD for one PUT or GET, to which [`Bound::commit`] commits it under the same hold of
    /// the lock.
    ///
    /// # Errors
    /// The errors of [`Bound::bind`].
    pub(crate) fn make(&mut self, md: Md) -> Result<u32, LNetError> {
        self.mds.enter(md, NONE, Unlink::Auto)
    }

    /// Frees an unused MD of [`Bound::make`], without an event.
    pub(crate) fn unmake(&mut self, md: u32, work: &mut DeferredWork) {
        self.mds.free(md, work);
    }

    /// Returns the MD of `key`, if it takes another PUT or GET.
    pub(crate) fn sendable(&self, key: Key) -> Option<u32> {
        self.mds.live(key).filter(|&index| !self.mds.objects.md(index).is_exhausted())
    }

    /// Commits an MD that takes another operation to a PUT or GET, and returns the message to
    /// launch.
    ///
    /// # Errors
    /// EBUSY while its memory is being written, ENOMEM if its memory has too many leases or there
    /// are too many expected answers.
    pub(crate) fn commit(
        &mut self,
        md: u32,
        request: &NewOperation,
        route: &Route,
    ) -> Result<Launch, LNetError> {
        let &NewOperation { op, target, answer, .. } = request;
        let descriptor = self.mds.objects.md(md);
        let length = descriptor.len() as u32;
        let name = MdName { location: self.mds.location, key: self.mds.objects.key(md) };
        let own = self.mds.common.handles.md(name.location, name.key);
        let plain = WireHandle::new(self.mds.common.config.interface_cookie, own.0);
        let takes_refusals = descriptor.options.contains(MdOptions::TAKES_REFUSALS);
        let handle = if takes_refusals { plain.taking_refusals() } else { plain };
        let payload = if op == MessageOp::Put { self.lease_whole(md, own)? } else { None };
        let response = match answer {
            Some(kind) => self.expect(kind, md, route, target)?,
            None => Key::NULL,
        };
        self.mds.begin(md);
        let common = &self.mds.common;
        let message = OutgoingMessage { op, md: Some(name), event: request.event(common, length), response };
        let header = Header {
            dest: target,
            src: ProcessId::new(route.source, common.config.pid),
            payload_length: if op == MessageOp::Put { length } else { 0 },
            body: request.body(length, handle),
        };
        Ok(Launch { path: route.path, message, header, payload, reply_to: None })
    }

    /// Stores the token of a message that waits for credits, right after the commit of its MD; as
    /// [`MdTable::remember`].
    pub(crate) fn remember(&mut self, md: Key, token: TxToken, work: &mut DeferredWork) {
        self.mds.remember(md, token, work);
    }

    fn lease_whole(&self, md: u32, handle: MdHandle) -> Result<Option<ReadVec>, LNetError> {
        let memory = &self.mds.objects.md(md).memory;
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

    /// Adds an expected ACK or REPLY.
    fn expect(
        &mut self,
        kind: EventKind,
        md: u32,
        route: &Route,
        target: ProcessId,
    ) -> Result<Key, LNetError> {
        let mut response = Response::new(kind, md, route, target);
        if !self.mds.objects.md(md).options.contains(MdOptions::NO_TRACK_RESPONSE) {
            let timeout_ns = self.mds.common.config.transaction_timeout_ns;
            response.deadline_ns = Some(self.mds.common.now_ns().saturating_add(timeout_ns));
        }
        let limit = self.responses.limit();
        self.track(response).ok_or(LNetError::TooMany { objects: "answers waited for", limit })
    }

    /// Adds a response to the table and to its lists; `None` if there is no room.
    fn track(&mut self, response: Response) -> Option<Key> {
        let Response { md, deadline_ns, debtor, .. } = response;
        let key = self.responses.insert(response)?;
        if debtor.is_some() && !self.by_debtor.push_back(&mut self.responses, key.index) {
            self.responses.take(key.index);
            return None;
        }
        self.mds.objects.md_mut(md).responses.push_back(&mut self.responses, key.index);
        if let Some(deadline_ns) = deadline_ns {
            if self.deadlines.is_empty() {
                self.mds.common.lower_deadline(self.mds.location.partition, deadline_ns);
            }
            self.deadlines.push_back(&mut self.responses, key.index);
        }
        Some(key)
    }

    /// Removes an expected response.
    fn remove_response(&mut self, index: u32) {
        let Response { md, debtor, deadline_ns, .. } = self.responses[index];
        self.mds.objects.md_mut(md).responses.remove(&mut self.responses, index);
        if debtor.is_some() {
            self.by_debtor.remove(&mut self.responses, index);
        }
        if deadline_ns.is_some() {
            self.deadlines.remove(&mut self.responses, index);
        }
        self.responses.take(index);
    }

    /// Reports to the MD of a PUT or GET that it has left or failed. After a failure no answer
    /// arrives; it counts as arrived, so that an MD for this operation alone ends here.
    pub(crate) fn request_left(
        &mut self,
        message: &OutgoingMessage,
        result: Result<(), Errno>,
        work: &mut DeferredWork,
    ) {
        let Some(MdName { key: Key { index: md, .. }, .. }) = message.md else { return };
        if let Some(response) = self.responses.get_mut(message.response) {
            match result {
                Ok(()) => response.sent = true,
                Err(_) => {
                    self.remove_response(message.response.index);
                    self.mds.objects.md_mut(md).consume();
                }
            }
        }
        self.finish(md, &message.event, result, work);
    }

    /// Returns the memory for a GET whose data the network writes; `None` if the answer is not
    /// expected, or the memory is in use.
    pub(crate) fn direct_sink(&self, md: Key, response: Key) -> Option<WriteVec> {
        self.responses.get(response)?;
        let memory = &self.mds.objects.md(md.index).memory;
        memory.incoming(0..memory.len()).ok()
    }

    /// Claims the expected REPLY of `bytes` bytes that the network has written; `None` if it is not
    /// expected any more. Returns its event, for [`Bound::end_direct`] when the GET has left.
    pub(crate) fn claim_direct(&mut self, md: Key, response: Key, bytes: u32) -> Option<Event> {
        let found = self.responses.get(response)?;
        let mlength = bytes.min(self.mds.objects.md(md.index).len() as u32);
        let event = Event { rlength: mlength, mlength, ..found.event(&self.mds.common) };
        self.remove_response(response.index);
        self.mds.begin(md.index);
        Some(event)
    }

    /// Delivers the event of [`Bound::claim_direct`].
    pub(crate) fn end_direct(&mut self, md: Key, event: &Event, work: &mut DeferredWork) {
        self.mds.counters.recv_count += 1;
        self.mds.counters.recv_length += u64::from(event.mlength);
        self.finish(md.index, event, Ok(()), work);
    }

    /// Processes the refusal of a PUT or GET; `None` if no answer to it is expected.
    pub(crate) fn take_refusal(
        &mut self,
        message: AdmittedMessage<'_>,
        key: Key,
        work: &mut DeferredWork,
    ) -> Option<Verdict> {
        let md = self.waiting_md(key)?;
        let response = [EventKind::Ack, EventKind::Reply]
            .into_iter()
            .find_map(|kind| self.answered(md, kind, message))?;
        self.mds.counters.recv_count += 1;
        self.fail_response(response, Errno::ENODATA, work);
        Some(Verdict::Done)
    }

    /// Processes an ACK or REPLY.
    ///
    /// # Errors
    /// The reason why it is dropped.
    pub(crate) fn take_answer(
        &mut self,
        message: AdmittedMessage<'_>,
        key: Key,
        event: Event,
        work: &mut DeferredWork,
    ) -> Result<Verdict, DropReason> {
        let unexpected = DropReason::Unexpected;
        let md = self.waiting_md(key).ok_or(unexpected)?;
        let response = self.answered(md, event.kind, message).ok_or(unexpected)?;
        if event.kind == EventKind::Ack {
            self.remove_response(response);
            self.mds.begin(md);
            self.mds.counters.recv_count += 1;
            self.finish(md, &event, Ok(()), work);
            return Ok(Verdict::Done);
        }
        let descriptor = self.mds.objects.md(md);
        let (rlength, room) = (event.rlength, descriptor.len() as u32);
        let truncates = descriptor.options.contains(MdOptions::TRUNCATE);
        let mlength = rlength.min(room);
        if mlength < rlength && !truncates {
            return Err(DropReason::TooLong);
        }
        if !self.mds.receiving.make_room() {
            return Err(DropReason::NoRoom);
        }
        let Ok(sink) = self.mds.objects.md(md).memory.incoming(0..mlength as usize) else {
            // The MD's memory is in use, so the data is lost. The owner gets the error now, and not
            // at the deadline.
            self.fail_response(response, Errno::EBUSY, work);
            return Err(DropReason::Busy);
        };
        self.remove_response(response);
        self.mds.begin(md);
        let (kind, back, ack) = (Intake::Reply, message.inbound.back, WireHandle::NONE);
        let receiving = Receiving { kind, md, back, event: Event { mlength, ..event }, ack };
        Ok(deliver_payload(self, receiving, Some(sink), work))
    }

    /// Returns the index of an MD that may wait for an answer.
    fn waiting_md(&self, key: Key) -> Option<u32> {
        self.mds.live(key).filter(|&md| !self.mds.objects.md(md).is_spent())
    }

    /// Returns the expected response for an ACK or REPLY: one to a request that went to the
    /// sender's NID, otherwise one to a request that went to another NID of the same node.
    fn answered(&self, md: u32, kind: EventKind, message: AdmittedMessage<'_>) -> Option<u32> {
        let AdmittedMessage { inbound, header } = message;
        let sender = match inbound.back {
            Path::Here => None,
            Path::Over { ni, peer, .. } => Some((ni, peer_id(peer))),
        };
        // Only the target of the request may answer: the same peer, or another NID that is known to
        // belong to the node named in the header. Programs with unprivileged ports (lnet-wire 27)
        // answer for themselves alone.
        let of_node = inbound.nids.contains(&inbound.from.nid) && !inbound.from.pid.is_userspace();
        let is_node = |debtor: Option<PeerName>| debtor.is_some_and(|debtor| !debtor.id.pid.is_userspace());
        let of_md = self.mds.objects.md(md).responses.iter(&self.responses).take(ANSWER_SEARCH);
        // Searched only if the responses of the MD do not match.
        let of_debtor = sender.into_iter().flat_map(|(ni, id)| {
            let first = self.first_of_debtor(&PeerName::new(&self.mds.common.hasher, ni, id));
            std::iter::successors(some(first), |&at| self.next_of_debtor(at)).take(ANSWER_SEARCH)
        });
        let expected = |index: u32| {
            let Response { md: of, kind: wanted, debtor, .. } = self.responses[index];
            let owes = || debtor.map(|debtor| (debtor.ni, debtor.id)) == sender;
            of == md && wanted == kind && (owes() || of_node && is_node(debtor))
        };
        let mut same_node = None;
        for index in of_md.chain(of_debtor).filter(|&index| expected(index)) {
            let target = self.responses[index].target.nid;
            if target == header.src.nid {
                return Some(index);
            }
            if same_node.is_none() && inbound.nids.contains(&target) {
                same_node = Some(index);
            }
        }
        same_node
    }

    fn first_of_debtor(&self, debtor: &PeerName) -> u32 {
        self.by_debtor
            .first(&self.responses, debtor.hash, |response: &Response| response.debtor == Some(*debtor))
    }

    fn next_of_debtor(&self, index: u32) -> Option<u32> {
        some(Linked::<GROUP>::links(&self.responses[index]).next)
    }

    /// Ends an expected response that will not arrive: delivers an event of its kind with the
    /// reason as status, as for one that has arrived. So an MD for this operation alone ends too.
    fn fail_response(&mut self, index: u32, reason: Errno, work: &mut DeferredWork) {
        let response = &self.responses[index];
        let (md, event) = (response.md, response.event(&self.mds.common));
        self.remove_response(index);
        self.mds.begin(md);
        self.finish(md, &event, Err(reason), work);
    }

    /// Ends responses whose deadline has passed, and sets the next deadline.
    pub(crate) fn expire(&mut self, now_ns: u64, work: &mut DeferredWork) {
        let next_ns = self.end_late(now_ns, work);
        self.mds.common.set_deadline(self.mds.location.partition, next_ns);
    }

    /// Ends late responses (lnet-semantics 12). The MD is unlinked. If it is idle, its last event
    /// has the kind of the missing response; otherwise the message in flight ends it. Returns the
    /// earliest deadline that is left.
    fn end_late(&mut self, now_ns: u64, work: &mut DeferredWork) -> u64 {
        for _ in 0..EXPIRE_BATCH {
            if !work.has_room() {
                break;
            }
            let Some(head) = self.deadlines.head() else { return u64::MAX };
            let response = &self.responses[head];
            match response.deadline_ns {
                Some(deadline_ns) if deadline_ns > now_ns => return deadline_ns,
                _ => {}
            }
            let status = Err(Errno::ETIMEDOUT);
            let (md, event) = (response.md, Event { status, ..response.event(&self.mds.common) });
            self.mds.counters.response_timeout_count += 1;
            self.unlink(md, event, work);
        }
        now_ns
    }

    /// Ends the responses that a peer owes for requests that have left. Responses to requests that
    /// have not left stay in the list. Returns the last of those that this call passed, if the list
    /// has more: the next call continues after it, or from the start if it is gone by then.
    pub(crate) fn fail_sent(
        &mut self,
        debtor: &PeerName,
        (mut passed, reason): (Option<Key>, Errno),
        work: &mut DeferredWork,
    ) -> Option<Option<Key>> {
        for _ in 0..FAIL_BATCH {
            passed = passed.filter(|&key| self.responses.get(key).is_some());
            if !work.has_room() {
                break;
            }
            let index = match passed {
                Some(key) => self.next_of_debtor(key.index)?,
                None => some(self.first_of_debtor(debtor))?,
            };
            if self.responses[index].sent {
                self.fail_response(index, reason, work);
            } else {
                passed = Some(self.responses.key(index));
            }
        }
        Some(passed)
    }

    /// Ends the responses owed over an NI, whether the requests have left or not, from slot `next`
    /// on. The end of one response may end other responses of its MD. Returns the slot at which to
    /// continue, if any are left.
    pub(crate) fn fail_responses(
        &mut self,
        ni: Key,
        (next, reason): (u32, Errno),
        work: &mut DeferredWork,
    ) -> Option<u32> {
        let end = self.responses.used().min(next.saturating_add(FAIL_BATCH));
        for index in next..end {
            if !work.has_room() {
                return Some(index);
            }
            let debtor = self.responses.at(index).and_then(|response| response.debtor.as_ref());
            if debtor.is_some_and(|debtor| debtor.ni == ni) {
                self.fail_response(index, reason, work);
            }
        }
        (end < self.responses.used()).then_some(end)
    }

    /// Returns this room's part of the node's counters.
    pub(crate) fn counters(&self) -> Counters {
        Counters { rst_alloc: self.responses.len() as u64, ..self.mds.counters() }
    }
}
