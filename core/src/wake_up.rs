//! The flag that [`CoreTm::wake`](crate::CoreTm::wake) sets for a wait.

use nlx_sync::{AtomicBool, Ordering};

/// A pending wake-up without an event; the first wait that checks it consumes it.
///
/// It wakes no thread itself: the transport sets it, then wakes the sleeper.
#[derive(Debug, Default)]
pub struct WakeUp(AtomicBool);

impl WakeUp {
    /// Sets the flag. The thread that clears it sees everything stored before.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Clears the flag; returns whether it was set.
    #[inline]
    #[must_use]
    pub fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}
