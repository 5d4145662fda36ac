use crate::sock::{Ni, Peer, Request, Shard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use lnet_api::{Errno, Flush, Sent, Tx, TxToken, leave_to_uncork};
use lnet_proto::ProtoError;
use lnet_proto::sock::{ConnType, Version};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::choice::Candidate;
use crate::outgoing::{Batch, Outgoing};
use crate::shard::Asked;
use crate::sys::{Gather, PIECES_MAX, Stream};
use lnet_lnd::slab::Key;

mod end;
mod outbox;

pub(crate) use end::Unsent;
use outbox::Outbox;

/// How many bytes wait for the end of a poll.
const CORK_BYTES_MAX: usize = 64 << 10;

/// How many bytes wait for the next poll, or for the end of a cork: a few small messages. A burst of more leaves in
/// several calls, the first of which the peer works on while the next is gathered.
const DEFER_BYTES_MAX: usize = 8 << 10;

/// How many times in a row a sender writes out what others have queued meanwhile, before it leaves that to the driver.
const ROUNDS_MAX: usize = 16;

/// A connection as senders see it: its socket and its outbox. The receiving half is the driver's.
///
/// One thread at a time writes: whoever has taken the outbox's batch out of it. It holds no lock while it does; messages
/// that come meanwhile queue, and it takes them along before it puts the batch back.
pub struct Conn {
    pub(crate) key: Key,
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) conn_type: ConnType,
    pub(crate) version: Version,
    ni: Arc<Ni>,
    shard: Arc<Shard>,
    /// Bytes queued or being written, to choose the emptiest connection by.
    queued: AtomicUsize,
    /// When it was last chosen, counted by its peer and changed under the peer's lock.
    pub(crate) used: AtomicU64,
    /// Bytes written since it stands, to see whether it moves.
    written: AtomicU64,
    outbox: Mutex<Outbox>,
}

impl Flush for Conn {
    fn flush(&self) {
        Conn::flush(self);
    }
}

/// The sender's own message: its result goes back to it, not through an upcall.
struct Own {
    token: TxToken,
    result: Option<Result<(), Errno>>,
}

impl Conn {
    pub(crate) fn new(
        key: Key,
        stream: Box<dyn Stream>,
        conn_type: ConnType,
        version: Version,
        peer: &Peer,
    ) -> Conn {
        let (queued, used, written) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (ni, shard) = (peer.ni.clone(), peer.shard.clone());
        Conn { key, stream, conn_type, version, ni, shard, queued, used, written, outbox: Mutex::default() }
    }

    /// Bytes queued or being written.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// As the choice of a connection sees it.
    pub(crate) fn candidate(&self) -> Candidate {
        let Conn { conn_type, version, .. } = *self;
        Candidate { conn_type, version, queued: self.queued(), used: self.used.load(Ordering::Relaxed) }
    }

    /// Bytes written since it stands.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Sends a message: at once if nobody writes, else whoever writes takes it along. What a polling thread sends leaves at
    /// the end of the poll, so that all that a burst of arrivals causes goes in one call; so does what it sends under a cork
    /// ([`lnet_api::corked`]); a burst of messages sent between two polls may wait for the next one (see
    /// [`crate::burst`]).
    pub(crate) fn send(self: &Arc<Conn>, tx: &mut Tx) -> Sent {
        let token = tx.token;
        let message = match Outgoing::message(tx, self.version) {
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
    /// The message's token, and why it cannot be sent.
    pub(crate) fn queue(&self, mut tx: Tx) -> Result<(), (TxToken, Errno)> {
        let token = tx.token;
        let message = Outgoing::message(&mut tx, self.version).map_err(|errno| (token, errno))?;
        self.take_over(message).map_or(Ok(()), |(_, errno)| Err((token, errno)))
    }

    /// Queues a message of which nothing is gone, of another connection of the same version perhaps; as [`Conn::queue`].
    /// Gives it back, and why it cannot be sent, if this connection has been closed.
    pub(crate) fn take_over(&self, message: Outgoing) -> Option<(Outgoing, Errno)> {
        let mut outbox = self.outbox.lock();
        if let Some(errno) = outbox.closed {
            return Some((message, errno));
        }
        self.queued.fetch_add(message.len(), Ordering::Relaxed);
        outbox.queue.push_back(message);
        None
    }

    /// Acknowledges a zero-copy request of the peer at the end of the poll.
    ///
    /// # Errors
    /// Too many wait already: the peer does not read.
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

    /// Sends a keepalive, unless something waits to be sent, which is as good.
    pub(crate) fn keep_alive(&self) {
        {
            let mut outbox = self.outbox.lock();
            outbox.keepalive = outbox.is_idle();
        }
        self.flush();
    }

    /// Writes what waits, unless somebody is writing: who then takes it along.
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

    /// The socket has become writable.
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

    /// Writes a batch, and what queues meanwhile. `own` is the caller's message.
    fn write(&self, mut batch: Batch, own: Option<TxToken>) -> Sent {
        let mut own = own.map(|token| Own { token, result: None });
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
            self.shard.request(Request::Own(Asked::Flush(self.key)));
        }
        own.and_then(|own| own.result).map_or(Sent::Later, Sent::Now)
    }

    /// So many bytes are gone: finalises the messages that are gone completely.
    fn advance(&self, batch: &mut Batch, count: usize, own: &mut Option<Own>) {
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

    /// All that was offered is gone: takes what has queued meanwhile, or puts the empty batch back.
    fn go_on(&self, batch: Batch, own: &mut Option<Own>) -> Option<Batch> {
        let mut outbox = self.outbox.lock();
        if let Some(errno) = outbox.closed {
            drop(outbox);
            self.give_up(batch, errno, own);
            return None;
        }
        // All of it is gone, but what one system call had no room for, which goes next unless nobody wants it.
        let unwanted = outbox.return_batch(batch);
        let next = outbox.take_batch(&self.queued, &self.shard.counters.tx);
        drop(outbox);
        self.cancel(unwanted, own);
        next
    }

    /// Ends messages that were withdrawn while they were in this thread's hands.
    fn cancel(&self, messages: Vec<Outgoing>, own: &mut Option<Own>) {
        self.discount(&messages);
        for message in messages {
            self.finalize(message, Err(Errno::ECANCELED), own);
        }
    }

    /// The socket is full: puts the batch back until it is writable, unless it has become so meanwhile.
    fn park(&self, batch: Batch, own: &mut Option<Own>) -> Option<Batch> {
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

    /// The connection is broken: the driver closes it and finalises what waits.
    fn break_off(&self, batch: Batch, errno: Errno, own: &mut Option<Own>) -> Option<Batch> {
        {
            let mut outbox = self.outbox.lock();
            (outbox.blocked, outbox.broken) = (true, Some(errno));
        }
        if !self.put_back(batch, own) {
            self.shard.request(Request::Broken(self.key, errno));
        }
        None
    }

    /// Puts the batch back as it is; `true` if the connection has been closed meanwhile.
    fn put_back(&self, batch: Batch, own: &mut Option<Own>) -> bool {
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

    /// The connection was closed while this thread was writing: finalises what it had not written, then puts the empty
    /// batch back, for which [`Conn::wait_for_writer`] may be waiting.
    fn give_up(&self, mut batch: Batch, errno: Errno, own: &mut Option<Own>) {
        for message in batch.clear() {
            self.finalize(message, Err(errno), own);
        }
        self.outbox.lock().batch = Some(batch);
    }

    fn finalize(&self, message: Outgoing, result: Result<(), Errno>, own: &mut Option<Own>) {
        let Some(token) = message.token else { return };
        // The lease goes back before anybody hears that the message is gone.
        drop(message);
        match own {
            Some(own) if own.token == token => own.result = Some(result),
            _ => self.ni.upcalls.finalize_tx(token, result),
        }
    }
}
