//! The state of a shard over TCP, which senders share with the shard's driver.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lnet_lnd::LIST_ROOM;
use lnet_lnd::admission::Permit;
use lnet_lnd::shard_table::ShardKey;
use lnet_nid::ProcessId;
use lnet_proto::sock::ConnOffer;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::burst::{BurstGuard, is_burst, thread_id};
use crate::conn::Conn;
use crate::sock::Ni;
use crate::sys::{Listener, Poller, Stream};

/// Maximum number of rounds in which one poll writes the messages that its own upcalls have queued.
const UNCORK_ROUNDS_MAX: usize = 8;

/// The read size in a handshake: longer than any part of a handshake, and short, so that few of the
/// bytes behind the handshake are read with it.
pub(crate) const HANDSHAKE_READ: usize = 256;

/// Requests to a shard's driver that only the TCP LND has.
pub enum SockRequest {
    /// Accept connections on this listener.
    Listen(Box<dyn Listener>),
    /// Accept or refuse a peer that belongs to this shard and connected to another shard's
    /// listener.
    Decide(Box<Offered>),
    /// Continue writing on this connection.
    Flush(ShardKey),
}

/// An incoming connection whose hello has been read, passed to the shard that accepts or refuses
/// it. Until then nothing is read from the connection.
pub struct Offered {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) remote: SocketAddr,
    pub(crate) permit: Permit,
    pub(crate) ni: Arc<Ni>,
    pub(crate) id: ProcessId,
    pub(crate) rewrite: Option<ProcessId>,
    pub(crate) offer: ConnOffer,
    /// Bytes received after the hello.
    pub(crate) behind: SmallVec<[u8; HANDSHAKE_READ]>,
}

/// TCP state of a shard: its poller, and the connections to flush.
pub struct ShardData {
    pub(crate) poller: Box<dyn Poller>,
    /// Identity of the LND, shared by all its shards.
    lnd: Arc<()>,
    corked: Mutex<Corked>,
    /// True if the poller has been woken since the last [`ShardData::take_woken`].
    woken: AtomicBool,
    /// Set while messages may wait for the next poll of the sending thread.
    may_coalesce: AtomicBool,
}

/// Connections with messages that the current or next polling thread writes.
struct Corked {
    conns: Vec<Arc<Conn>>,
    /// The id of the thread that polled last.
    poller: usize,
}

impl lnet_lnd::protocol::ShardData for ShardData {
    fn wake(&self) {
        self.poller.wake();
        // Set after the wake-up, so that a poll that sees the flag also receives the wake-up's
        // event.
        self.woken.store(true, Ordering::Release);
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.poller.fd()
    }

    fn has_work(&self) -> bool {
        !self.corked.lock().conns.is_empty()
    }
}

impl ShardData {
    pub(crate) fn new(poller: Box<dyn Poller>, lnd: Arc<()>) -> ShardData {
        ShardData {
            poller,
            lnd,
            corked: Mutex::new(Corked { conns: Vec::with_capacity(LIST_ROOM), poller: 0 }),
            woken: AtomicBool::new(false),
            may_coalesce: AtomicBool::new(true),
        }
    }

    /// Returns whether the poller has been woken since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }

    /// Records a connection on which the polling thread has queued something.
    pub(crate) fn cork(&self, conn: &Arc<Conn>) {
        self.corked.lock().conns.push(conn.clone());
    }

    /// Returns whether a message from this thread may wait for others: it is not the first since
    /// the thread's last poll.
    pub(crate) fn may_defer(&self) -> bool {
        is_burst(Arc::as_ptr(&self.lnd).addr()) && self.may_coalesce.load(Ordering::Relaxed)
    }

    /// Records a connection whose messages wait for the next poll. `false`: another thread has
    /// polled last, and may not poll again; the caller writes now.
    pub(crate) fn defer(&self, conn: &Arc<Conn>) -> bool {
        let mut corked = self.corked.lock();
        // SYNC corked.poller: either the next polling thread takes the entry, or this thread sees
        // that another one has polled.
        let mine = corked.poller == thread_id();
        if mine {
            corked.conns.push(conn.clone());
        }
        mine
    }

    /// Starts a poll: writes the messages left for it. `true` if there were any.
    pub(crate) fn write_deferred(&self, list: &mut Vec<Arc<Conn>>) -> bool {
        {
            let mut corked = self.corked.lock();
            // SYNC corked.poller
            corked.poller = thread_id();
            std::mem::swap(&mut corked.conns, list);
        }
        let any = !list.is_empty();
        for conn in list.drain(..) {
            conn.flush();
        }
        any
    }

    /// Removes closed connections: nothing is written on them any more, but an entry here keeps
    /// their descriptors open.
    pub(crate) fn forget_closed(&self) {
        self.corked.lock().conns.retain(|conn| !conn.is_closed());
    }

    /// Sets whether messages may wait for the next poll.
    pub(crate) fn set_coalescing(&self, may_coalesce: bool) {
        if self.may_coalesce.load(Ordering::Relaxed) != may_coalesce {
            self.may_coalesce.store(may_coalesce, Ordering::Relaxed);
        }
    }

    /// Writes what the polling thread has queued, and what the resulting upcalls queue again. After
    /// a few rounds the rest is left to the next poll, so that a program that sends from every
    /// completion cannot keep the poll from ending.
    pub(crate) fn uncork(&self, list: &mut Vec<Arc<Conn>>) -> usize {
        let mut flushed = 0;
        for _ in 0..UNCORK_ROUNDS_MAX {
            std::mem::swap(&mut self.corked.lock().conns, list);
            if list.is_empty() {
                break;
            }
            flushed += list.len();
            for conn in list.drain(..) {
                conn.flush();
            }
        }
        flushed
    }

    /// Returns the guard of the polling thread: messages sent after its drop begin a burst.
    pub(crate) fn burst_guard(&self) -> BurstGuard {
        BurstGuard::new(Arc::as_ptr(&self.lnd).addr())
    }
}
