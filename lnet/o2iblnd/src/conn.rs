//! The rules of one established connection, without verbs, clock or memory: when each side may send
//! which message, and which operation each message belongs to (lnet-wire 35 and 36, version 2).
//!
//! [`Conn`] keeps the credits of both sides, the three queues of messages, and a table of the
//! operations under way. With each operation it keeps an item of the driver's, a `T`, which it
//! returns to the driver exactly once. It decides which message to emit ([`Conn::next`]) and
//! interprets received messages ([`Conn::received`]); the driver emits, posts, receives and writes.
//! All tables are allocated when the connection is made; nothing is allocated afterwards.
//!
//! | operation | messages | its item is returned |
//! | --- | --- | --- |
//! | [`Own::Immediate`] | IMMEDIATE | when the send has completed |
//! | [`Own::Put`] | PUT_REQ; then PUT_NAK, or PUT_ACK ([`ReceivedMessage::PutAck`], [`Conn::done`]), WRITEs and PUT_DONE | when all sends have completed and the answer has been received |
//! | [`Own::Get`] | GET_REQ; then GET_DONE | when the send has completed and the answer has been received |
//! | [`ReceivedMessage::PutReq`] | PUT_ACK ([`Conn::ack`]); then PUT_DONE. Or PUT_NAK ([`Conn::nak`]) | when the send has completed and PUT_DONE has been received; from [`Conn::nak`] at once |
//! | [`ReceivedMessage::GetReq`] | WRITEs and GET_DONE ([`Conn::done`]) | when the send has completed |
//!
//! # How a driver uses it
//! The driver makes all calls under the lock under which it posts:
//!
//! ```
//! use lnet_nid::{MatchBits, ProcessId};
//! use lnet_o2iblnd::conn::{Conn, Limits, Own, Receipt, ReceivedMessage, EmitKind};
//! use lnet_proto::ib::{Body, End, Link, MESSAGE_MAX, Message, Version};
//! use lnet_proto::{Header, WireHandle};
//!
//! let (a, b) = (End { nid: "10.0.0.1@o2ib".parse()?, stamp: 1 }, End { nid: "10.0.0.2@o2ib".parse()?, stamp: 2 });
//! let link = Link { version: Version::V2, local: a, peer: b };
//! let limits = Limits { depth: 8, high_water: 4, sends: 8, works: 2080, messages: 256, keepalive_ns: u64::MAX };
//! let [mut alice, mut bob] = [Conn::new(&limits, 0), Conn::new(&limits, 0)];
//!
//! // Queue a message, with the driver's item.
//! alice.queue(Own::Immediate, 50_000_000_000, "the ACK").expect("there is room");
//!
//! // Emit it when the rules allow: into the transmit buffer `id.index()`, posted with `id.bits()`.
//! let mut wire = [0; MESSAGE_MAX];
//! let emit = alice.next(0).expect("it has a credit");
//! assert_eq!((emit.kind, emit.item.copied()), (EmitKind::Immediate, Some("the ACK")));
//! # let body = lnet_proto::Body::Ack { dst_wmd: WireHandle::NONE, match_bits: MatchBits(1), mlength: 0 };
//! # let header = Header { dest: ProcessId::lnet(b.nid), src: ProcessId::lnet(a.nid), payload_length: 0, body };
//! let message = Message { head: link.head(emit.credits), body: Body::Immediate { header, payload: &[] } };
//! let (id, length) = (emit.id, message.emit(&mut wire)?);
//!
//! // The receiver handles the message, posts the buffer again, and reports that.
//! let (receipt, received) = bob.received(&Message::parse(&wire[..length])?)?;
//! assert!(matches!((&receipt, received), (Receipt::Credit, ReceivedMessage::Immediate)));
//! bob.reposted(receipt);
//!
//! // When the send has completed, the operation has ended.
//! let ended = alice.completed(id.bits())?.expect("it has ended");
//! assert_eq!((ended.item, ended.outcome), ("the ACK", Ok(0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A driver may keep a receive buffer while it needs the contents: a payload that a lazy portal
//! holds, the descriptor of a PUT_ACK or GET_REQ until the writes are posted. It keeps the receipt
//! with the buffer; the peer gets that credit back, or this side that transfer, only when the
//! buffer is posted again. The buffer of a PUT_REQ is not needed: the driver must post it again
//! before it answers the request.

use std::collections::VecDeque;

use lnet_api::Errno;
use lnet_proto::ib::{Body, Message, MessageKind};

mod credits;
mod error;
mod posts;
mod rules;
mod table;
mod types;

use credits::Credits;
pub use error::ConnError;
use posts::Posts;
pub use posts::SendId;
use rules::{saturating, status};
pub use table::OpKey;
use table::{ConnOps, OpState};
pub use types::{ConnCounts, Emit, EmitKind, EndedOp, Late, Limits, Own, Receipt, ReceivedMessage};

/// One established connection. See the [module](self).
#[derive(Debug)]
pub struct Conn<T> {
    limits: Limits,
    credits: Credits,
    table: ConnOps<T>,
    posts: Posts,
    /// Messages that need no credit: the answers to the peer's requests.
    answers: VecDeque<OpKey>,
    /// Messages that need a credit.
    ready: VecDeque<OpKey>,
    /// PUT_REQs and GET_REQs beyond the number of transfers that may be under way.
    waiting: VecDeque<OpKey>,
    /// NOOPs that are posted and have not completed.
    noops: u8,
    /// Set when a NOOP must show that this side lives, also if no other rule requires one; sending
    /// any message clears it.
    shows_life: bool,
    /// NOOPs sent since a message was last received. A peer whose program has stopped has receive
    /// buffers for two NOOPs. One may show that this side lives; the other returns credits, without
    /// which the peer may be unable to send.
    noops_since_received: u8,
    own: u16,
    /// Number of steps of own operations: messages posted, sends completed, answers received.
    steps: u64,
    last_sent_ns: u64,
    /// A lower bound of all deadlines, in nanoseconds.
    earliest_ns: u64,
}

impl<T> Conn<T> {
    /// Creates a connection that is established at `now_ns`.
    #[must_use]
    pub fn new(limits: &Limits, now_ns: u64) -> Conn<T> {
        let size = limits.operations();
        let queue = || VecDeque::with_capacity(size.into());
        Conn {
            limits: *limits,
            credits: Credits::new(limits.depth, limits.high_water),
            table: ConnOps::new(size),
            posts: Posts::new(limits.sends, limits.works),
            answers: queue(),
            ready: queue(),
            waiting: queue(),
            noops: 0,
            shows_life: false,
            noops_since_received: 0,
            own: 0,
            steps: 0,
            last_sent_ns: now_ns,
            earliest_ns: u64::MAX,
        }
    }

    /// Returns the size in bytes of the tables and queues of a connection with these limits.
    pub(crate) fn table_bytes(limits: &Limits) -> usize {
        let operations = usize::from(limits.operations());
        let queues = 3 * operations * size_of::<OpKey>();
        ConnOps::<T>::bytes(operations) + Posts::bytes(limits.sends.max(1).into()) + queues
    }

    /// Returns whether [`Conn::queue`] takes a message now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.own < self.limits.messages
    }

    /// Queues a message that must have ended by `deadline_ns`.
    ///
    /// # Errors
    /// The item, if `Limits::messages` own messages are queued or under way.
    pub fn queue(&mut self, own: Own, deadline_ns: u64, item: T) -> Result<(), T> {
        if self.own >= self.limits.messages {
            return Err(item);
        }
        let (kind, length) = match own {
            Own::Immediate => (MessageKind::Immediate, 0),
            Own::Put { length } => (MessageKind::PutReq, length),
            Own::Get { length } => (MessageKind::GetReq, length),
        };
        let Some(key) = self.table.begin(OpState::Queued(kind), true) else { return Err(item) };
        self.own += 1;
        if let Some(slot) = self.table.find(key) {
            slot.sends = 1;
            slot.length = length;
            slot.item = Some(item);
        }
        self.set_deadline(key, deadline_ns);
        if kind == MessageKind::Immediate {
            self.ready.push_back(key);
        } else {
            self.waiting.push_back(key);
            self.promote();
        }
        Ok(())
    }

    /// Removes and returns an own message that is queued and of which nothing has been posted.
    pub fn withdraw(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Option<T> {
        self.take_queued(|slot| slot.item.as_ref().is_some_and(&mut wanted))
    }

    /// Removes and returns an own message of which nothing has been posted and whose deadline has
    /// passed.
    pub fn take_overdue(&mut self, now_ns: u64) -> Option<T> {
        self.take_queued(|slot| slot.deadline_ns <= now_ns)
    }

    /// Extends the deadline of overdue PUTs that the peer has not answered to `until_ns`: the peer
    /// lives, and may hold PUTs back indefinitely (lnet-semantics 11).
    pub fn wait_for_answers(&mut self, now_ns: u64, until_ns: u64) {
        let is_late =
            |slot: &table::OpSlot<T>| slot.is_unanswered(MessageKind::PutReq) && slot.deadline_ns <= now_ns;
        self.table.live_mut().filter(|slot| is_late(slot)).for_each(|slot| slot.deadline_ns = until_ns);
        self.earliest_ns = self.earliest_ns.min(until_ns);
    }

    /// Gives up an own PUT that the peer has not answered, and returns its item: no payload has
    /// been sent. If the peer requests the payload after this, it gets PUT_DONE with an error.
    pub fn abandon(&mut self) -> Option<T> {
        let slot = self.table.live_mut().find(|slot| slot.is_unanswered(MessageKind::PutReq))?;
        slot.deadline_ns = u64::MAX;
        slot.item.take()
    }

    /// Returns whether an own GET waits for its answer. Until the answer arrives, the peer may
    /// write into the GET's memory.
    #[must_use]
    pub fn awaits_data(&self) -> bool {
        self.table.live().any(|slot| slot.is_unanswered(MessageKind::GetReq))
    }

    fn take_queued(&mut self, mut wanted: impl FnMut(&table::OpSlot<T>) -> bool) -> Option<T> {
        let Conn { table, waiting, ready, credits, .. } = self;
        let mut is_wanted = |key: &OpKey| table.find(*key).is_some_and(|slot| wanted(slot));
        let key = if let Some(at) = waiting.iter().position(&mut is_wanted) {
            waiting.remove(at)?
        } else {
            let at = ready.iter().position(&mut is_wanted)?;
            let key = ready.remove(at)?;
            if table.find(key)?.state != OpState::Queued(MessageKind::Immediate) {
                credits.unreserve();
            }
            key
        };
        self.promote();
        self.forget(key)
    }

    /// Makes [`Conn::next`] return a NOOP if it has no other message, as a sign to the peer that
    /// this side lives. [`Conn::next`] returns at most one such NOOP until the next message is
    /// received, as a peer whose program has stopped has no buffers for more.
    pub fn send_sign_of_life(&mut self) {
        self.shows_life = true;
    }

    /// Returns the next message to emit, if the rules allow one.
    pub fn next(&mut self, now_ns: u64) -> Option<Emit<'_, T>> {
        if let Some(&key) = self.answers.front() {
            let works = self.table.find(key)?.works;
            self.posts.fits(works).then(|| self.answers.pop_front())?;
            return self.emit(key, now_ns);
        }
        if !self.posts.fits(1) {
            return None;
        }
        if self.credits.has_credit()
            && let Some(key) = self.ready.pop_front()
        {
            self.credits.use_credit();
            return self.emit(key, now_ns);
        }
        self.noop_is_due(now_ns).then(|| self.emit_noop(now_ns))?
    }

    /// Handles the successful completion of the posted send `id`. A send that failed ends the
    /// connection.
    ///
    /// # Errors
    /// [`ConnError::UnknownSend`].
    pub fn completed(&mut self, id: u64) -> Result<Option<EndedOp<T>>, ConnError> {
        let Some(key) = self.posts.completed(id)?.key else {
            self.noops = self.noops.saturating_sub(1);
            return Ok(None);
        };
        if let Some(slot) = self.table.find(key) {
            slot.sends = slot.sends.saturating_sub(1);
            self.steps += u64::from(slot.own);
        }
        Ok(self.settle(key))
    }

    /// Handles a received message whose head matches this connection
    /// ([`lnet_proto::ib::Link::check`]).
    ///
    /// # Errors
    /// The peer's violation of the protocol: the connection must be closed.
    pub fn received(&mut self, message: &Message<'_>) -> Result<(Receipt, ReceivedMessage<T>), ConnError> {
        let kind = message.body.kind();
        self.credits.returned(message.head.credits)?;
        self.noops_since_received = 0;
        match &message.body {
            Body::ConnReq(_) | Body::ConnAck(_) => Err(ConnError::Unexpected { kind }),
            Body::Noop => Ok((Receipt::Plain, ReceivedMessage::Nothing)),
            Body::Immediate { .. } => {
                self.credits.used_by_peer(kind)?;
                Ok((Receipt::Credit, ReceivedMessage::Immediate))
            }
            Body::PutReq { header, cookie } => {
                let key = self.begin_request(kind, *cookie, header.payload_length)?;
                Ok((Receipt::PutReq(key), ReceivedMessage::PutReq(key)))
            }
            Body::GetReq { cookie, descriptor, .. } => {
                let key = self.begin_request(kind, *cookie, saturating(descriptor.total_len()))?;
                Ok((Receipt::Credit, ReceivedMessage::GetReq(key)))
            }
            Body::PutAck { source, sink, descriptor } => {
                let received = self.wanted(*source, *sink, descriptor.total_len())?;
                Ok((Receipt::Answer, received))
            }
            Body::PutNak(done) => {
                self.ended(kind, done, OpState::Asked(MessageKind::PutReq), Receipt::Answer)
            }
            Body::GetDone(done) => {
                self.ended(kind, done, OpState::Asked(MessageKind::GetReq), Receipt::Answer)
            }
            Body::PutDone(done) => self.ended(kind, done, OpState::Sinking, Receipt::Credit),
        }
    }

    /// Records that the buffer of a received message has been posted again.
    pub fn reposted(&mut self, receipt: Receipt) {
        match receipt {
            Receipt::Plain => {}
            Receipt::Credit => self.credits.owe(),
            Receipt::Answer => {
                self.credits.unreserve();
                self.promote();
            }
            Receipt::PutReq(key) => self.reposted_request(key),
        }
    }

    /// Keeps `item` with a request of the peer's that is not answered yet.
    ///
    /// # Errors
    /// The item, if the request has ended, is answered, or has an item.
    pub fn attach(&mut self, key: OpKey, item: T) -> Result<(), T> {
        match self.table.find(key) {
            Some(slot) if slot.item.is_none() && matches!(slot.state, OpState::Asking(_)) => {
                slot.item = Some(item);
                Ok(())
            }
            _ => Err(item),
        }
    }

    /// Returns the item of an operation.
    pub fn item(&mut self, key: OpKey) -> Option<&mut T> {
        self.table.find(key)?.item.as_mut()
    }

    /// Removes and returns the item of a request that is not answered yet.
    pub fn detach(&mut self, key: OpKey) -> Option<T> {
        let slot = self.table.find(key)?;
        matches!(slot.state, OpState::Asking(_)).then(|| slot.item.take())?
    }

    /// Answers a PUT_REQ with PUT_ACK: the peer is to write `length` bytes to the addresses in the
    /// item's descriptor.
    ///
    /// # Errors
    /// [`ConnError::Gone`].
    pub fn ack(&mut self, put: OpKey, length: u32, deadline_ns: u64) -> Result<(), ConnError> {
        let slot = self.asking(put, MessageKind::PutReq)?;
        slot.state = OpState::Acking;
        slot.reposted = true;
        slot.length = length;
        self.answer(put, 1, deadline_ns);
        Ok(())
    }

    /// Answers a PUT_REQ with PUT_NAK: nothing is wanted, or the payload cannot be taken. Returns
    /// the item, if the operation has one, as the connection does not need it any more.
    ///
    /// # Errors
    /// [`ConnError::Gone`].
    pub fn nak(
        &mut self,
        put: OpKey,
        reason: Result<(), Errno>,
        deadline_ns: u64,
    ) -> Result<Option<T>, ConnError> {
        let slot = self.asking(put, MessageKind::PutReq)?;
        slot.state = OpState::Replying(MessageKind::PutNak);
        slot.outcome = reason.map(|()| 0);
        let (item, reposted) = (slot.item.take(), slot.reposted);
        if reposted {
            self.credits.owe();
        }
        self.answer(put, 1, deadline_ns);
        Ok(item)
    }

    /// Ends a transfer of which this side is the source: an own PUT that is wanted, or a GET_REQ.
    /// `result` is the number of bytes written, by `writes` work requests that the driver has
    /// prepared and posts before the DONE; or the error for which nothing is written.
    ///
    /// # Errors
    /// [`ConnError::Gone`], [`ConnError::Chain`], and [`ConnError::Status`] for more bytes than the
    /// peer has requested.
    pub fn done(
        &mut self,
        key: OpKey,
        result: Result<u32, Errno>,
        writes: u32,
        deadline_ns: u64,
    ) -> Result<(), ConnError> {
        let (works, limit) = (writes.saturating_add(1), self.posts.room_max());
        let slot = self.table.find(key).ok_or(key.gone())?;
        let kind = match slot.state {
            OpState::Acked => MessageKind::PutDone,
            OpState::Asking(MessageKind::GetReq) => MessageKind::GetDone,
            _ => return Err(key.gone()),
        };
        if works > limit {
            return Err(ConnError::Chain { works, limit });
        }
        if let Ok(bytes) = result
            && bytes > slot.length.min(i32::MAX as u32)
        {
            return Err(ConnError::Status { kind, status: status(result), limit: slot.length });
        }
        slot.state = OpState::Replying(kind);
        slot.outcome = result;
        self.answer(key, works, deadline_ns);
        Ok(())
    }

    /// Returns the time at which to call [`Conn::late`] or [`Conn::next`] again even without an
    /// event. It may be too early, never too late.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.earliest_ns.min(self.keepalive_at_ns())
    }

    /// Returns the state of an operation that has not ended by its deadline, if there is one: the
    /// connection must then be closed (lnet-wire 38).
    pub fn late(&mut self, now_ns: u64) -> Option<Late> {
        if now_ns < self.earliest_ns {
            return None;
        }
        let latest = self.table.live().min_by_key(|slot| slot.deadline_ns);
        self.earliest_ns = latest.map_or(u64::MAX, |slot| slot.deadline_ns);
        let slot = latest.filter(|slot| slot.deadline_ns <= now_ns)?;
        Some(match slot.state {
            OpState::Ending => Late::Posted,
            OpState::Queued(_) | OpState::Acking | OpState::Replying(_) => Late::Queued,
            OpState::Asked(_) | OpState::Sinking if slot.sends > 0 => Late::Posted,
            OpState::Asked(_) | OpState::Sinking => Late::Unanswered,
            OpState::Acked | OpState::Asking(_) => Late::Unprepared,
        })
    }

    /// Returns the number of steps of own operations, which grows with each step; `None` if no own
    /// operation waits for the peer or its device. The peer's requests and their answers do not
    /// count as progress.
    #[must_use]
    pub fn progress(&self) -> Option<u64> {
        // An `Acked` operation waits for this side, not for the peer; an operation without an item
        // has been abandoned.
        let is_awaited =
            |slot: &table::OpSlot<T>| slot.own && slot.state != OpState::Acked && slot.item.is_some();
        self.table.live().any(is_awaited).then_some(self.steps)
    }

    /// Sets a new deadline: the peer has answered, and this side has until `deadline_ns` to
    /// continue.
    pub fn renew(&mut self, key: OpKey, deadline_ns: u64) {
        self.set_deadline(key, deadline_ns);
    }

    /// Returns the number of messages that [`Conn::next`] has not returned yet, except requests
    /// beyond the number of transfers that may be under way.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.answers.len() + self.ready.len()
    }

    /// Returns the number of sends that are posted and have not completed.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.posts.count()
    }

    /// Returns the connection's counts.
    #[must_use]
    pub fn counts(&self) -> ConnCounts {
        let (credits, reserved, outstanding) = self.credits.counts();
        ConnCounts {
            credits,
            reserved,
            outstanding,
            queued: self.queued() + self.waiting.len(),
            posted: self.posted(),
            operations: self.table.live().count(),
            own: self.own.into(),
        }
    }

    /// Ends the connection and returns all items: each with ECONNABORTED if no message of its
    /// operation was ever posted, otherwise with EIO. The peer may write into memory that was
    /// described to it until the queue pair is destroyed.
    pub fn close(self) -> impl Iterator<Item = EndedOp<T>> {
        self.table.into_items()
    }
}
