//! What a connection has to send, and who may write it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::Errno;
use lnet_proto::sock::{AckQueue, Prefix};

use crate::counters::LiveTx;
use crate::outgoing::{Batch, Outgoing};

pub(super) struct Outbox {
    /// No more than the NI's credits: the engine hands over nothing without one, answers included.
    pub(super) queue: VecDeque<Outgoing>,
    pub(super) acks: AckQueue,
    pub(super) keepalive: bool,
    /// What is being written; `None` while somebody is writing it.
    pub(super) batch: Option<Batch>,
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
