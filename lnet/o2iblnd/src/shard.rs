use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_api::{Delivery, Errno};
use parking_lot::Mutex;

use crate::conn::Key as OpKey;
use crate::connection::Connection;
use crate::counters::Counters;
use crate::driver::Offered;
use crate::fabric::Channel;
use crate::item::{PendingGet, Rx};
use crate::peer::Peer;
use lnet_lnd::Requests;
use lnet_lnd::slab::{Key, Slab};

/// What any thread may ask of a shard's driver.
pub(crate) enum Request {
    /// A peer of this shard has asked another one's listener.
    Offered(Box<Offered>),
    /// Messages wait for this peer.
    Connect(Arc<Peer>),
    /// How many connections this peer may have was set.
    Complete(Arc<Peer>),
    /// Something failed on a connection.
    Broken(Key, Errno),
    /// Go on with a message that was held.
    Resume(Key, Option<Delivery>),
    /// There is a bounce buffer for this operation.
    Prepare(Arc<Connection>, OpKey),
    /// There is a bounce buffer for this GET.
    BeginGet(Box<PendingGet>),
}

/// What senders and the driver of one shard share: its channel, what is asked of it, and the receives that the engine can name.
pub(crate) struct Shard {
    pub(crate) number: usize,
    pub(crate) channel: Arc<dyn Channel>,
    pub(crate) counters: Counters,
    /// Receives that are held back, or whose answer is awaited.
    pub(crate) receives: Mutex<Slab<Rx>>,
    /// The time of the last poll.
    now_ns: AtomicU64,
    pub(crate) requests: Requests<Request>,
}

thread_local! {
    /// The shard that this thread is polling at this moment, or 0.
    static POLLING: Cell<usize> = const { Cell::new(0) };
}

/// Marks the calling thread as polling a shard, until it is dropped.
pub(crate) struct PollingHere(usize);

impl Drop for PollingHere {
    fn drop(&mut self) {
        POLLING.set(self.0);
    }
}

impl Shard {
    pub(crate) fn new(number: usize, channel: Arc<dyn Channel>) -> Shard {
        Shard {
            number,
            channel,
            counters: Counters::default(),
            // There are no more than MAX_SHARDS shards.
            receives: Mutex::new(Slab::new(number as u8)),
            now_ns: AtomicU64::new(0),
            requests: Requests::default(),
        }
    }

    /// Asks the driver for something, and wakes it if it sleeps. The first request of a batch wakes: the driver takes all
    /// of them at once.
    pub(crate) fn request(&self, request: Request) {
        if self.requests.push(request) && !self.is_polling_here() {
            self.counters.tx.wakeups.one();
            self.channel.ring();
        }
    }

    /// Whether the next poll has something to do that the channel does not know of.
    pub(crate) fn has_work(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The time of the last poll, for those who have no clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Marks the calling thread as polling until the guard is dropped.
    pub(crate) fn polling_here(&self, now_ns: u64) -> PollingHere {
        self.now_ns.store(now_ns, Ordering::Relaxed);
        PollingHere(POLLING.replace(self.address()))
    }

    /// Whether the calling thread is inside this shard's poll.
    pub(crate) fn is_polling_here(&self) -> bool {
        POLLING.get() == self.address()
    }

    /// What threads know this shard by.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
