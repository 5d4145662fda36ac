//! The waiters of a transfer machine, and their notifications beside events: messages for which
//! there was no buffer.

use std::sync::Arc;
use std::time::Duration;

use lnet_api::{Drive, Errno, Sleeper};
use nlx_bev_cqueue::Heap;
use nlx_fallible::TryArc;
use nlx_sync::{AtomicBool, AtomicU64, OnceLock, Ordering, RuleEnd};

use crate::agreed::{BELL, LOSS};
use crate::event_sink::{EventSink, LossSink, News};
use crate::network::AnomalyCounters;

/// Poll interval of a waiter that could not get a descriptor to sleep on; long enough to leave the
/// processor to other threads.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The waiters of a transfer machine: a thread, and the event loop of a program. Each has a
/// sleeper, so that one thread may wait while another runs the event loop.
///
/// The thread's sleeper is made by the first wait. A transfer machine without waiters has no
/// descriptor, so that a process limited to 1,024 descriptors can have thousands of them.
#[derive(Default)]
pub(crate) struct Waiters {
    /// The waiters' spin limit.
    spin: Duration,
    thread: OnceLock<Arc<Sleeper>>,
    event_loop: OnceLock<Arc<Sleeper>>,
}

impl Waiters {
    /// Returns the sleeper of the waiting thread, which must call this before it checks its
    /// condition.
    pub(crate) fn sleeper(&self) -> Result<&Arc<Sleeper>, Errno> {
        if let Some(sleeper) = self.thread.get() {
            return Ok(sleeper);
        }
        let made = Arc::new(Sleeper::new()?.spinning(self.spin));
        Ok(self.thread.get_or_init(|| made))
    }

    /// Adds the event loop's sleeper to those that are woken.
    pub(crate) fn set_event_loop(&self, sleeper: &Arc<Sleeper>) {
        self.event_loop.get_or_init(|| {
            sleeper.spin_for(self.spin);
            sleeper.clone()
        });
    }

    /// Wakes the sleeping waiters after news; costs no system call while none sleeps.
    pub(crate) fn wake(&self) {
        let thread = self.thread.get().or_else(|| {
            // SYNC kcore.bell: with the fence in `Sleeper::prepare`. Either the sleeper that is
            // being made is seen here, or its owner's check after `prepare` sees the news.
            BELL.fence(RuleEnd::Load);
            self.thread.get()
        });
        if let Some(thread) = thread {
            thread.wake();
        }
        // SYNC kcore.bell: either that fence or the one in `Sleeper::wake` has been executed.
        if let Some(event_loop) = self.event_loop.get() {
            event_loop.wake();
        }
    }
}

/// The sink of a transfer machine's events and losses. It outlives the transfer machine while a
/// thread that drops messages for it needs it.
#[derive(Default)]
pub(crate) struct LocalSink {
    pub(crate) waiters: Waiters,
    /// Messages that were lost for want of a receive buffer (X13).
    dropped: AtomicU64,
    /// Set by a loss, and cleared by [`LocalSink::take_news`].
    news: AtomicBool,
}

impl EventSink for LocalSink {
    type Memory = Heap;

    #[inline]
    fn ring(this: &TryArc<LocalSink>, _: News) {
        this.waiters.wake();
    }

    #[cold]
    fn overrun(&self, faults: &AnomalyCounters) {
        faults.overruns.fetch_add(1, Ordering::Relaxed);
        // Cannot happen while every operation reserves its events first.
        debug_assert!(false, "no room for an event");
    }
}

impl LossSink for LocalSink {
    /// Counts a lost message. Wakes the waiter if this is the first one since
    /// [`LocalSink::take_news`].
    fn lost(&self) {
        // SYNC kcore.loss. Relaxed would do here; loom orders the additions of several threads only
        // this way.
        self.dropped.fetch_add(1, LOSS.chain());
        if !self.news.swap(true, LOSS.chain()) {
            self.waiters.wake();
        }
    }
}

impl LocalSink {
    /// Creates it for waiters with this spin limit.
    pub(crate) fn new(spin: Duration) -> LocalSink {
        LocalSink { waiters: Waiters { spin, ..Waiters::default() }, ..LocalSink::default() }
    }

    /// Returns whether messages were lost since the last call; for the waiter alone.
    pub(crate) fn take_news(&self) -> bool {
        // SYNC kcore.loss
        self.news.load(Ordering::Relaxed) && self.news.swap(false, LOSS.chain())
    }

    /// Returns the number of lost messages.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// [`lnet_api::wait_until`] for a process without a free descriptor: drives, and polls its
/// condition periodically.
pub(crate) fn wait_without_sleeper(
    drive: &dyn Drive,
    deadline_ns: Option<u64>,
    mut ready: impl FnMut() -> bool,
) -> bool {
    loop {
        let work = drive.poll_free_shards().work;
        if ready() {
            return true;
        }
        if drive.has_ended() || deadline_ns.is_some_and(|deadline| drive.now_ns() >= deadline) {
            return false;
        }
        if work == 0 {
            let left = deadline_ns.map(|deadline_ns| Duration::from_nanos(drive.sleep_ns(deadline_ns)));
            std::thread::sleep(left.unwrap_or(POLL_INTERVAL).min(POLL_INTERVAL));
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use lnet_api::Clock;
    use lnet_fake::FakeDrive;

    use super::*;

    // Covers: MT-230
    #[test]
    fn a_waiter_without_a_descriptor_waits_all_the_same() {
        let drive = FakeDrive::new();
        drive.clock().set_now_ns(1_000);
        assert!(
            wait_without_sleeper(&*drive, Some(0), || true),
            "what is there is seen whatever the deadline"
        );
        assert!(!wait_without_sleeper(&*drive, Some(1_000), || false));
        assert!(!wait_without_sleeper(&*drive, Some(2_000), || false));
        assert_eq!(drive.now_ns(), 2_000);
        let news = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| wait_without_sleeper(&*drive, None, || news.load(Ordering::Acquire)));
            news.store(true, Ordering::Release);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn no_thread_is_woken_before_a_wait() {
        let waiters = Waiters::default();
        waiters.wake();
        assert!(waiters.thread.get().is_none(), "waking makes no descriptor");
        let first = waiters.sleeper().unwrap().clone();
        assert!(Arc::ptr_eq(&first, waiters.sleeper().unwrap()));
    }
}
