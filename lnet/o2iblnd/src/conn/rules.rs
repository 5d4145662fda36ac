//! The private rules of [`Conn`].

use lnet_api::Errno;
use lnet_proto::ib::{Cookie, MessageKind, TransferStatus};

use super::credits::NOOPS_MAX;
use super::posts::Post;
use super::table::{OpSlot, OpState};
use super::{Conn, ConnError, Emit, EmitKind, EndedOp, OpKey, Receipt, ReceivedMessage};

impl<T> Conn<T> {
    /// Moves waiting requests to the end of the credit queue, as far as transfers can be reserved.
    pub(super) fn promote(&mut self) {
        while !self.waiting.is_empty() && self.credits.reserve() {
            self.ready.extend(self.waiting.pop_front());
        }
    }

    /// Emits the next message of an operation; the caller has checked room and credit.
    pub(super) fn emit(&mut self, key: OpKey, now_ns: u64) -> Option<Emit<'_, T>> {
        let slot = self.table.find(key)?;
        let done = TransferStatus { cookie: slot.peer, status: status(slot.outcome) };
        let (kind, state) = match slot.state {
            OpState::Queued(MessageKind::PutReq) => {
                (EmitKind::PutReq { cookie: key.cookie() }, OpState::Asked(MessageKind::PutReq))
            }
            OpState::Queued(MessageKind::GetReq) => {
                (EmitKind::GetReq { cookie: key.cookie() }, OpState::Asked(MessageKind::GetReq))
            }
            OpState::Acking => (EmitKind::PutAck { source: slot.peer, sink: key.cookie() }, OpState::Sinking),
            OpState::Replying(MessageKind::PutNak) => (EmitKind::PutNak(done), OpState::Ending),
            OpState::Replying(MessageKind::GetDone) => (EmitKind::GetDone(done), OpState::Ending),
            OpState::Replying(_) => (EmitKind::PutDone(done), OpState::Ending),
            _ => (EmitKind::Immediate, OpState::Ending),
        };
        slot.state = state;
        slot.was_posted = true;
        self.steps += u64::from(slot.own);
        if matches!(kind, EmitKind::PutAck { .. } | EmitKind::PutNak(_) | EmitKind::GetDone(_)) {
            self.credits.answered();
        }
        self.last_sent_ns = now_ns;
        self.shows_life = false;
        let credits = self.credits.give();
        let id = self.posts.post(Post { key: Some(key), works: slot.works })?;
        Some(Emit { id, credits, kind, item: slot.item.as_mut() })
    }

    /// Returns whether a NOOP is due (lnet-wire 36); the caller must have checked that no other
    /// message can be sent.
    pub(super) fn noop_is_due(&self, now_ns: u64) -> bool {
        let sign = self.noops_since_received == 0 && (self.shows_life || now_ns >= self.keepalive_at_ns());
        let credits = self.noops_since_received < NOOPS_MAX && self.credits.wants_noop();
        self.noops < NOOPS_MAX && (sign || credits)
    }

    /// Returns the time at which a NOOP is due because nothing was sent.
    pub(super) fn keepalive_at_ns(&self) -> u64 {
        if self.noops_since_received == 0 {
            self.last_sent_ns.saturating_add(self.limits.keepalive_ns)
        } else {
            u64::MAX
        }
    }

    pub(super) fn emit_noop(&mut self, now_ns: u64) -> Option<Emit<'_, T>> {
        let id = self.posts.post(Post { key: None, works: 1 })?;
        self.noops += 1;
        self.noops_since_received = self.noops_since_received.saturating_add(1);
        self.last_sent_ns = now_ns;
        self.shows_life = false;
        self.credits.note_noop();
        Some(Emit { id, credits: self.credits.give(), kind: EmitKind::Noop, item: None })
    }

    /// Handles a PUT_REQ or GET_REQ: begins an operation of the peer.
    pub(super) fn begin_request(
        &mut self,
        kind: MessageKind,
        cookie: Cookie,
        length: u32,
    ) -> Result<OpKey, ConnError> {
        self.credits.used_by_peer(kind)?;
        self.credits.begun_by_peer(kind)?;
        // The error is a safeguard: the table has room for all transfers that the credits allow.
        let full = ConnError::Transfers { kind, limit: u16::from(self.limits.depth) };
        let key = self.table.begin(OpState::Asking(kind), false).ok_or(full)?;
        if let Some(slot) = self.table.find(key) {
            slot.peer = cookie;
            slot.length = length;
            slot.reposted = kind != MessageKind::PutReq;
        }
        Ok(key)
    }

    /// Handles a PUT_ACK: `length` is the number of bytes that the peer's descriptor covers. If the
    /// PUT is shorter, or has been abandoned, nothing is written, and PUT_DONE has an error
    /// (lnet-wire 35.2).
    pub(super) fn wanted(
        &mut self,
        source: Cookie,
        sink: Cookie,
        length: u64,
    ) -> Result<ReceivedMessage<T>, ConnError> {
        let state = OpState::Asked(MessageKind::PutReq);
        let (put, slot) = self.table.named(MessageKind::PutAck, source, state)?;
        slot.peer = sink;
        self.steps += 1;
        let refusal = if slot.item.is_none() { Some(Errno::ETIMEDOUT) } else { None };
        let refusal = refusal.or((length > slot.length.into()).then_some(Errno::EPROTO));
        if let Some(errno) = refusal {
            slot.state = OpState::Replying(MessageKind::PutDone);
            slot.outcome = Err(errno);
            let deadline_ns = slot.deadline_ns;
            self.answer(put, 1, deadline_ns);
            return Ok(ReceivedMessage::Nothing);
        }
        slot.state = OpState::Acked;
        slot.length = saturating(length);
        Ok(ReceivedMessage::PutAck { put, length: slot.length })
    }

    /// Handles a PUT_NAK, PUT_DONE or GET_DONE.
    pub(super) fn ended(
        &mut self,
        kind: MessageKind,
        done: &TransferStatus,
        state: OpState,
        receipt: Receipt,
    ) -> Result<(Receipt, ReceivedMessage<T>), ConnError> {
        let (key, slot) = self.table.named(kind, done.cookie, state)?;
        slot.outcome = outcome(kind, done.status, slot.length)?;
        slot.state = OpState::Ending;
        self.steps += u64::from(slot.own);
        Ok((receipt, self.settle(key).map_or(ReceivedMessage::Nothing, ReceivedMessage::Ended)))
    }

    /// Returns the slot of a request of this kind that waits for an answer.
    pub(super) fn asking(&mut self, key: OpKey, kind: MessageKind) -> Result<&mut OpSlot<T>, ConnError> {
        let slot = self.table.find(key).filter(|slot| slot.state == OpState::Asking(kind));
        slot.ok_or(key.gone())
    }

    /// Queues a message that needs no credit.
    pub(super) fn answer(&mut self, key: OpKey, works: u32, deadline_ns: u64) {
        if let Some(slot) = self.table.find(key) {
            slot.sends += 1;
            slot.works = works;
        }
        self.set_deadline(key, deadline_ns);
        self.answers.push_back(key);
    }

    pub(super) fn reposted_request(&mut self, key: OpKey) {
        let Some(slot) = self.table.find(key) else { return };
        if std::mem::replace(&mut slot.reposted, true) {
            return;
        }
        if !matches!(slot.state, OpState::Asking(_)) {
            // The request was refused before its buffer was posted again. It has no item to return.
            self.credits.owe();
            self.settle(key);
        }
    }

    pub(super) fn set_deadline(&mut self, key: OpKey, deadline_ns: u64) {
        if let Some(slot) = self.table.find(key) {
            slot.deadline_ns = deadline_ns;
            self.earliest_ns = self.earliest_ns.min(deadline_ns);
        }
    }

    /// Ends an operation that has nothing more to send or receive.
    pub(super) fn settle(&mut self, key: OpKey) -> Option<EndedOp<T>> {
        let slot = self.table.find(key)?;
        if slot.state != OpState::Ending || slot.sends > 0 || !slot.reposted {
            return None;
        }
        let outcome = slot.outcome;
        self.forget(key).map(|item| EndedOp { item, outcome })
    }

    pub(super) fn forget(&mut self, key: OpKey) -> Option<T> {
        let slot = self.table.find(key)?;
        self.own -= u16::from(slot.own);
        self.table.free(key)
    }
}

/// Returns the meaning of a received message's status, where at most `limit` bytes were requested.
///
/// A GET_DONE may count fewer bytes; the driver decides whether these have been written
/// (`replies`).
///
/// A PUT_DONE whose status is not negative means that everything is written; the status is the
/// number of bytes, or 0 (lnet-wire 32).
fn outcome(kind: MessageKind, status: i32, limit: u32) -> Result<Result<u32, Errno>, ConnError> {
    let wrong = ConnError::Status { kind, status, limit };
    let Ok(bytes) = u32::try_from(status) else { return Ok(Err(errno(status))) };
    match kind {
        MessageKind::PutNak if bytes == 0 => Ok(Ok(0)),
        MessageKind::PutDone if bytes == 0 || bytes == limit => Ok(Ok(limit)),
        MessageKind::GetDone if bytes <= limit => Ok(Ok(bytes)),
        _ => Err(wrong),
    }
}

/// Returns the errno of a negative status; EIO for one that this system does not know.
fn errno(status: i32) -> Errno {
    match status.checked_neg().map(Errno::from_raw) {
        None | Some(Errno::UnknownErrno) => Errno::EIO,
        Some(errno) => errno,
    }
}

pub(super) fn status(outcome: Result<u32, Errno>) -> i32 {
    outcome.map_or_else(|errno| -(errno as i32), |bytes| bytes.try_into().unwrap_or(i32::MAX))
}

pub(super) fn saturating(length: u64) -> u32 {
    length.try_into().unwrap_or(u32::MAX)
}
