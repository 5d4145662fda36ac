//! What the waiter of a transfer machine is told beside its events: messages for which it had no buffer.

use nlx_bev_cqueue::Heap;
use nlx_sync::{AtomicBool, AtomicU64, Ordering};

use crate::agreed::LOSS;
use crate::bell::Bell;
use crate::network::FaultCounters;
use crate::taker::{Losses, Taker};

/// A transfer machine as whoever drops messages for it sees it. It outlives the transfer machine as long as one of them
/// needs it.
#[derive(Default)]
pub(crate) struct Notices {
    pub(crate) bell: Bell,
    /// Messages that were lost for want of a receive buffer (X13).
    dropped: AtomicU64,
    /// The waiter has not heard of some of them.
    news: AtomicBool,
}

impl Taker for Notices {
    type Memory = Heap;

    #[inline]
    fn ring(&self) {
        self.bell.ring();
    }

    #[cold]
    fn overrun(&self, faults: &FaultCounters) {
        faults.overruns.fetch_add(1, Ordering::Relaxed);
        // Never while every operation reserves its events first.
        debug_assert!(false, "no room for an event");
    }
}

impl Losses for Notices {
    /// However many are lost, the waiter is woken once until it has taken notice.
    fn lost(&self) {
        // SYNC kcore.loss. Relaxed would do here; loom orders the additions of several threads only this way.
        self.dropped.fetch_add(1, LOSS.chain());
        if !self.news.swap(true, LOSS.chain()) {
            self.bell.ring();
        }
    }
}

impl Notices {
    /// Whether messages were lost since this was asked last; for the waiter alone.
    pub(crate) fn take_news(&self) -> bool {
        // SYNC kcore.loss
        self.news.load(Ordering::Relaxed) && self.news.swap(false, LOSS.chain())
    }

    /// How many messages were lost.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
