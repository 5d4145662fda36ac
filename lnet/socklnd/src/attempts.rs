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

/// State of a peer in the permit queue: none, queued or granted.
#[derive(Default)]
pub struct AttemptState(AtomicU8);

const NONE: u8 = 0;
const QUEUED: u8 = 1;
const GRANTED: u8 = 2;

/// The connection attempts under way, of all shards, and the queue for permits.
pub(crate) struct Attempts {
    max: usize,
    queues: Mutex<AttemptQueues>,
}

#[derive(Default)]
struct AttemptQueues {
    under_way: usize,
    queue: VecDeque<Arc<Peer>>,
    /// Peers whose last attempt failed.
    failed_queue: VecDeque<Arc<Peer>>,
}

impl AttemptQueues {
    fn next(&mut self) -> Option<Arc<Peer>> {
        self.queue.pop_front().or_else(|| self.failed_queue.pop_front())
    }
}

/// The permit for one attempt; dropping it passes it to the next peer in the queue.
pub(crate) struct AttemptPermit(Arc<Attempts>);

impl Attempts {
    pub(crate) fn new(max: usize) -> Attempts {
        Attempts { max, queues: Mutex::default() }
    }

    /// Returns a permit for an attempt, or queues the peer; `failed` is set if the peer's last
    /// attempt failed.
    pub(crate) fn begin(self: &Arc<Attempts>, peer: &Arc<Peer>, failed: bool) -> Option<AttemptPermit> {
        let mut queues = self.queues.lock();
        match peer.own.0.load(Ordering::Relaxed) {
            GRANTED => peer.own.0.store(NONE, Ordering::Relaxed),
            QUEUED => return None,
            _ if queues.under_way >= self.max => {
                peer.own.0.store(QUEUED, Ordering::Relaxed);
                let queue = if failed { &mut queues.failed_queue } else { &mut queues.queue };
                queue.push_back(peer.clone());
                return None;
            }
            _ => queues.under_way += 1,
        }
        Some(AttemptPermit(self.clone()))
    }

    /// Takes back a permit granted to a peer that no longer needs it.
    pub(crate) fn decline(&self, peer: &Peer) {
        let granted = {
            let _queues = self.queues.lock();
            peer.own.0.compare_exchange(GRANTED, NONE, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if granted {
            self.end();
        }
    }

    /// Returns whether peers wait in the queue.
    pub(crate) fn is_crowded(&self) -> bool {
        let queues = self.queues.lock();
        !(queues.queue.is_empty() && queues.failed_queue.is_empty())
    }

    /// Removes the peers of an ending NI from the queue.
    pub(crate) fn forget(&self, ni: Nid) {
        let mut queues = self.queues.lock();
        queues.queue.retain(|peer| peer.key.ni != ni);
        queues.failed_queue.retain(|peer| peer.key.ni != ni);
    }

    fn end(&self) {
        let next = {
            let mut queues = self.queues.lock();
            let next = queues.next();
            match &next {
                Some(peer) => peer.own.0.store(GRANTED, Ordering::Relaxed),
                None => queues.under_way -= 1,
            }
            next
        };
        if let Some(peer) = next {
            peer.shard.clone().request(Request::Connect(peer));
        }
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        self.0.end();
    }
}
