//! What [`CoreTm::wake`](crate::CoreTm::wake) leaves for a wait to find.

use nlx_sync::{AtomicBool, Ordering};

/// A wake-up without an event: one look finds it and takes it.
///
/// It wakes nothing by itself: its transport wakes the sleeper after it has asked for the wake-up.
#[derive(Debug, Default)]
pub struct WakeUp(AtomicBool);

impl WakeUp {
    /// Asks for it. The thread that takes it sees what was stored before.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Takes it away; returns whether it was asked for.
    #[inline]
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}
