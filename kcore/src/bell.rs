//! Waking the thread that waits for a transfer machine's events.

use std::sync::Arc;
use std::time::Duration;

use lnet_api::{Drive, Errno, EventFd, Sleeper};
use nlx_sync::{End, OnceLock};

use crate::agreed::BELL;

/// How often a waiter looks that could not get a descriptor to sleep on: seldom enough to leave the processor to others.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// What the waiter of a transfer machine sleeps on. It is made by the first wait: a transfer machine that nobody waits for
/// holds no descriptor, so that thousands of them fit into a process that may have 1,024.
///
/// A program that sleeps in a loop of its own has another sleeper, so that one thread may do the one and another the other.
#[derive(Default)]
pub(crate) struct Bell {
    waiter: OnceLock<Arc<dyn Sleeper>>,
    elsewhere: OnceLock<Arc<dyn Sleeper>>,
}

impl Bell {
    /// For the waiter, before it looks whether there is something to wait for.
    pub(crate) fn sleeper(&self) -> Result<&Arc<dyn Sleeper>, Errno> {
        self.sleeper_or(|| Ok(Arc::new(EventFd::new()?)))
    }

    /// The same, with the sleeper itself left open: a model checker cannot sleep in the kernel.
    pub(crate) fn sleeper_or(
        &self,
        make: impl FnOnce() -> Result<Arc<dyn Sleeper>, Errno>,
    ) -> Result<&Arc<dyn Sleeper>, Errno> {
        if let Some(sleeper) = self.waiter.get() {
            return Ok(sleeper);
        }
        let made = make()?;
        Ok(self.waiter.get_or_init(|| made))
    }

    /// Whoever has news wakes this one, too.
    pub(crate) fn set_elsewhere(&self, sleeper: &Arc<dyn Sleeper>) {
        self.elsewhere.get_or_init(|| sleeper.clone());
    }

    /// For whoever has news; costs no system call while nobody sleeps.
    pub(crate) fn ring(&self) {
        let sleeper = self.waiter.get().or_else(|| {
            // SYNC kcore.bell: with the fence in `Sleeper::prepare`. Either the sleeper that is being made is seen here, or
            // its owner's look after `prepare` sees the news.
            BELL.fence(End::Load);
            self.waiter.get()
        });
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
        // SYNC kcore.bell: there was a fence, that one or the one in `Sleeper::wake`.
        if let Some(elsewhere) = self.elsewhere.get() {
            elsewhere.wake();
        }
    }
}

/// [`lnet_api::wait_until`] for a process that has no descriptor left: drives, and looks from time to time.
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
            std::thread::sleep(left.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL));
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use lnet_api::Clock;
    use lnet_fake::FakeDrive;

    use super::*;

    // MT-230
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
    fn nobody_is_woken_before_somebody_has_waited() {
        let bell = Bell::default();
        bell.ring();
        assert!(bell.waiter.get().is_none(), "ringing makes no descriptor");
        let first = bell.sleeper().unwrap().clone();
        assert!(Arc::ptr_eq(&first, bell.sleeper().unwrap()));
    }
}
