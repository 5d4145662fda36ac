//! What senders and the driver of one shard share, and what is asked of the driver.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::{Delivery, Errno};

use crate::counting::{Counters, CountersOf, CountsWakeups};
use crate::protocol::OfShard;
use crate::slab::Key;
use crate::{Peer, Protocol, Requests};

/// What any thread may ask of a shard's driver.
pub enum Request<P: Protocol> {
    /// Messages wait for this peer, or its turn to be connected has come.
    Connect(Arc<Peer<P>>),
    /// How many connections this peer may have was set.
    Complete(Arc<Peer<P>>),
    /// Something failed on a connection.
    Broken(Key, Errno),
    /// Go on with a message that was held.
    Resume(Key, Option<Delivery>),
    /// The payload of a held message does not come into memory.
    Unheld(Key, Errno),
    /// What only this kind of network asks.
    Own(P::Request),
}

/// What senders and the driver of one shard share.
pub struct Shard<P: Protocol> {
    /// Its number, below [`MAX_SHARDS`](lnet_api::MAX_SHARDS).
    pub number: usize,
    /// What is counted on it.
    pub counters: CountersOf<P>,
    /// What is asked of its driver.
    pub requests: Requests<Request<P>>,
    /// How many messages the engine holds back on it.
    pub(crate) held: AtomicUsize,
    /// What its driver sleeps on, and whatever else its kind of network has.
    pub own: P::OfShard,
}

thread_local! {
    /// The shard that this thread is polling at this moment, or 0.
    static POLLING: Cell<usize> = const { Cell::new(0) };
}

/// Marks the calling thread as polling a shard, until it is dropped.
pub struct PollingHere(usize);

impl Drop for PollingHere {
    fn drop(&mut self) {
        POLLING.set(self.0);
    }
}

impl<P: Protocol> Shard<P> {
    /// One of which nothing is asked.
    pub fn new(number: usize, own: P::OfShard) -> Shard<P> {
        Shard {
            number,
            counters: Counters::default(),
            requests: Requests::default(),
            held: AtomicUsize::new(0),
            own,
        }
    }

    /// Asks the driver for something, and wakes it if it sleeps. The first request of a batch wakes: the driver takes all
    /// of them at once.
    pub fn request(&self, request: Request<P>) {
        if self.requests.push(request) && !self.is_polling_here() {
            self.counters.tx.wakeups().one();
            self.own.wake();
        }
    }

    /// How many messages the engine holds back on it.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether the next poll has something to do that the system does not know of.
    pub(crate) fn has_work(&self) -> bool {
        !self.requests.is_empty() || self.own.has_work()
    }

    /// Whether the calling thread is inside this shard's poll.
    pub fn is_polling_here(&self) -> bool {
        POLLING.get() == self.address()
    }

    /// Marks the calling thread as polling until the guard is dropped.
    pub fn polling_here(&self) -> PollingHere {
        PollingHere(POLLING.replace(self.address()))
    }

    /// What threads know this shard by.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
