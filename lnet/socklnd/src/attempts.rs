//! The limit on simultaneous connection attempts (`nconnds_max`, S-205).
//!
//! LNet has that many connecting threads. Here the peer's shard connects; the limit bounds the
//! sockets and source ports taken by peers that do not answer. Further peers queue; when an attempt
//! ends, the first in the queue gets its permit.
//!
//! A rack that is down must not block all other peers: while peers queue, an attempt gets no more
//! than [`CROWDED_NS`], and peers whose last attempt failed queue behind all others.

use crate::sock::{Peer, Request};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lnet_nid::Nid;
use parking_lot::Mutex;

/// Time limit of an attempt while peers queue: longer than a live host needs even if the first
/// packets are lost, and a fraction of a message's time limit.
pub(crate) const CROWDED_NS: u64 = 10_000_000_000;

/// The peer's place in the permit queue: none, queued or granted.
#[derive(Default)]
pub struct Claim(AtomicU8);

const NONE: u8 = 0;
const QUEUED: u8 = 1;
const GRANTED: u8 = 2;

/// The attempts under way, of all shards.
pub(crate) struct Attempts {
    most: usize,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    under_way: usize,
    queue: VecDeque<Arc<Peer>>,
    /// Peers whose last attempt failed.
    hopeless: VecDeque<Arc<Peer>>,
}

impl Book {
    fn next(&mut self) -> Option<Arc<Peer>> {
        self.queue.pop_front().or_else(|| self.hopeless.pop_front())
    }
}

/// The permit for one attempt; dropping it passes it to the next peer in the queue.
pub(crate) struct Permit(Arc<Attempts>);

impl Attempts {
    pub(crate) fn new(most: usize) -> Attempts {
        Attempts { most, book: Mutex::default() }
    }

    /// Returns a permit for an attempt, or queues the peer; `failed` is set if the peer's last
    /// attempt failed.
    pub(crate) fn begin(self: &Arc<Attempts>, peer: &Arc<Peer>, failed: bool) -> Option<Permit> {
        let mut book = self.book.lock();
        match peer.own.0.load(Ordering::Relaxed) {
            GRANTED => peer.own.0.store(NONE, Ordering::Relaxed),
            QUEUED => return None,
            _ if book.under_way >= self.most => {
                peer.own.0.store(QUEUED, Ordering::Relaxed);
                let queue = if failed { &mut book.hopeless } else { &mut book.queue };
                queue.push_back(peer.clone());
                return None;
            }
            _ => book.under_way += 1,
        }
        Some(Permit(self.clone()))
    }

    /// Takes back a permit granted to a peer that no longer needs it.
    pub(crate) fn decline(&self, peer: &Peer) {
        let granted = {
            let _book = self.book.lock();
            peer.own.0.compare_exchange(GRANTED, NONE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if granted {
            self.end();
        }
    }

    /// Whether peers wait in the queue.
    pub(crate) fn is_crowded(&self) -> bool {
        let book = self.book.lock();
        !(book.queue.is_empty() && book.hopeless.is_empty())
    }

    /// Removes the peers of an ending NI from the queue.
    pub(crate) fn forget(&self, ni: Nid) {
        let mut book = self.book.lock();
        book.queue.retain(|peer| peer.key.ni != ni);
        book.hopeless.retain(|peer| peer.key.ni != ni);
    }

    fn end(&self) {
        let next = {
            let mut book = self.book.lock();
            let next = book.next();
            match &next {
                Some(peer) => peer.own.0.store(GRANTED, Ordering::Relaxed),
                None => book.under_way -= 1,
            }
            next
        };
        if let Some(peer) = next {
            peer.shard.clone().request(Request::Connect(peer));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.end();
    }
}
