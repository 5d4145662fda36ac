//! What a connection has to send, and who may write it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::{Errno, TxToken};
use lnet_proto::sock::{AckQueue, Prefix};
use smallvec::SmallVec;

use crate::counters::LiveTx;
use crate::outgoing::{Batch, Outgoing, take_from};

/// Messages are withdrawn seldom, and while a system call lasts hardly ever.
const WITHDRAWN_INLINE: usize = 2;

pub(super) struct Outbox {
    /// No more than the NI's credits: the engine hands over nothing without one, answers included.
    pub(super) queue: VecDeque<Outgoing>,
    pub(super) acks: AckQueue,
    pub(super) keepalive: bool,
    /// What is being written; `None` while somebody is writing it.
    pub(super) batch: Option<Batch>,
    /// Messages that may be in the batch that somebody is writing, and that are not wanted any more: taken out when it comes
    /// back, if nothing of them is gone by then. As many as there are messages, and forgotten with each batch.
    pub(super) withdrawn: SmallVec<[TxToken; WITHDRAWN_INLINE]>,
    /// The socket is full, or broken: nobody writes until it becomes writable.
    pub(super) blocked: bool,
    /// The socket became writable while somebody was writing, who may just have found it full.
    pub(super) writable: bool,
    /// The connection is on the list of those that are flushed at the end of the poll.
    pub(super) corked: bool,
    /// Why nothing can be sent any more. The system tells it once, to whoever asks first.
    pub(super) broken: Option<Errno>,
    pub(super) closed: Option<Errno>,
}

impl Default for Outbox {
    /// Nothing waits, and nobody writes.
    fn default() -> Outbox {
        Outbox {
            queue: VecDeque::new(),
            acks: AckQueue::new(),
            keepalive: false,
            batch: Some(Batch::default()),
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
    /// Nothing waits and nobody writes: a message may be written at once.
    pub(super) fn is_idle(&self) -> bool {
        !self.blocked && self.queue.is_empty() && self.batch.as_ref().is_some_and(Batch::is_empty)
    }

    /// Takes out the messages that are `wanted`, of which nothing is gone, unless somebody is writing them.
    pub(super) fn take_unbegun(&mut self, mut wanted: impl FnMut(&Outgoing) -> bool) -> Vec<Outgoing> {
        let mut taken = self.batch.as_mut().map_or_else(Vec::new, |batch| batch.take_unbegun(&mut wanted));
        taken.append(&mut take_from(&mut self.queue, 0, wanted));
        taken
    }

    /// The thread that was writing puts the batch back, or the rest of it. Gives what nobody wants any more.
    pub(super) fn return_batch(&mut self, mut batch: Batch) -> Vec<Outgoing> {
        let mut unwanted = Vec::new();
        if !self.withdrawn.is_empty() {
            let withdrawn = std::mem::take(&mut self.withdrawn);
            let wanted = |message: &Outgoing| message.token.is_some_and(|token| withdrawn.contains(&token));
            unwanted = batch.take_unbegun(wanted);
        }
        self.batch = Some(batch);
        unwanted
    }

    /// The batch with something to write in it, if there is something, the socket is not full and nobody writes.
    /// What joins the messages here is added to the bytes `queued`, as messages are when they are queued.
    pub(super) fn take_batch(&mut self, queued: &AtomicUsize, counters: &LiveTx) -> Option<Batch> {
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
                let noop = Outgoing::noop(&prefix);
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
