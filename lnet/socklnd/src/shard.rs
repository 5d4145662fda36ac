use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lnet_lnd::LIST_ROOM;
use lnet_lnd::admission::Permit;
use lnet_lnd::slab::Key;
use lnet_nid::ProcessId;
use lnet_proto::sock::Offer;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::burst::{BurstOver, is_burst, thread_id};
use crate::conn::Conn;
use crate::sock::Ni;
use crate::sys::{Listener, Poller, Stream};

/// How many times in a row one poll writes what its own upcalls queue.
const UNCORK_ROUNDS_MAX: usize = 8;

/// More than a handshake sends in one piece, and little enough that what follows it is not much.
pub(crate) const HANDSHAKE_READ: usize = 256;

/// What is asked of a shard's driver over TCP alone.
pub enum Asked {
    /// Accept connections on this listener.
    Listen(Box<dyn Listener>),
    /// A peer of this shard has connected to another one's listener.
    Decide(Box<Offered>),
    /// Go on writing.
    Flush(Key),
}

/// A peer that has said who it is, on its way to the shard that decides about it. Nothing of it is read meanwhile.
pub struct Offered {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) remote: SocketAddr,
    pub(crate) permit: Permit,
    pub(crate) ni: Arc<Ni>,
    pub(crate) id: ProcessId,
    pub(crate) rewrite: Option<ProcessId>,
    pub(crate) offer: Offer,
    /// What came with the hello.
    pub(crate) behind: SmallVec<[u8; HANDSHAKE_READ]>,
}

/// What a shard has over TCP: its poller, and what waits to be written.
pub struct OfShard {
    pub(crate) poller: Box<dyn Poller>,
    /// What all shards of one LND have in common.
    lnd: Arc<()>,
    corked: Mutex<Corked>,
    /// The poller has been woken, and not been asked since.
    woken: AtomicBool,
    /// Messages may wait for the next poll of the thread that sends them.
    patient: AtomicBool,
}

/// Connections on which something waits to be written by the thread that polls, or polls next.
struct Corked {
    conns: Vec<Arc<Conn>>,
    /// The thread that has polled last.
    poller: usize,
}

impl lnet_lnd::protocol::OfShard for OfShard {
    fn wake(&self) {
        self.poller.wake();
        // Afterwards: a poll that has seen it finds the poller woken already, and so quiets it.
        self.woken.store(true, Ordering::Release);
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.poller.fd()
    }

    fn has_work(&self) -> bool {
        !self.corked.lock().conns.is_empty()
    }
}

impl OfShard {
    pub(crate) fn new(poller: Box<dyn Poller>, lnd: Arc<()>) -> OfShard {
        OfShard {
            poller,
            lnd,
            corked: Mutex::new(Corked { conns: Vec::with_capacity(LIST_ROOM), poller: 0 }),
            woken: AtomicBool::new(false),
            patient: AtomicBool::new(true),
        }
    }

    /// Whether the poller has been woken since this was last asked.
    pub(crate) fn take_woken(&self) -> bool {
        self.woken.load(Ordering::Relaxed) && self.woken.swap(false, Ordering::Acquire)
    }

    /// Notes a connection on which the polling thread has queued something.
    pub(crate) fn cork(&self, conn: &Arc<Conn>) {
        self.corked.lock().conns.push(conn.clone());
    }

    /// Whether a message that this thread sends may wait for others: it is not the first since the thread's last poll.
    pub(crate) fn may_defer(&self) -> bool {
        is_burst(Arc::as_ptr(&self.lnd).addr()) && self.patient.load(Ordering::Relaxed)
    }

    /// Notes a connection on which something waits for the next poll. `false`: another thread has polled last, so that
    /// nobody may come for it; write it now.
    pub(crate) fn defer(&self, conn: &Arc<Conn>) -> bool {
        let mut corked = self.corked.lock();
        // SYNC corked.poller: either the next poller takes what is noted here, or this thread sees that there was one.
        let mine = corked.poller == thread_id();
        if mine {
            corked.conns.push(conn.clone());
        }
        mine
    }

    /// A poll begins: writes what was left to it. `true` if there was anything.
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

    /// Forgets the connections that have been closed: nothing is written on them any more, but as long as they are noted
    /// here they keep their descriptors.
    pub(crate) fn forget_closed(&self) {
        self.corked.lock().conns.retain(|conn| !conn.is_closed());
    }

    /// Says whether messages may wait for the next poll.
    pub(crate) fn set_patient(&self, patient: bool) {
        if self.patient.load(Ordering::Relaxed) != patient {
            self.patient.store(patient, Ordering::Relaxed);
        }
    }

    /// Writes what the polling thread has queued, and what the upcalls for that queue again. After a few rounds the rest
    /// is left to the next poll: whoever sends from every completion must not keep the poll from ending.
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

    /// Until it is dropped the calling thread polls: what it sends afterwards begins a burst.
    pub(crate) fn burst_over(&self) -> BurstOver {
        BurstOver::new(Arc::as_ptr(&self.lnd).addr())
    }
}
