//! Threads that wait for events of a transfer machine, and the program's event loop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// The threads that wait, or are about to, and the armed event loop.
#[derive(Default)]
pub(crate) struct MachineWaiters {
    /// Held while a thread waits in the transport; other threads wait for this lock. Reentrant,
    /// because client code that is called while it is held may wait too, and stop the machine.
    turn: ReentrantMutex<()>,
    /// The number of waiting threads, plus 1 while the event loop is armed.
    count: AtomicUsize,
    /// The event loop is about to sleep, or sleeps.
    armed: AtomicBool,
}

/// Counts a thread as waiting until it is dropped.
pub(crate) struct WaiterGuard<'a>(&'a MachineWaiters);

impl MachineWaiters {
    /// Waits until no other thread waits, at most for `rest`. Returns `None` if another thread
    /// still waits then.
    pub(crate) fn take_turn(&self, rest: Option<Duration>) -> Option<ReentrantMutexGuard<'_, ()>> {
        match rest {
            None => Some(self.turn.lock()),
            Some(rest) => self.turn.try_lock_for(rest),
        }
    }

    /// Counts this thread as waiting. Call it before reading the earliest deadline, and before
    /// checking for events.
    pub(crate) fn enter(&self) -> WaiterGuard<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        WaiterGuard(self)
    }

    /// Returns whether a thread or the armed event loop waits, and so might be asleep.
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Returns whether another waiter or an armed event loop might be asleep, or be about to sleep;
    /// `own` is the caller's wait, if it waits.
    pub(crate) fn others_than(&self, own: Option<&WaiterGuard<'_>>) -> bool {
        self.count.load(Ordering::SeqCst) > usize::from(own.is_some())
    }

    /// Announces that the event loop is about to sleep. Call it before reading the earliest
    /// deadline, and before checking for events.
    pub(crate) fn arm(&self) {
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Ends the announcement of [`MachineWaiters::arm`]. Returns whether there was one.
    pub(crate) fn disarm(&self) -> bool {
        let was = self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::SeqCst);
        if was {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        was
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
