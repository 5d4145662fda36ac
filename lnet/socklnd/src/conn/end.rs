//! How messages and connections end that cannot be sent any more.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use lnet_api::{Errno, TxToken};
use lnet_lnd::slab::Key;

use super::Conn;
use crate::outgoing::{Batch, Outgoing};

/// What a connection that ends has not sent.
pub(crate) struct Unsent {
    /// The message of which a part is gone: it can only fail.
    pub(crate) begun: Option<Outgoing>,
    /// Those of which nothing is gone, and the acknowledgements.
    pub(crate) rest: VecDeque<Outgoing>,
}

impl lnet_lnd::protocol::Connection for Conn {
    /// A message that somebody is writing is not taken back: if it does not leave, that thread ends it.
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

    fn key(&self) -> Key {
        self.key
    }

    fn is_idle(&self) -> bool {
        self.queued() == 0
    }

    /// It does not block: the socket takes no more bytes.
    fn wait_for_writer(&self) {
        while self.outbox.lock().batch.is_none() {
            std::thread::yield_now();
        }
    }
}

impl Conn {
    /// Takes out the messages not yet begun whose time is over, unless somebody is writing them.
    pub(crate) fn take_overdue(&self, now_ns: u64) -> Vec<TxToken> {
        let overdue = self.outbox.lock().take_unbegun(|message| message.is_overdue(now_ns));
        self.discount(&overdue);
        overdue.iter().filter_map(|message| message.token).collect()
    }

    /// Takes out all messages of which nothing is gone, unless somebody is writing them.
    pub(crate) fn take_unbegun(&self) -> Vec<TxToken> {
        let taken = self.outbox.lock().take_unbegun(|message| message.token.is_some());
        self.discount(&taken);
        taken.iter().filter_map(|message| message.token).collect()
    }

    /// These messages are not queued any more.
    pub(super) fn discount(&self, messages: &[Outgoing]) {
        for message in messages {
            self.queued.fetch_sub(message.len(), Ordering::Relaxed);
        }
    }

    /// What a send has found broken, if it was more than that the peer has closed it.
    pub(crate) fn broken(&self) -> Option<Errno> {
        self.outbox.lock().broken.filter(|errno| *errno != Errno::EPIPE)
    }

    /// When the message that is partly gone, if there is one, should have been gone; `None` while somebody is writing.
    pub(crate) fn begun_deadline_ns(&self) -> Option<u64> {
        self.outbox.lock().batch.as_ref()?.begun().map(|message| message.deadline_ns)
    }

    /// Ends it: nothing more is sent, and what waits is handed back. What somebody is writing at this moment is finalised
    /// by that thread.
    pub(crate) fn close(&self, errno: Errno) -> Unsent {
        // Ends a write in another thread, and tells the peer.
        self.stream.shutdown();
        let mut outbox = self.outbox.lock();
        outbox.closed = Some(errno);
        let begun = outbox.batch.as_ref().is_some_and(|batch| batch.begun().is_some());
        let mut rest = outbox.batch.as_mut().map(Batch::clear).unwrap_or_default();
        let begun = if begun { rest.pop_front() } else { None };
        rest.append(&mut outbox.queue);
        let acks = &mut outbox.acks;
        rest.extend(std::iter::from_fn(|| acks.pop().to_noop()).map(|prefix| Outgoing::noop(&prefix)));
        Unsent { begun, rest }
    }

    /// Whether it has been closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.outbox.lock().closed.is_some()
    }
}
