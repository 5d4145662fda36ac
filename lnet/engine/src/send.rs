//! Sending: PUTs and GETs, the way to the peer, credits (lnet-semantics 12 to 14).

use std::mem;

use lnet_api::{AckRequest, Errno, Event, EventKind, Get, LNetError, MdHandle, MdOptions, Put, Tx, TxToken};
use lnet_nid::{Nid, ProcessId};
use lnet_proto::{Body, Header, WireHandle};
use lnet_region::{ReadVec, RegionError};

use crate::message::{Inbound, Message, Op};
use crate::ni::Phase;
use crate::partition::Partition;
use crate::response::Response;
use crate::slab::{Key, NONE};
use crate::work::{LocalCopy, Outgoing, Work};

/// How a message leaves: to which next hop ([`NONE`]: it does not), and from which NID.
struct Way {
    peer: u32,
    source: Nid,
}

impl Partition {
    pub(crate) fn put(&mut self, put: &Put, work: &mut Work) -> Result<(), LNetError> {
        let md = self.sendable_md(put.md)?;
        let way = self.way(put.source, put.target)?;
        let wants_ack = put.ack == AckRequest::Ack;
        self.check_room(wants_ack)?;
        let length = self.objects.md(md).len() as u32;
        let payload = self.lease_whole(md, put.md)?;
        let event = Event {
            target: put.target,
            portal: put.portal.get(),
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            rlength: length,
            mlength: length,
            offset: u64::from(put.offset),
            ..self.event(EventKind::Send)
        };
        let ack_wmd = if wants_ack { self.wire_handle(put.md) } else { WireHandle::NONE };
        let body = Body::Put {
            ack_wmd,
            match_bits: put.match_bits,
            hdr_data: put.hdr_data,
            portal: put.portal.get(),
            offset: put.offset,
        };
        let mut message = Message::new(Op::Put, md, way.peer, event);
        if wants_ack {
            message.response = self.expect(EventKind::Ack, md, &way, put.target);
        }
        self.begin(message, self.header(&way, put.target, length, body), payload, work);
        Ok(())
    }

    pub(crate) fn get(&mut self, get: &Get, work: &mut Work) -> Result<(), LNetError> {
        let md = self.sendable_md(get.md)?;
        let way = self.way(get.source, get.target)?;
        self.check_room(true)?;
        let length = self.objects.md(md).len() as u32;
        let event = Event {
            target: get.target,
            portal: get.portal.get(),
            match_bits: get.match_bits,
            rlength: length,
            mlength: length,
            offset: u64::from(get.offset),
            ..self.event(EventKind::Send)
        };
        let body = Body::Get {
            return_wmd: self.wire_handle(get.md),
            match_bits: get.match_bits,
            portal: get.portal.get(),
            src_offset: get.offset,
            sink_length: length,
        };
        let mut message = Message::new(Op::Get, md, way.peer, event);
        message.response = self.expect(EventKind::Reply, md, &way, get.target);
        self.begin(message, self.header(&way, get.target, 0, body), None, work);
        Ok(())
    }

    /// A free-floating MD that takes another operation.
    fn sendable_md(&self, md: MdHandle) -> Result<u32, LNetError> {
        let usable = |&index: &u32| self.objects.md(index).bound && !self.objects.md(index).is_exhausted();
        self.live_md(md).filter(usable).ok_or(LNetError::NoSuch { object: "MD", handle: md.0 })
    }

    fn check_room(&self, for_response: bool) -> Result<(), LNetError> {
        if self.messages.is_full() || (for_response && self.responses.is_full()) {
            return Err(LNetError::TooMany { objects: "messages in flight", limit: self.messages.limit() });
        }
        Ok(())
    }

    fn lease_whole(&self, md: u32, handle: MdHandle) -> Result<Option<ReadVec>, LNetError> {
        let memory = &self.objects.md(md).memory;
        if memory.is_empty() {
            return Ok(None);
        }
        memory.read(0..memory.len()).map(Some).map_err(|error| match error {
            RegionError::TooManyLeases { max } => {
                LNetError::TooMany { objects: "messages from one region", limit: max }
            }
            _ => LNetError::Busy { object: "the memory of MD", handle: handle.0 },
        })
    }

    fn wire_handle(&self, md: MdHandle) -> WireHandle {
        WireHandle::new(self.config.interface_cookie, md.0)
    }

    fn header(&self, way: &Way, dest: ProcessId, payload_length: u32, body: Body) -> Header {
        Header { dest, src: ProcessId::new(way.source, self.config.pid), payload_length, body }
    }

    /// Path selection (lnet-semantics 14): straight to the target, for this node forwards nothing and knows no router.
    fn way(&mut self, source: Option<Nid>, target: ProcessId) -> Result<Way, LNetError> {
        if let Some(nid) = source.filter(|&nid| !self.is_local(nid)) {
            return Err(LNetError::NotLocal { nid });
        }
        if self.is_local(target.nid) {
            return Ok(Way { peer: NONE, source: target.nid });
        }
        let leads = |id: Nid| id.net() == target.nid.net() && source.is_none_or(|nid| nid == id);
        let found = self.nis.iter().find(|(_, ni)| ni.phase == Phase::Up && leads(ni.id.nid));
        let (ni, source) =
            found.map(|(index, ni)| (index, ni.id.nid)).ok_or(LNetError::NoRoute { nid: target.nid })?;
        let limit = self.peers.limit();
        let peer = self.peer(ni, target).ok_or(LNetError::TooMany { objects: "peers", limit })?;
        Ok(Way { peer, source })
    }

    /// The next hop over an NI; `None` if the table of peers is full of busy ones.
    pub(crate) fn peer(&mut self, ni: u32, id: ProcessId) -> Option<u32> {
        let credits = self.nis[ni].limits.peer_credits;
        self.peers.enter(&self.hasher, ni, id, credits)
    }

    /// Remembers that an ACK or REPLY is to come. There is room, as [`Partition::check_room`] has found.
    fn expect(&mut self, kind: EventKind, md: u32, way: &Way, target: ProcessId) -> Key {
        let mut response = Response::new(kind, md, way.peer, target, way.source);
        if !self.objects.md(md).options.contains(MdOptions::NO_TRACK_RESPONSE) {
            response.deadline_ns = Some(self.now_ns.saturating_add(self.config.transaction_timeout_ns));
        }
        self.track(response)
    }

    fn begin(&mut self, message: Message, header: Header, payload: Option<ReadVec>, work: &mut Work) {
        let md = self.objects.md_mut(message.md);
        md.consume();
        md.busy += 1;
        self.send(message, header, payload, None, work);
    }

    /// Sends a message: at once, when there are credits, or to this node itself. The table has room for it.
    pub(crate) fn send(
        &mut self,
        message: Message,
        header: Header,
        payload: Option<ReadVec>,
        reply_to: Option<lnet_api::RxContext>,
        work: &mut Work,
    ) {
        let (peer, is_answer) = (message.peer, message.op.is_answer());
        let Some(key) = self.messages.insert(message) else { return };
        self.counters.msgs_max = self.counters.msgs_max.max(self.messages.len() as u64);
        let token = TxToken(key.to_u64());
        if peer == NONE {
            let (ni, peer, deadline_ns) = (Nid::LOOPBACK, header.dest, u64::MAX);
            return self.loop_back(Tx { ni, peer, header, payload, token, reply_to, deadline_ns }, work);
        }
        self.peers.get_mut(peer).answers += u32::from(is_answer);
        let to = &self.peers[peer];
        let ni = &self.nis[to.ni];
        let deadline_ns = ni.deadline_ns(self.now_ns);
        let tx = Tx { ni: ni.id.nid, peer: to.id, header, payload, token, reply_to, deadline_ns };
        self.take_peer_credit(key.index, tx, work);
    }

    fn take_peer_credit(&mut self, message: u32, tx: Tx, work: &mut Work) {
        let peer = self.peers.get_mut(self.messages[message].peer);
        peer.credits -= 1;
        if peer.credits < 0 {
            peer.queue.push_back(&mut self.messages, message);
            self.keep_waiting(message, tx);
            return;
        }
        let ni = peer.ni;
        self.take_ni_credit(message, ni, tx, work);
    }

    fn take_ni_credit(&mut self, message: u32, ni: u32, tx: Tx, work: &mut Work) {
        let ni = self.nis.get_mut(ni);
        ni.credits -= 1;
        if ni.credits < 0 {
            ni.queue.push_back(&mut self.messages, message);
            self.keep_waiting(message, tx);
            return;
        }
        work.sends.push(Outgoing { lnd: ni.lnd.clone(), tx });
    }

    /// Keeps a message that is in a queue. There is room for as many as there are messages.
    fn keep_waiting(&mut self, message: u32, tx: Tx) {
        self.messages[message].waiting = self.waiting.insert(tx).map_or(NONE, |key| key.index);
    }

    fn stop_waiting(&mut self, message: u32) -> Option<Tx> {
        let waiting = mem::replace(&mut self.messages[message].waiting, NONE);
        self.waiting.take(waiting)
    }

    /// A message has left its LND: its credits go to the next ones, the NI's first (lnet-semantics 13).
    pub(crate) fn give_back_credits(&mut self, peer: u32, work: &mut Work) {
        if peer == NONE {
            return;
        }
        self.give_back_ni_credit(self.peers[peer].ni, work);
        self.give_back_peer_credit(peer, work);
    }

    fn give_back_ni_credit(&mut self, index: u32, work: &mut Work) {
        loop {
            let ni = self.nis.get_mut(index);
            ni.credits += 1;
            let Some(message) = ni.queue.pop_front(&mut self.messages) else { return };
            let Some(tx) = self.stop_waiting(message) else { return };
            match self.check_before_posting(message, &tx) {
                Ok(()) => {
                    let lnd = self.nis[index].lnd.clone();
                    return work.sends.push(Outgoing { lnd, tx });
                }
                Err(errno) => {
                    let peer = self.messages[message].peer;
                    self.end_outgoing(message, Err(errno), work);
                    self.give_back_peer_credit(peer, work);
                }
            }
        }
    }

    fn give_back_peer_credit(&mut self, index: u32, work: &mut Work) {
        loop {
            let peer = self.peers.get_mut(index);
            peer.credits += 1;
            let Some(message) = peer.queue.pop_front(&mut self.messages) else { return };
            let ni = peer.ni;
            let Some(tx) = self.stop_waiting(message) else { return };
            match self.check_before_posting(message, &tx) {
                Ok(()) => return self.take_ni_credit(message, ni, tx, work),
                Err(errno) => self.end_outgoing(message, Err(errno), work),
            }
        }
    }

    /// Gives a peer more credits, or fewer.
    pub(crate) fn change_peer_credits(&mut self, index: u32, more: i64, work: &mut Work) {
        for _ in 0..more {
            self.give_back_peer_credit(index, work);
        }
        self.peers.get_mut(index).credits += more.min(0);
    }

    /// Gives an NI more credits, or fewer.
    pub(crate) fn change_ni_credits(&mut self, index: u32, more: i64, work: &mut Work) {
        for _ in 0..more {
            self.give_back_ni_credit(index, work);
        }
        self.nis.get_mut(index).credits += more.min(0);
    }

    /// Whether a message that has waited may still go: not after its deadline, nor for an MD that is unlinked.
    fn check_before_posting(&self, message: u32, tx: &Tx) -> Result<(), Errno> {
        let md = self.messages[message].md;
        if tx.deadline_ns <= self.now_ns {
            return Err(Errno::ETIMEDOUT);
        }
        if md != NONE && self.objects.md(md).aborted {
            return Err(Errno::ECANCELED);
        }
        Ok(())
    }

    /// Ends all messages that wait for credits of an NI or of its peers.
    pub(crate) fn flush_queues(&mut self, ni: u32, errno: Errno, work: &mut Work) {
        while let Some(message) = self.nis.get_mut(ni).queue.pop_front(&mut self.messages) {
            let peer = self.messages[message].peer;
            self.nis.get_mut(ni).credits += 1;
            self.peers.get_mut(peer).credits += 1;
            let _tx = self.stop_waiting(message);
            self.end_outgoing(message, Err(errno), work);
        }
        for peer in self.peers.of_ni(ni) {
            while let Some(message) = self.peers.get_mut(peer).queue.pop_front(&mut self.messages) {
                self.peers.get_mut(peer).credits += 1;
                let _tx = self.stop_waiting(message);
                self.end_outgoing(message, Err(errno), work);
            }
        }
    }

    /// Delivers a message of this node to itself: no LND, no credits (lnet-wire 14).
    ///
    /// The answer to what is received here may come back here in turn, and ends there: a GET causes a REPLY, a PUT an
    /// ACK, those nothing.
    fn loop_back(&mut self, tx: Tx, work: &mut Work) {
        let inbound = Inbound { ni: NONE, from: tx.header.src, rx: lnet_api::RxContext(0) };
        match self.receive(&inbound, &tx.header, work) {
            lnet_api::Verdict::Deliver(delivery) => {
                work.copies.push(LocalCopy { payload: tx.payload, delivery, tx: tx.token });
            }
            lnet_api::Verdict::Delay(token) => {
                if let Some(delayed) = self.delayed.get_mut(Key::from_u64(token.0)) {
                    delayed.local = Some(tx);
                }
            }
            _ => {
                let token = tx.token;
                mem::drop(tx);
                self.finalize_tx(token, Ok(()), work);
            }
        }
    }
}
