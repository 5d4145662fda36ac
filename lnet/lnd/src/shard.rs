//! The state shared by senders and the driver of one shard, and the requests to the driver.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_api::{Errno, PayloadTarget};

use crate::counting::{Counters, CountersOf, CountsWakeups};
use crate::protocol::ShardData;
use crate::shard_table::ShardKey;
use crate::{Peer, Protocol, Requests};

/// A request to a shard's driver, from any thread.
pub enum ShardRequest<P: Protocol> {
    /// Messages wait for this peer, or its turn to be connected has come.
    Connect(Arc<Peer<P>>),
    /// The number of connections per peer was set: open the missing ones to this peer.
    Complete(Arc<Peer<P>>),
    /// An operation failed on this connection.
    Broken(ShardKey, Errno),
    /// Continue with a held message.
    Resume(ShardKey, Option<PayloadTarget>),
    /// The payload of a held message cannot be received into memory.
    Unheld(ShardKey, Errno),
    /// A request that only this kind of network has.
    Own(P::Request),
}

/// The state shared by senders and the driver of one shard.
pub struct Shard<P: Protocol> {
    /// The number of the shard, below [`MAX_SHARDS`](lnet_api::MAX_SHARDS).
    pub number: usize,
    /// Counters of the senders and of the driver of this shard.
    pub counters: CountersOf<P>,
    /// The queue of requests to the driver.
    pub requests: Requests<ShardRequest<P>>,
    /// The number of messages on this shard that the engine holds back.
    pub(crate) held: AtomicUsize,
    /// Additional state that the kind of network needs, including the object on which the driver
    /// sleeps.
    pub own: P::ShardData,
}

thread_local! {
    /// The address of the shard that this thread is polling, or 0.
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
    /// Makes a shard without requests.
    pub fn new(number: usize, own: P::ShardData) -> Shard<P> {
        Shard {
            number,
            counters: Counters::default(),
            requests: Requests::default(),
            held: AtomicUsize::new(0),
            own,
        }
    }

    /// Queues a request for the driver, and wakes the driver if it sleeps. Only the first request
    /// of a batch wakes it: the driver takes all of them at once.
    pub fn request(&self, request: ShardRequest<P>) {
        if self.requests.push(request) && !self.is_polling_here() {
            self.counters.tx.wakeups().one();
            self.own.wake();
        }
    }

    /// Returns the number of messages on this shard that the engine holds back.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns whether the next poll has work that the descriptor does not report.
    pub(crate) fn has_work(&self) -> bool {
        !self.requests.is_empty() || self.own.has_work()
    }

    /// Returns whether the calling thread is inside this shard's poll.
    pub fn is_polling_here(&self) -> bool {
        POLLING.get() == self.address()
    }

    /// Marks the calling thread as polling until the guard is dropped.
    pub fn polling_here(&self) -> PollingHere {
        PollingHere(POLLING.replace(self.address()))
    }

    /// Returns the address that identifies this shard in `POLLING`.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
