//! One established connection without verbs, clock or memory: who may send what when, and which operation each message
//! belongs to (lnet-wire 35 and 36, version 2).
//!
//! [`Conn`] keeps the credits of both sides, the three queues of messages, and a table of the operations under way, each with
//! what its driver keeps for it: a `T`, which the driver gets back exactly once. It says what is to be emitted
//! ([`Conn::next`]) and what a received message means ([`Conn::received`]); the driver emits, posts, receives and writes.
//! All tables are made with the connection; nothing is allocated afterwards.
//!
//! | operation | messages | its item comes back |
//! | --- | --- | --- |
//! | [`Own::Immediate`] | IMMEDIATE | when the send has completed |
//! | [`Own::Put`] | PUT_REQ; then PUT_NAK, or PUT_ACK ([`Received::Wanted`], [`Conn::done`]), WRITEs and PUT_DONE | when all sends have completed and the answer has come |
//! | [`Own::Get`] | GET_REQ; then GET_DONE | when the send has completed and the answer has come |
//! | [`Received::PutReq`] | PUT_ACK ([`Conn::ack`]); then PUT_DONE. Or PUT_NAK ([`Conn::nak`]) | when the send has completed and PUT_DONE has come; from [`Conn::nak`] at once |
//! | [`Received::GetReq`] | WRITEs and GET_DONE ([`Conn::done`]) | when the send has completed |
//!
//! # How a driver uses it
//! All under the lock under which it posts:
//!
//! ```
//! use lnet_nid::{MatchBits, ProcessId};
//! use lnet_o2iblnd::conn::{Conn, Limits, Own, Receipt, Received, What};
//! use lnet_proto::ib::{Body, End, Link, MESSAGE_MAX, Message, Version};
//! use lnet_proto::{Header, WireHandle};
//!
//! let (a, b) = (End { nid: "10.0.0.1@o2ib".parse()?, stamp: 1 }, End { nid: "10.0.0.2@o2ib".parse()?, stamp: 2 });
//! let link = Link { version: Version::V2, local: a, peer: b };
//! let limits = Limits { depth: 8, high_water: 4, sends: 8, works: 2080, messages: 256, keepalive_ns: u64::MAX };
//! let [mut alice, mut bob] = [Conn::new(&limits, 0), Conn::new(&limits, 0)];
//!
//! // A message is queued, with what belongs to it ...
//! alice.queue(Own::Immediate, 50_000_000_000, "the ACK").expect("there is room");
//!
//! // ... and goes out when the rules allow: emit it into the transmit buffer of `id.place()`, post it with `id.bits()`.
//! let mut wire = [0; MESSAGE_MAX];
//! let emit = alice.next(0).expect("it has a credit");
//! assert_eq!((emit.what, emit.item.copied()), (What::Immediate, Some("the ACK")));
//! # let body = lnet_proto::Body::Ack { dst_wmd: WireHandle::NONE, match_bits: MatchBits(1), mlength: 0 };
//! # let header = Header { dest: ProcessId::lnet(b.nid), src: ProcessId::lnet(a.nid), payload_length: 0, body };
//! let message = Message { head: link.head(emit.credits), body: Body::Immediate { header, payload: &[] } };
//! let (id, length) = (emit.id, message.emit(&mut wire)?);
//!
//! // The other side receives it, takes what is in it, posts the buffer again and says so.
//! let (receipt, received) = bob.received(&Message::parse(&wire[..length])?)?;
//! assert!(matches!((&receipt, received), (Receipt::Credit, Received::Immediate)));
//! bob.reposted(receipt);
//!
//! // When the send has completed, the message has ended.
//! let ended = alice.completed(id.bits())?.expect("it has ended");
//! assert_eq!((ended.item, ended.outcome), ("the ACK", Ok(0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A receive buffer may be kept as long as something in it is needed: a payload that a lazy portal holds, the descriptor of a
//! PUT_ACK or GET_REQ until the writes are posted. The receipt is kept with it; the peer has that credit, or this side that
//! transfer, only when the buffer is posted again. The buffer of a PUT_REQ is not needed: it is to be posted again before
//! the request is answered.

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
pub use table::Key;
use table::{State, Table};
pub use types::{Counts, Emit, Ended, Late, Limits, Own, Receipt, Received, What};

/// One established connection. See the [module](self).
#[derive(Debug)]
pub struct Conn<T> {
    limits: Limits,
    credits: Credits,
    table: Table<T>,
    posts: Posts,
    /// Messages that need no credit.
    answers: VecDeque<Key>,
    /// Messages that need a credit.
    ready: VecDeque<Key>,
    /// Requests for transfers beyond those that there may be.
    waiting: VecDeque<Key>,
    /// NOOPs that are posted.
    noops: u8,
    /// A NOOP is wanted, whatever the rules say, unless something else is sent.
    shows_life: bool,
    /// NOOPs that were sent since something last came. A peer that has stopped has buffers for two: one may show it that this side
    /// lives, the other one is for credits, without which it may have nothing to say.
    unheard: u8,
    own: u16,
    /// Counts the steps of own operations: messages posted, sends completed, answers received.
    steps: u64,
    last_sent_ns: u64,
    /// No deadline is before this one.
    earliest_ns: u64,
}

impl<T> Conn<T> {
    /// A connection that stands since now.
    #[must_use]
    pub fn new(limits: &Limits, now_ns: u64) -> Conn<T> {
        let size = limits.operations();
        let queue = || VecDeque::with_capacity(size.into());
        Conn {
            limits: *limits,
            credits: Credits::new(limits.depth, limits.high_water),
            table: Table::new(size),
            posts: Posts::new(limits.sends, limits.works),
            answers: queue(),
            ready: queue(),
            waiting: queue(),
            noops: 0,
            shows_life: false,
            unheard: 0,
            own: 0,
            steps: 0,
            last_sent_ns: now_ns,
            earliest_ns: u64::MAX,
        }
    }

    /// The bytes of its tables and queues.
    pub(crate) fn table_bytes(limits: &Limits) -> usize {
        let operations = usize::from(limits.operations());
        let queues = 3 * operations * size_of::<Key>();
        Table::<T>::bytes(operations) + Posts::bytes(limits.sends.max(1).into()) + queues
    }

    /// Whether [`Conn::queue`] takes a message now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.own < self.limits.messages
    }

    /// Queues a message that must have ended by `deadline_ns`.
    ///
    /// # Errors
    /// The item, if there are as many messages as there may be.
    pub fn queue(&mut self, own: Own, deadline_ns: u64, item: T) -> Result<(), T> {
        if self.own >= self.limits.messages {
            return Err(item);
        }
        let (kind, length) = match own {
            Own::Immediate => (MessageKind::Immediate, 0),
            Own::Put { length } => (MessageKind::PutReq, length),
            Own::Get { length } => (MessageKind::GetReq, length),
        };
        let Some(key) = self.table.begin(State::Queued(kind), true) else { return Err(item) };
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

    /// Takes back an own message of which nothing has left.
    pub fn withdraw(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Option<T> {
        self.take_queued(|slot| slot.item.as_ref().is_some_and(&mut wanted))
    }

    /// Takes back an own message of which nothing has left, and which should have ended by then.
    pub fn take_overdue(&mut self, now_ns: u64) -> Option<T> {
        self.take_queued(|slot| slot.deadline_ns <= now_ns)
    }

    /// The peer lives, and may hold PUTs back for as long as it takes (lnet-semantics 11): those that it has not answered in time have
    /// until then.
    pub fn wait_for_answers(&mut self, now_ns: u64, until_ns: u64) {
        let is_late =
            |slot: &table::Slot<T>| slot.is_unanswered(MessageKind::PutReq) && slot.deadline_ns <= now_ns;
        self.table.live_mut().filter(|slot| is_late(slot)).for_each(|slot| slot.deadline_ns = until_ns);
        self.earliest_ns = self.earliest_ns.min(until_ns);
    }

    /// Gives up an own PUT that the peer has not answered: nothing of its payload has left. If it is wanted after all, the peer is told that it
    /// does not come.
    pub fn abandon(&mut self) -> Option<T> {
        let slot = self.table.live_mut().find(|slot| slot.is_unanswered(MessageKind::PutReq))?;
        slot.deadline_ns = u64::MAX;
        slot.item.take()
    }

    /// Whether an own GET waits for its answer: until then the peer may write into its memory.
    #[must_use]
    pub fn awaits_data(&self) -> bool {
        self.table.live().any(|slot| slot.is_unanswered(MessageKind::GetReq))
    }

    fn take_queued(&mut self, mut wanted: impl FnMut(&table::Slot<T>) -> bool) -> Option<T> {
        let Conn { table, waiting, ready, credits, .. } = self;
        let mut is_wanted = |key: &Key| table.find(*key).is_some_and(|slot| wanted(slot));
        let key = if let Some(at) = waiting.iter().position(&mut is_wanted) {
            waiting.remove(at)?
        } else {
            let at = ready.iter().position(&mut is_wanted)?;
            let key = ready.remove(at)?;
            if table.find(key)?.state != State::Queued(MessageKind::Immediate) {
                credits.unreserve();
            }
            key
        };
        self.promote();
        self.forget(key)
    }

    /// The peer is to see that this side lives: [`Conn::next`] gives a NOOP if it gives nothing else, unless it has given one since the peer
    /// was last heard: a peer that has stopped has no buffers for more.
    pub fn show_life(&mut self) {
        self.shows_life = true;
    }

    /// The next message to emit, if the rules allow one.
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

    /// A posted send has completed well, of this id. One that failed is the end of the connection.
    ///
    /// # Errors
    /// [`ConnError::UnknownSend`].
    pub fn completed(&mut self, id: u64) -> Result<Option<Ended<T>>, ConnError> {
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

    /// A message has come; its head is that of this connection ([`lnet_proto::ib::Link::check`]).
    ///
    /// # Errors
    /// What the peer did wrong: the connection is to be closed.
    pub fn received(&mut self, message: &Message<'_>) -> Result<(Receipt, Received<T>), ConnError> {
        let kind = message.body.kind();
        self.credits.returned(message.head.credits)?;
        self.unheard = 0;
        match &message.body {
            Body::ConnReq(_) | Body::ConnAck(_) => Err(ConnError::Unexpected { kind }),
            Body::Noop => Ok((Receipt::Plain, Received::Nothing)),
            Body::Immediate { .. } => {
                self.credits.used_by_peer(kind)?;
                Ok((Receipt::Credit, Received::Immediate))
            }
            Body::PutReq { header, cookie } => {
                let key = self.asked(kind, *cookie, header.payload_length)?;
                Ok((Receipt::PutReq(key), Received::PutReq(key)))
            }
            Body::GetReq { cookie, descriptor, .. } => {
                let key = self.asked(kind, *cookie, saturating(descriptor.total_len()))?;
                Ok((Receipt::Credit, Received::GetReq(key)))
            }
            Body::PutAck { source, sink, descriptor } => {
                let received = self.wanted(*source, *sink, descriptor.total_len())?;
                Ok((Receipt::Answer, received))
            }
            Body::PutNak(done) => self.ended(kind, done, State::Asked(MessageKind::PutReq), Receipt::Answer),
            Body::GetDone(done) => self.ended(kind, done, State::Asked(MessageKind::GetReq), Receipt::Answer),
            Body::PutDone(done) => self.ended(kind, done, State::Sinking, Receipt::Credit),
        }
    }

    /// The buffer of a received message is posted again.
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

    /// Keeps `item` with a request that is not answered yet.
    ///
    /// # Errors
    /// The item, if the request is gone or answered, or has one.
    pub fn attach(&mut self, key: Key, item: T) -> Result<(), T> {
        match self.table.find(key) {
            Some(slot) if slot.item.is_none() && matches!(slot.state, State::Asking(_)) => {
                slot.item = Some(item);
                Ok(())
            }
            _ => Err(item),
        }
    }

    /// What is kept with an operation.
    pub fn item(&mut self, key: Key) -> Option<&mut T> {
        self.table.find(key)?.item.as_mut()
    }

    /// Takes back what is kept with a request that is not answered yet.
    pub fn detach(&mut self, key: Key) -> Option<T> {
        let slot = self.table.find(key)?;
        matches!(slot.state, State::Asking(_)).then(|| slot.item.take())?
    }

    /// Answers a PUT_REQ: `length` bytes are wanted, where the item's descriptor says.
    ///
    /// # Errors
    /// [`ConnError::Gone`].
    pub fn ack(&mut self, put: Key, length: u32, deadline_ns: u64) -> Result<(), ConnError> {
        let slot = self.asking(put, MessageKind::PutReq)?;
        slot.state = State::Acking;
        slot.reposted = true;
        slot.length = length;
        self.answer(put, 1, deadline_ns);
        Ok(())
    }

    /// Answers a PUT_REQ: nothing is wanted, or it cannot be taken. Gives back the item, if there is one: nothing of it is
    /// needed any more.
    ///
    /// # Errors
    /// [`ConnError::Gone`].
    pub fn nak(
        &mut self,
        put: Key,
        reason: Result<(), Errno>,
        deadline_ns: u64,
    ) -> Result<Option<T>, ConnError> {
        let slot = self.asking(put, MessageKind::PutReq)?;
        slot.state = State::Replying(MessageKind::PutNak);
        slot.outcome = reason.map(|()| 0);
        let (item, reposted) = (slot.item.take(), slot.reposted);
        if reposted {
            self.credits.owe();
        }
        self.answer(put, 1, deadline_ns);
        Ok(item)
    }

    /// Ends a transfer whose source this side is: an own PUT that is wanted, or a GET_REQ. So many bytes are written by so
    /// many work requests (prepared, to be posted before the DONE), or none because of an error.
    ///
    /// # Errors
    /// [`ConnError::Gone`], [`ConnError::Chain`], and [`ConnError::Status`] for more bytes than were asked for.
    pub fn done(
        &mut self,
        key: Key,
        result: Result<u32, Errno>,
        writes: u32,
        deadline_ns: u64,
    ) -> Result<(), ConnError> {
        let (works, limit) = (writes.saturating_add(1), self.posts.room_max());
        let slot = self.table.find(key).ok_or(key.gone())?;
        let kind = match slot.state {
            State::Wanted => MessageKind::PutDone,
            State::Asking(MessageKind::GetReq) => MessageKind::GetDone,
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
        slot.state = State::Replying(kind);
        slot.outcome = result;
        self.answer(key, works, deadline_ns);
        Ok(())
    }

    /// When [`Conn::late`] or [`Conn::next`] is to be asked again even if nothing happens. It may be too early, never too late.
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.earliest_ns.min(self.keepalive_at_ns())
    }

    /// Whether an operation has not ended by its deadline, and how far it is: the connection is then to be closed
    /// (lnet-wire 38).
    pub fn late(&mut self, now_ns: u64) -> Option<Late> {
        if now_ns < self.earliest_ns {
            return None;
        }
        let latest = self.table.live().min_by_key(|slot| slot.deadline_ns);
        self.earliest_ns = latest.map_or(u64::MAX, |slot| slot.deadline_ns);
        let slot = latest.filter(|slot| slot.deadline_ns <= now_ns)?;
        Some(match slot.state {
            State::Ending => Late::Posted,
            State::Queued(_) | State::Acking | State::Replying(_) => Late::Queued,
            State::Asked(_) | State::Sinking if slot.sends > 0 => Late::Posted,
            State::Asked(_) | State::Sinking => Late::Unanswered,
            State::Wanted | State::Asking(_) => Late::Unprepared,
        })
    }

    /// Progress of the own operations that wait for the peer or its device, if there are any: a number that grows with each step
    /// of an own operation. What the peer asks for, and is answered, is no progress.
    #[must_use]
    pub fn progress(&self) -> Option<u64> {
        // In this state an operation waits for this side; one without an item has been abandoned.
        let is_awaited =
            |slot: &table::Slot<T>| slot.own && slot.state != State::Wanted && slot.item.is_some();
        self.table.live().any(is_awaited).then_some(self.steps)
    }

    /// The peer has answered, and this side has until then for what it is to do.
    pub fn renew(&mut self, key: Key, deadline_ns: u64) {
        self.set_deadline(key, deadline_ns);
    }

    /// Messages that [`Conn::next`] has not given yet, but for requests for transfers beyond those that there may be.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.answers.len() + self.ready.len()
    }

    /// Sends that are posted, and have not completed.
    #[must_use]
    pub fn posted(&self) -> usize {
        self.posts.count()
    }

    /// What there is to see.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (credits, reserved, outstanding) = self.credits.counts();
        Counts {
            credits,
            reserved,
            outstanding,
            queued: self.queued() + self.waiting.len(),
            posted: self.posted(),
            operations: self.table.live().count(),
            own: self.own.into(),
        }
    }

    /// The connection is over: what was kept for all operations, each with ECONNABORTED if nothing of it was ever posted, and
    /// EIO otherwise. The peer may write into memory that it was told of until the queue pair is destroyed.
    pub fn close(self) -> impl Iterator<Item = Ended<T>> {
        self.table.into_items()
    }
}
