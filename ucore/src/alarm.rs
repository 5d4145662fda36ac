//! Waking whoever waits for a transfer machine.

use std::sync::OnceLock;

use nlx_bev_cqueue::wake::Waker;
use nlx_bev_cqueue::{Heap, SharedMemory};

/// Who may be asleep for a transfer machine: the thread that waits, and an event loop.
#[derive(Debug)]
pub(crate) struct Alarm {
    thread: Waker<SharedMemory>,
    /// Once a program has asked for a descriptor.
    elsewhere: OnceLock<Waker<Heap>>,
}

impl Alarm {
    pub(crate) fn new(queue: SharedMemory) -> Alarm {
        Alarm { thread: Waker::futex(queue), elsewhere: OnceLock::new() }
    }

    /// Wakes this one, too.
    pub(crate) fn set_elsewhere(&self, waker: Waker<Heap>) {
        // There is one event loop.
        let _ = self.elsewhere.set(waker);
    }

    /// Whoever has news has made it visible before. Costs no system call while nobody sleeps.
    pub(crate) fn ring(&self) {
        point!(AlarmDue);
        // No error: a futex cannot be wrong, and the event loop's descriptor is ours.
        let _ = self.thread.wake();
        // After the fence in `wake`: either the loop's waker is seen here, or the loop, which looks once more after it has
        // announced sleep, sees the news.
        if let Some(elsewhere) = self.elsewhere.get() {
            let _ = elsewhere.wake();
        }
    }
}
