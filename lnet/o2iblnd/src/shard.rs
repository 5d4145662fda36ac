//! The verbs LND's data of a shard.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lnet_lnd::admission::Permit;
use lnet_lnd::shard_table::ShardTable;
use lnet_proto::ib::ConnOffer;
use parking_lot::Mutex;

use crate::conn::OpKey;
use crate::connection::Connection;
use crate::fabric::{Channel, ConnRequest};
use crate::o2ib::Ni;
use crate::op_data::{AskedGet, PendingGet};

/// The requests to a shard's driver that only the verbs LND has.
pub enum O2ibRequest {
    /// A peer of this shard has connected through another shard's listener.
    Offered(Box<Offered>),
    /// A bounce buffer is free for this operation.
    Prepare(Arc<Connection>, OpKey),
    /// A bounce buffer is free for this GET.
    BeginGet(Box<PendingGet>),
}

/// A peer's request to connect that this node can grant.
pub struct Offered {
    pub(crate) request: Box<dyn ConnRequest>,
    pub(crate) offer: ConnOffer,
    pub(crate) ni: Arc<Ni>,
    pub(crate) permit: Permit,
}

/// The verbs LND's data of a shard: its channel, and the GETs that the engine answers.
pub struct ShardData {
    pub(crate) channel: Arc<dyn Channel>,
    /// GETs that wait for the engine's answer.
    pub(crate) gets: Mutex<ShardTable<AskedGet>>,
    now_ns: AtomicU64,
}

impl lnet_lnd::protocol::ShardData for ShardData {
    fn wake(&self) {
        self.channel.ring();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }
}

impl ShardData {
    pub(crate) fn new(number: usize, channel: Arc<dyn Channel>) -> ShardData {
        // The number fits: there are at most MAX_SHARDS shards.
        let gets = Mutex::new(ShardTable::new(number as u8));
        ShardData { channel, gets, now_ns: AtomicU64::new(0) }
    }

    /// Returns the time of the last poll, for threads without a clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    /// Sets the time of the current poll.
    pub(crate) fn set_now_ns(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::Relaxed);
    }
}
