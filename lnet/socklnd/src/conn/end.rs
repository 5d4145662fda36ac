//! The end of messages and connections that cannot be sent any more.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use lnet_api::{Errno, TxToken};
use lnet_lnd::shard_table::ShardKey;

use super::Conn;
use crate::outbox_message::{OutboxMessage, WriteBatch};

/// The unsent messages of a closed connection.
pub(crate) struct Unsent {
    /// The partly sent message: it can only fail.
    pub(crate) begun: Option<OutboxMessage>,
    /// Messages of which nothing is sent, and the acknowledgements.
    pub(crate) rest: VecDeque<OutboxMessage>,
}

impl lnet_lnd::protocol::Connection for Conn {
    /// Removes a message that is not being written. A message being written is not taken back: if
    /// it does not leave, the writing thread ends it.
    fn withdraw(&self, token: TxToken) -> bool {
        let taken = {
            let mut outbox = self.outbox.lock();
            let taken = outbox.take_unbegun(|message| message.token == Some(token));
            if taken.is_empty() && outbox.batch.is_none() {
                outbox.withdrawn.push(token);
            }
            taken
        };
        self.discount(&taken);
        !taken.is_empty()
    }

    fn key(&self) -> ShardKey {
        self.key
    }

    fn is_idle(&self) -> bool {
        self.queued() == 0
    }

    /// Blocks only briefly, because the closed socket takes no more bytes.
    fn wait_for_writer(&self) {
        while self.outbox.lock().batch.is_none() {
            std::thread::yield_now();
        }
    }
}

impl Conn {
    /// Removes the unsent messages whose deadline has passed, unless a thread is writing them;
    /// returns their tokens.
    pub(crate) fn take_overdue(&self, now_ns: u64) -> Vec<TxToken> {
        let overdue = self.outbox.lock().take_unbegun(|message| message.is_overdue(now_ns));
        self.discount(&overdue);
        overdue.iter().filter_map(|message| message.token).collect()
    }

    /// Removes all messages of which nothing is sent, unless a thread is writing them; returns
    /// their tokens.
    pub(crate) fn take_unbegun(&self) -> Vec<TxToken> {
        let taken = self.outbox.lock().take_unbegun(|message| message.token.is_some());
        self.discount(&taken);
        taken.iter().filter_map(|message| message.token).collect()
    }

    /// Subtracts removed messages from the queued bytes.
    pub(super) fn discount(&self, messages: &[OutboxMessage]) {
        for message in messages {
            self.queued.fetch_sub(message.len(), Ordering::Relaxed);
        }
    }

    /// Returns the error that a send has returned, unless it only means that the peer has closed
    /// the connection.
    pub(crate) fn broken(&self) -> Option<Errno> {
        self.outbox.lock().broken.filter(|errno| *errno != Errno::EPIPE)
    }

    /// Returns the deadline of the partly sent message, if there is one; `None` while a thread is
    /// writing.
    pub(crate) fn begun_deadline_ns(&self) -> Option<u64> {
        self.outbox.lock().batch.as_ref()?.begun().map(|message| message.deadline_ns)
    }

    /// Closes the connection: nothing more is sent, and the unsent messages are returned. A thread
    /// that is writing at this moment finalises the messages that it holds.
    pub(crate) fn close(&self, errno: Errno) -> Unsent {
        // Ends a write that another thread is making, and notifies the peer.
        self.stream.shutdown();
        let mut outbox = self.outbox.lock();
        outbox.closed = Some(errno);
        let begun = outbox.batch.as_ref().is_some_and(|batch| batch.begun().is_some());
        let mut rest = outbox.batch.as_mut().map(WriteBatch::clear).unwrap_or_default();
        let begun = if begun { rest.pop_front() } else { None };
        rest.append(&mut outbox.queue);
        let acks = &mut outbox.acks;
        rest.extend(std::iter::from_fn(|| acks.pop().to_noop()).map(|prefix| OutboxMessage::noop(&prefix)));
        Unsent { begun, rest }
    }

    /// Returns whether the connection has been closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.outbox.lock().closed.is_some()
    }
}
