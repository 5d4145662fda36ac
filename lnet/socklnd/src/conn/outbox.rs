//! The messages of a connection, and the thread that may write them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::{Errno, TxToken};
use lnet_proto::sock::{AckQueue, Prefix};
use smallvec::SmallVec;

use crate::counters::LiveTx;
use crate::outbox_message::{OutboxMessage, WriteBatch, take_from};

/// Number of withdrawn messages kept without allocating: messages are rarely withdrawn, and almost
/// never during a system call.
const WITHDRAWN_INLINE: usize = 2;

pub(super) struct Outbox {
    /// The messages to send. Their number is bounded by the NI's credits: the engine passes no
    /// message without one, answers included.
    pub(super) queue: VecDeque<OutboxMessage>,
    pub(super) acks: AckQueue,
    pub(super) keepalive: bool,
    /// The batch being written; `None` while a thread is writing it.
    pub(super) batch: Option<WriteBatch>,
    /// Withdrawn messages that may be in the batch being written: removed when the batch returns,
    /// if nothing of them is sent by then. Bounded by the number of messages, and cleared with each
    /// batch.
    pub(super) withdrawn: SmallVec<[TxToken; WITHDRAWN_INLINE]>,
    /// Set while the socket is full or broken: no thread writes until it becomes writable.
    pub(super) blocked: bool,
    /// Set if the socket became writable while a thread was writing, which may just have found it
    /// full.
    pub(super) writable: bool,
    /// Set while the connection is on the list of those flushed at the end of the poll.
    pub(super) corked: bool,
    /// The error of a broken connection. Kept here because the system reports it only once, to the
    /// next call on the socket.
    pub(super) broken: Option<Errno>,
    pub(super) closed: Option<Errno>,
}

impl Default for Outbox {
    /// Creates an empty outbox, which no thread is writing.
    fn default() -> Outbox {
        Outbox {
            queue: VecDeque::new(),
            acks: AckQueue::new(),
            keepalive: false,
            batch: Some(WriteBatch::default()),
            withdrawn: SmallVec::new(),
            blocked: false,
            writable: false,
            corked: false,
            broken: None,
            closed: None,
        }
    }
}

impl Outbox {
    /// Returns whether a message may be written at once: nothing is queued, no thread is writing,
    /// and the socket is neither full nor broken.
    pub(super) fn is_idle(&self) -> bool {
        !self.blocked && self.queue.is_empty() && self.batch.as_ref().is_some_and(WriteBatch::is_empty)
    }

    /// Removes and returns the `wanted` messages of which nothing is sent, unless a thread is
    /// writing them.
    pub(super) fn take_unbegun(
        &mut self,
        mut wanted: impl FnMut(&OutboxMessage) -> bool,
    ) -> Vec<OutboxMessage> {
        let mut taken = self.batch.as_mut().map_or_else(Vec::new, |batch| batch.take_unbegun(&mut wanted));
        taken.append(&mut take_from(&mut self.queue, 0, wanted));
        taken
    }

    /// Stores the batch, or its rest, after the thread has written. Returns the withdrawn messages.
    pub(super) fn return_batch(&mut self, mut batch: WriteBatch) -> Vec<OutboxMessage> {
        let mut unwanted = Vec::new();
        if !self.withdrawn.is_empty() {
            let withdrawn = std::mem::take(&mut self.withdrawn);
            let wanted =
                |message: &OutboxMessage| message.token.is_some_and(|token| withdrawn.contains(&token));
            unwanted = batch.take_unbegun(wanted);
        }
        self.batch = Some(batch);
        unwanted
    }

    /// Takes the batch to write it, if it has messages, the socket is not full and no thread is
    /// writing. The NOOPs added here count as `queued` bytes, like messages when they are queued.
    pub(super) fn take_batch(&mut self, queued: &AtomicUsize, counters: &LiveTx) -> Option<WriteBatch> {
        if self.blocked || self.closed.is_some() {
            return None;
        }
        let mut batch = self.batch.take()?;
        if batch.is_empty() {
            batch.swap(&mut self.queue);
            let alone = batch.is_empty();
            let keepalive = (std::mem::take(&mut self.keepalive) && alone).then_some(Prefix::KEEPALIVE);
            let keepalive = keepalive.inspect(|_| counters.keepalives.one());
            let acks = std::iter::from_fn(|| self.acks.pop().to_noop()).inspect(|_| counters.zc_acks.one());
            for prefix in keepalive.into_iter().chain(acks) {
                let noop = OutboxMessage::noop(&prefix);
                queued.fetch_add(noop.len(), Ordering::Relaxed);
                batch.push_front(noop);
            }
        }
        if batch.is_empty() {
            self.batch = Some(batch);
            return None;
        }
        Some(batch)
    }
}
