//! Completion: messages that have left or arrived, responses that come, fail or stay away.

use lnet_api::{Errno, Event, EventKind, RxToken, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Body, Header};
use lnet_region::WriteVec;

use crate::message::{Inbound, Message, Op};
use crate::partition::Partition;
use crate::response::Response;
use crate::slab::{Key, NONE};
use crate::work::Work;

/// How many expired responses one call of `advance` ends, so that it does not hold the lock for long.
const EXPIRE_BATCH: usize = 1024;

/// How many of an MD's expected responses, and how many of a peer's, are compared with one that has come. An MD nearly
/// always expects one; one that expects many from many peers finds its own among the few that the sender owes.
const ANSWER_SEARCH: usize = 256;

impl Partition {
    /// A message has left, or could not.
    pub(crate) fn finalize_tx(&mut self, token: TxToken, result: Result<(), Errno>, work: &mut Work) {
        let key = Key::from_u64(token.0);
        let with_lnd = |message: &&Message| message.is_outgoing() && message.waiting == NONE;
        let Some(message) = self.messages.get(key).filter(with_lnd) else { return };
        let peer = message.peer;
        self.end_outgoing(key.index, result, work);
        self.give_back_credits(peer, work);
    }

    /// Ends a message that this node sent; its credits are the caller's business.
    pub(crate) fn end_outgoing(&mut self, message: u32, result: Result<(), Errno>, work: &mut Work) {
        let Some(message) = self.messages.take(message) else { return };
        if message.peer != NONE {
            self.peers.get_mut(message.peer).answers -= u32::from(message.op.is_answer());
        }
        match result {
            Ok(()) => self.counters.send_count += 1,
            Err(_) => self.counters.errors += 1,
        }
        match message.op {
            Op::Put | Op::Get | Op::DirectGet => self.end_request(&message, result, work),
            Op::Reply => {
                if result.is_ok() {
                    self.counters.send_length += u64::from(message.event.mlength);
                }
                self.finish(message.md, &message.event, result, work);
            }
            Op::Ack | Op::PutReceived | Op::PushReceived | Op::ReplyReceived => {}
        }
    }

    /// The SEND event of a PUT or GET. After a failure no ACK or REPLY will come; it counts as come, so that an MD made
    /// for this operation alone ends here.
    fn end_request(&mut self, message: &Message, result: Result<(), Errno>, work: &mut Work) {
        match result {
            Ok(()) => {
                if message.op == Op::Put {
                    self.counters.send_length += u64::from(message.event.mlength);
                }
                if let Some(response) = self.responses.get_mut(message.response) {
                    response.sent = true;
                }
            }
            Err(_) if self.responses.get(message.response).is_some() => {
                self.remove_response(message.response.index);
                self.objects.md_mut(message.md).consume();
            }
            Err(_) => {}
        }
        self.finish(message.md, &message.event, result, work);
    }

    /// A payload is in place, or was lost.
    pub(crate) fn finalize_rx(&mut self, token: RxToken, result: Result<(), Errno>, work: &mut Work) {
        let key = Key::from_u64(token.0);
        if self.messages.get(key).is_none_or(Message::is_outgoing) {
            return;
        }
        let Some(message) = self.messages.remove(key) else { return };
        self.end_incoming(message, result, work);
    }

    /// The event of a received PUT or REPLY, then the ACK.
    pub(crate) fn end_incoming(&mut self, message: Message, result: Result<(), Errno>, work: &mut Work) {
        match result {
            Ok(()) => {
                self.counters.recv_count += 1;
                self.counters.recv_length += u64::from(message.event.mlength);
            }
            Err(_) => self.counters.errors += 1,
        }
        if message.md != NONE {
            self.finish(message.md, &message.event, result, work);
        }
        if message.peer != NONE {
            let peer = self.peers.get_mut(message.peer);
            peer.holds -= 1;
            peer.pushing &= message.op != Op::PushReceived;
        }
        if result.is_ok() && !message.ack.is_none() {
            self.acknowledge(&message, work);
        }
    }

    fn acknowledge(&mut self, put: &Message, work: &mut Work) {
        let Event { source, target, match_bits, mlength, .. } = put.event;
        let body = Body::Ack { dst_wmd: put.ack, match_bits, mlength };
        let src = ProcessId::new(target.nid, self.config.pid);
        let header = Header { dest: source, src, payload_length: 0, body };
        self.send(Message::new(Op::Ack, NONE, put.peer, put.event), header, None, None, work);
    }

    /// The memory for a GET that the network answers by itself.
    pub(crate) fn sink_of_get(&mut self, token: TxToken) -> Option<WriteVec> {
        let message = self.messages.get_mut(Key::from_u64(token.0))?;
        let md = &self.objects.md(message.md).memory;
        if message.op != Op::Get || self.responses.get(message.response).is_none() {
            return None;
        }
        let sink = md.write(0..md.len()).ok()?;
        message.op = Op::DirectGet;
        Some(sink)
    }

    /// The network has answered a GET by itself: SEND, then REPLY.
    pub(crate) fn finalize_get(&mut self, token: TxToken, result: Result<u32, Errno>, work: &mut Work) {
        let key = Key::from_u64(token.0);
        let direct = |message: &&Message| message.op == Op::DirectGet;
        let Some(message) = self.messages.get(key).filter(direct) else { return };
        let (md, response) = (message.md, message.response);
        let expected = self.responses.get(response).is_some();
        let Ok(bytes) = result.map_err(|errno| self.finalize_tx(token, Err(errno), work)) else { return };
        if !expected {
            return self.finalize_tx(token, Ok(()), work);
        }
        let mlength = bytes.min(self.objects.md(md).len() as u32);
        let event = self.response_event(response.index);
        self.remove_response(response.index);
        self.objects.md_mut(md).consume();
        self.objects.md_mut(md).busy += 1;
        self.finalize_tx(token, Ok(()), work);
        self.counters.recv_count += 1;
        self.counters.recv_length += u64::from(mlength);
        self.finish(md, &Event { rlength: mlength, mlength, ..event }, Ok(()), work);
    }

    /// Enters a response in the table, which has room, and in its lists.
    pub(crate) fn track(&mut self, response: Response) -> Key {
        let (md, peer, deadline) = (response.md, response.peer, response.deadline_ns);
        let Some(key) = self.responses.insert(response) else { return Key::NULL };
        self.objects.md_mut(md).responses.push_back(&mut self.responses, key.index);
        if peer != NONE {
            self.peers.get_mut(peer).responses.push_back(&mut self.responses, key.index);
        }
        if deadline.is_some() {
            self.deadlines.push_back(&mut self.responses, key.index);
        }
        key
    }

    /// A response is not expected any more.
    pub(crate) fn remove_response(&mut self, index: u32) {
        let Response { md, peer, deadline_ns, .. } = self.responses[index];
        self.objects.md_mut(md).responses.remove(&mut self.responses, index);
        if peer != NONE {
            self.peers.get_mut(peer).responses.remove(&mut self.responses, index);
        }
        if deadline_ns.is_some() {
            self.deadlines.remove(&mut self.responses, index);
        }
        self.responses.take(index);
    }

    /// The expected response that an ACK or REPLY is: one to a request that went to the NID it comes from, else one to
    /// a request that went to another NID of the same node.
    pub(crate) fn answered(&self, md: u32, kind: EventKind, inbound: &Inbound, source: Nid) -> Option<u32> {
        let of_md = self.objects.md(md).responses.iter(&self.responses).take(ANSWER_SEARCH);
        let peer = self.peers.find(&self.hasher, inbound.ni, inbound.from);
        let of_peer = peer
            .into_iter()
            .flat_map(|peer| self.peers[peer].responses.iter(&self.responses).take(ANSWER_SEARCH));
        let expected = |index: u32| self.responses[index].md == md && self.responses[index].kind == kind;
        let mut same_node = None;
        for index in of_md.chain(of_peer).filter(|&index| expected(index)) {
            let target = self.responses[index].target.nid;
            if target == source {
                return Some(index);
            }
            if same_node.is_none() && self.identities.same(target, source) {
                same_node = Some(index);
            }
        }
        same_node
    }

    /// The event that tells of an expected response, as far as that is known before it comes.
    fn response_event(&self, index: u32) -> Event {
        let response = &self.responses[index];
        Event {
            target: ProcessId::new(response.source, self.config.pid),
            initiator: ProcessId::new(self.identities.primary(response.target.nid), response.target.pid),
            source: response.target,
            sender: response.target.nid,
            ..self.event(response.kind)
        }
    }

    /// Time passes: responses that are late end with ETIMEDOUT (lnet-semantics 12).
    ///
    /// The MD is unlinked. If it is idle, its last event has the kind of the response that did not come; else the
    /// message in flight ends it.
    pub(crate) fn expire(&mut self, work: &mut Work) {
        for _ in 0..EXPIRE_BATCH {
            let Some(index) = self.first_expired() else { return };
            let event = Event { status: Err(Errno::ETIMEDOUT), ..self.response_event(index) };
            let md = self.responses[index].md;
            self.counters.response_timeout_count += 1;
            self.unlink(md, event, work);
        }
    }

    fn first_expired(&self) -> Option<u32> {
        let head = self.deadlines.head()?;
        let deadline = self.responses.at(head)?.deadline_ns?;
        (deadline <= self.now_ns).then_some(head)
    }

    /// When the next response is late.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.responses.at(self.deadlines.head()?)?.deadline_ns
    }

    /// The connections to a peer are gone, and with them the ACKs and REPLYs to what was sent.
    ///
    /// Each of them ends like one that came, with an event of its kind and the reason as status: so an MD made for the
    /// operation alone ends too. What is still being sent, the LND finalises.
    pub(crate) fn lose_peer(&mut self, peer: u32, reason: Errno, work: &mut Work) {
        let mut first_kept = NONE;
        while let Some(head) = self.peers[peer].responses.head() {
            if head == first_kept {
                break;
            }
            if self.responses[head].sent {
                self.fail_response(head, reason, work);
                continue;
            }
            let list = &mut self.peers.get_mut(peer).responses;
            list.remove(&mut self.responses, head);
            list.push_back(&mut self.responses, head);
            if first_kept == NONE {
                first_kept = head;
            }
        }
        self.peers.forget_if_idle(peer);
    }

    fn fail_response(&mut self, index: u32, reason: Errno, work: &mut Work) {
        let event = self.response_event(index);
        let md = self.responses[index].md;
        self.remove_response(index);
        self.objects.md_mut(md).consume();
        self.objects.md_mut(md).busy += 1;
        self.finish(md, &event, Err(reason), work);
    }
}
