//! The threads that wait for a transfer machine, and a program's own loop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

/// Who waits, or is about to.
#[derive(Default)]
pub(crate) struct Waiters {
    /// Held while a thread sleeps in the transport; others that want to wait, wait for it. What the client is called back with
    /// while it is held may wait itself, and stop the machine.
    turn: ReentrantMutex<()>,
    /// Threads that wait, and the program's loop while it sleeps.
    count: AtomicUsize,
    /// The program's loop is about to sleep, or sleeps.
    armed: AtomicBool,
}

/// Counts a thread among those that wait, as long as it lives.
pub(crate) struct Waiting<'a>(&'a Waiters);

impl Waiters {
    /// Waits until no other thread waits, for this long at the most; `None` if one still does then.
    pub(crate) fn take_turn(&self, rest: Option<Duration>) -> Option<ReentrantMutexGuard<'_, ()>> {
        match rest {
            None => Some(self.turn.lock()),
            Some(rest) => self.turn.try_lock_for(rest),
        }
    }

    /// This thread begins to wait. To be called before it looks for the earliest deadline, and for events.
    pub(crate) fn enter(&self) -> Waiting<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Waiting(self)
    }

    /// Whether anybody may be asleep.
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    /// Whether another waiter or an armed event loop may be asleep, or about to be; `own` is the caller's wait, if it waits.
    pub(crate) fn others_than(&self, own: Option<&Waiting<'_>>) -> bool {
        self.count.load(Ordering::SeqCst) > usize::from(own.is_some())
    }

    /// The program's loop is about to sleep. To be called before it looks for the earliest deadline, and for events.
    pub(crate) fn arm(&self) {
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The loop is back. Whether it was away.
    pub(crate) fn disarm(&self) -> bool {
        let was = self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::SeqCst);
        if was {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        was
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
