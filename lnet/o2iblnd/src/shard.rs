use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_lnd::admission::Permit;
use lnet_lnd::slab::Slab;
use lnet_proto::ib::Offer;
use parking_lot::Mutex;

use crate::conn::Key as OpKey;
use crate::connection::Connection;
use crate::fabric::{Channel, Request};
use crate::item::{AskedGet, PendingGet};
use crate::o2ib::Ni;

/// What is asked of a shard's driver over verbs alone.
pub enum Asked {
    /// A peer of this shard has asked another one's listener.
    Offered(Box<Offered>),
    /// There is a bounce buffer for this operation.
    Prepare(Arc<Connection>, OpKey),
    /// There is a bounce buffer for this GET.
    BeginGet(Box<PendingGet>),
}

/// A request that this node can grant.
pub struct Offered {
    pub(crate) request: Box<dyn Request>,
    pub(crate) offer: Offer,
    pub(crate) ni: Arc<Ni>,
    pub(crate) permit: Permit,
}

/// What a shard has over verbs: its channel, and the GETs that the engine answers.
pub struct OfShard {
    pub(crate) channel: Arc<dyn Channel>,
    /// GETs whose answer is awaited.
    pub(crate) gets: Mutex<Slab<AskedGet>>,
    now_ns: AtomicU64,
}

impl lnet_lnd::protocol::OfShard for OfShard {
    fn wake(&self) {
        self.channel.ring();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

impl OfShard {
    pub(crate) fn new(number: usize, channel: Arc<dyn Channel>) -> OfShard {
        // There are no more than MAX_SHARDS shards.
        let gets = Mutex::new(Slab::new(number as u8));
        OfShard { channel, gets, now_ns: AtomicU64::new(0) }
    }

    /// The time of the last poll, for those who have no clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// A poll begins.
    pub(crate) fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
    }
}
