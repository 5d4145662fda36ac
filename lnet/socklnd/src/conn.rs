//! The sending half of a connection: an outbox of messages, which one thread at a time writes to
//! the socket.

use crate::sock::{Ni, Peer, Request, Shard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lnet_api::{Errno, Flush, Sent, Tx, TxToken, leave_to_uncork};
use lnet_proto::ProtoError;
use lnet_proto::sock::{ConnType, Version};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::choice::Candidate;
use crate::outbox_message::{OutboxMessage, WriteBatch};
use crate::shard::SockRequest;
use crate::sys::{Gather, PIECES_MAX, Stream};
use lnet_lnd::shard_table::ShardKey;

mod end;
mod outbox;

pub(crate) use end::Unsent;
use outbox::Outbox;

/// The maximum number of bytes that wait for the end of a poll.
const CORK_BYTES_MAX: usize = 64 << 10;

/// The maximum number of bytes that wait for the next poll, or for the end of a cork: a few small
/// messages. A larger burst leaves in several calls, so that the peer processes the first part
/// while the next is gathered.
const DEFER_BYTES_MAX: usize = 8 << 10;

/// Maximum number of rounds in which a sender writes the messages that other threads have queued
/// during its writes, before it leaves the rest to the driver.
const ROUNDS_MAX: usize = 16;

/// The sending half of a connection: its socket and its outbox. The receiving half belongs to the
/// driver.
///
/// One thread at a time writes: the thread that has taken the outbox's batch. It holds no lock
/// while writing. Messages that are sent during the write are queued, and the writing thread sends
/// them before it returns the batch.
pub struct Conn {
    pub(crate) key: ShardKey,
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) conn_type: ConnType,
    pub(crate) version: Version,
    ni: Arc<Ni>,
    shard: Arc<Shard>,
    /// Bytes queued or being written; the choice of a connection prefers fewer.
    queued: AtomicUsize,
    /// The sequence number of the last message for which the connection was chosen, counted by its
    /// peer and changed under the peer's lock.
    pub(crate) used: AtomicU64,
    /// Bytes written since the connection was established, to detect progress.
    written: AtomicU64,
    outbox: Mutex<Outbox>,
}

impl Flush for Conn {
    fn flush(&self) {
        Conn::flush(self);
    }
}

/// The sender's own message: its result is returned to the sender, not passed to an upcall.
struct OwnMessage {
    token: TxToken,
    result: Option<Result<(), Errno>>,
}

impl Conn {
    pub(crate) fn new(
        key: ShardKey,
        stream: Box<dyn Stream>,
        conn_type: ConnType,
        version: Version,
        peer: &Peer,
    ) -> Conn {
        let (queued, used, written) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (ni, shard) = (peer.ni.clone(), peer.shard.clone());
        Conn { key, stream, conn_type, version, ni, shard, queued, used, written, outbox: Mutex::default() }
    }

    /// Returns the number of bytes queued or being written.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// Returns the connection's properties for the choice of a connection.
    pub(crate) fn candidate(&self) -> Candidate {
        let Conn { conn_type, version, .. } = *self;
        Candidate { conn_type, version, queued: self.queued(), used: self.used.load(Ordering::Relaxed) }
    }

    /// Returns the number of bytes written since the connection was established.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Sends a message: at once if no thread is writing, otherwise the writing thread takes it
    /// along. Messages sent by a polling thread leave at the end of the poll, so that all messages
    /// that a burst of arrivals causes go in one call; so do messages sent under a cork
    /// ([`lnet_api::corked`]). A burst of messages sent between two polls may wait for the next
    /// poll (see [`crate::burst`]).
    pub(crate) fn send(self: &Arc<Conn>, tx: &mut Tx) -> Sent {
        let token = tx.token;
        let message = match OutboxMessage::message(tx, self.version) {
            Ok(message) => message,
            Err(errno) => return Sent::Now(Err(errno)),
        };
        let length = message.len();
        let queued = self.queued.fetch_add(length, Ordering::Relaxed) + length;
        let polling = self.shard.is_polling_here();
        let corked = !polling && queued < DEFER_BYTES_MAX && leave_to_uncork(self);
        let wait = if polling {
            queued < CORK_BYTES_MAX
        } else {
            !corked && self.shard.own.may_defer() && queued < DEFER_BYTES_MAX
        };
        let mut outbox = self.outbox.lock();
        if let Some(errno) = outbox.closed {
            return Sent::Now(Err(errno));
        }
        outbox.queue.push_back(message);
        if corked {
            return Sent::Later;
        }
        if wait {
            let listed = std::mem::replace(&mut outbox.corked, true);
            drop(outbox);
            if listed {
                return Sent::Later;
            }
            if polling {
                self.shard.own.cork(self);
                return Sent::Later;
            }
            if self.shard.own.defer(self) {
                return Sent::Later;
            }
            outbox = self.outbox.lock();
            outbox.corked = false;
        }
        let batch = outbox.take_batch(&self.queued, &self.shard.counters.tx);
        drop(outbox);
        batch.map_or(Sent::Later, |batch| self.write(batch, Some(token)))
    }

    /// Queues a message without writing; it leaves with the next [`Conn::flush`].
    ///
    /// # Errors
    /// The message's token, and the reason why it cannot be sent.
    pub(crate) fn queue(&self, mut tx: Tx) -> Result<(), (TxToken, Errno)> {
        let token = tx.token;
        let message = OutboxMessage::message(&mut tx, self.version).map_err(|errno| (token, errno))?;
        self.take_over(message).map_or(Ok(()), |(_, errno)| Err((token, errno)))
    }

    /// Queues a message of which nothing is sent yet, for example one of another connection of the
    /// same version; like [`Conn::queue`]. If this connection is closed, returns the message and
    /// the reason.
    pub(crate) fn take_over(&self, message: OutboxMessage) -> Option<(OutboxMessage, Errno)> {
        let mut outbox = self.outbox.lock();
        if let Some(errno) = outbox.closed {
            return Some((message, errno));
        }
        self.queued.fetch_add(message.len(), Ordering::Relaxed);
        outbox.queue.push_back(message);
        None
    }

    /// Queues the acknowledgement of a peer's zero-copy request; it leaves at the end of the poll.
    ///
    /// # Errors
    /// Too many acknowledgements are queued: the peer does not read.
    pub(crate) fn acknowledge(self: &Arc<Conn>, cookie: u64) -> Result<(), ProtoError> {
        let newly_corked = {
            let mut outbox = self.outbox.lock();
            outbox.acks.push(cookie)?;
            !std::mem::replace(&mut outbox.corked, true)
        };
        if newly_corked {
            self.shard.own.cork(self);
        }
        Ok(())
    }

    /// Sends a keepalive, unless other messages are queued, which serve the same purpose.
    pub(crate) fn keep_alive(&self) {
        {
            let mut outbox = self.outbox.lock();
            outbox.keepalive = outbox.is_idle();
        }
        self.flush();
    }

    /// Writes the queued messages, unless a thread is writing: that thread then takes them along.
    pub(crate) fn flush(&self) {
        let batch = {
            let mut outbox = self.outbox.lock();
            outbox.corked = false;
            outbox.take_batch(&self.queued, &self.shard.counters.tx)
        };
        if let Some(batch) = batch {
            let _ = self.write(batch, None);
        }
    }

    /// Handles writability of the socket.
    pub(crate) fn became_writable(&self) {
        let batch = {
            let mut outbox = self.outbox.lock();
            if outbox.batch.is_none() {
                outbox.writable = true;
                return;
            }
            if !std::mem::replace(&mut outbox.blocked, false) {
                return;
            }
            outbox.take_batch(&self.queued, &self.shard.counters.tx)
        };
        if let Some(batch) = batch {
            let _ = self.write(batch, None);
        }
    }

    /// Writes a batch, and then the messages queued during the write. `own` is the caller's
    /// message.
    fn write(&self, mut batch: WriteBatch, own: Option<TxToken>) -> Sent {
        let mut own = own.map(|token| OwnMessage { token, result: None });
        for _ in 0..ROUNDS_MAX {
            let mut pieces = Gather::new();
            let offered = batch.gather(&mut pieces);
            let result = self.stream.send(&pieces);
            drop(pieces);
            self.shard.counters.tx.calls.one();
            let next = match result {
                Ok(count) => {
                    self.advance(&mut batch, count, &mut own);
                    if count == offered { self.go_on(batch, &mut own) } else { self.park(batch, &mut own) }
                }
                Err(Errno::EAGAIN) => self.park(batch, &mut own),
                Err(errno) => self.break_off(batch, errno, &mut own),
            };
            match next {
                Some(more) => batch = more,
                None => return own.and_then(|own| own.result).map_or(Sent::Later, Sent::Now),
            }
        }
        if !self.put_back(batch, &mut own) {
            self.shard.request(Request::Own(SockRequest::Flush(self.key)));
        }
        own.and_then(|own| own.result).map_or(Sent::Later, Sent::Now)
    }

    /// Records that `count` bytes are sent, and finalises the messages that are sent completely.
    fn advance(&self, batch: &mut WriteBatch, count: usize, own: &mut Option<OwnMessage>) {
        self.queued.fetch_sub(count, Ordering::Relaxed);
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        self.shard.counters.tx.bytes.add(count);
        let (mut messages, mut others) = (0, SmallVec::<[TxToken; PIECES_MAX]>::new());
        batch.advance(count, |token| {
            messages += 1;
            match own {
                Some(own) if own.token == token => own.result = Some(Ok(())),
                _ => others.push(token),
            }
        });
        self.shard.counters.tx.messages.add(messages);
        if !others.is_empty() {
            self.ni.upcalls.finalize_txs(&others, Ok(()));
        }
    }

    /// Continues after the system took all bytes offered: takes the messages queued during the
    /// write, or stores the empty batch.
    fn go_on(&self, batch: WriteBatch, own: &mut Option<OwnMessage>) -> Option<WriteBatch> {
        let mut outbox = self.outbox.lock();
        if let Some(errno) = outbox.closed {
            drop(outbox);
            self.give_up(batch, errno, own);
            return None;
        }
        // The batch keeps only the messages for which one system call had no room; they are sent
        // next unless withdrawn.
        let unwanted = outbox.return_batch(batch);
        let next = outbox.take_batch(&self.queued, &self.shard.counters.tx);
        drop(outbox);
        self.cancel(unwanted, own);
        next
    }

    /// Ends messages that were withdrawn while this thread held the batch.
    fn cancel(&self, messages: Vec<OutboxMessage>, own: &mut Option<OwnMessage>) {
        self.discount(&messages);
        for message in messages {
            self.finalize(message, Err(Errno::ECANCELED), own);
        }
    }

    /// Handles a full socket: stores the batch until the socket is writable. Returns the batch if
    /// the socket has become writable again.
    fn park(&self, batch: WriteBatch, own: &mut Option<OwnMessage>) -> Option<WriteBatch> {
        self.shard.counters.tx.short.one();
        let mut outbox = self.outbox.lock();
        if let Some(errno) = outbox.closed {
            drop(outbox);
            self.give_up(batch, errno, own);
            return None;
        }
        if std::mem::replace(&mut outbox.writable, false) {
            return Some(batch);
        }
        outbox.blocked = true;
        let unwanted = outbox.return_batch(batch);
        drop(outbox);
        self.cancel(unwanted, own);
        None
    }

    /// Handles a broken connection: the driver closes it and finalises the queued messages.
    fn break_off(&self, batch: WriteBatch, errno: Errno, own: &mut Option<OwnMessage>) -> Option<WriteBatch> {
        {
            let mut outbox = self.outbox.lock();
            (outbox.blocked, outbox.broken) = (true, Some(errno));
        }
        if !self.put_back(batch, own) {
            self.shard.request(Request::Broken(self.key, errno));
        }
        None
    }

    /// Stores the batch unchanged; returns `true` if the connection was closed during the write.
    fn put_back(&self, batch: WriteBatch, own: &mut Option<OwnMessage>) -> bool {
        let mut outbox = self.outbox.lock();
        match outbox.closed {
            Some(errno) => {
                drop(outbox);
                self.give_up(batch, errno, own);
                true
            }
            None => {
                let unwanted = outbox.return_batch(batch);
                drop(outbox);
                self.cancel(unwanted, own);
                false
            }
        }
    }

    /// Handles a connection that was closed while this thread was writing: finalises the unsent
    /// messages, then stores the empty batch, for which [`Conn::wait_for_writer`] may be waiting.
    fn give_up(&self, mut batch: WriteBatch, errno: Errno, own: &mut Option<OwnMessage>) {
        for message in batch.clear() {
            self.finalize(message, Err(errno), own);
        }
        self.outbox.lock().batch = Some(batch);
    }

    fn finalize(&self, message: OutboxMessage, result: Result<(), Errno>, own: &mut Option<OwnMessage>) {
        let Some(token) = message.token else { return };
        // The lease ends before the engine gets the end of the message.
        drop(message);
        match own {
            Some(own) if own.token == token => own.result = Some(result),
            _ => self.ni.upcalls.finalize_tx(token, result),
        }
    }
}
