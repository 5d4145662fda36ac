//! How many connections are being opened at a time (`nconnds_max`, S-205).
//!
//! LNet has that many threads that connect. Here connecting is work of the peer's shard; the number bounds the sockets
//! and source ports that are taken by peers that do not answer. Peers beyond it queue, and the first in the queue is
//! told when an attempt ends.
//!
//! A rack that is down must not keep everybody else waiting: while others queue an attempt gets no more than
//! [`CROWDED_NS`], and peers whose last attempt has failed stand behind all others.

use crate::sock::{Peer, Request};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use lnet_nid::Nid;
use parking_lot::Mutex;

/// How long an attempt may last while others queue: longer than a living host takes even if the first packets are lost,
/// and a fraction of what messages wait.
pub(crate) const CROWDED_NS: u64 = 10_000_000_000;

/// What a peer has of the attempts there may be.
#[derive(Default)]
pub struct Claim(AtomicU8);

const NONE: u8 = 0;
const QUEUED: u8 = 1;
const GRANTED: u8 = 2;

/// Counts the attempts under way, of all shards.
pub(crate) struct Attempts {
    most: usize,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    under_way: usize,
    queue: VecDeque<Arc<Peer>>,
    /// Those whose last attempt has failed.
    hopeless: VecDeque<Arc<Peer>>,
}

impl Book {
    fn next(&mut self) -> Option<Arc<Peer>> {
        self.queue.pop_front().or_else(|| self.hopeless.pop_front())
    }
}

/// An attempt under way; makes room for the next when it is dropped.
pub(crate) struct Permit(Arc<Attempts>);

impl Attempts {
    pub(crate) fn new(most: usize) -> Attempts {
        Attempts { most, book: Mutex::default() }
    }

    /// Begins an attempt for a peer, or queues the peer; `failed` says whether its last attempt did.
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

    /// Takes back what was granted to a peer that has no use for it any more.
    pub(crate) fn decline(&self, peer: &Peer) {
        let granted = {
            let _book = self.book.lock();
            peer.own.0.compare_exchange(GRANTED, NONE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if granted {
            self.end();
        }
    }

    /// Whether peers queue.
    pub(crate) fn is_crowded(&self) -> bool {
        let book = self.book.lock();
        !(book.queue.is_empty() && book.hopeless.is_empty())
    }

    /// Forgets the peers of an NI that ends.
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
