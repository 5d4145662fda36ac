//! The end of an event thread's callbacks.

use std::cell::Cell;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

thread_local! {
    static IS_EVENT_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Whether a callback runs in this thread: it must not wait for other callbacks to end, which may wait for it.
pub(crate) fn is_event_thread() -> bool {
    IS_EVENT_THREAD.get()
}

/// This thread calls back from now on.
pub(crate) fn enter_event_thread() {
    IS_EVENT_THREAD.set(true);
}

/// Whether the event thread has called its last callback.
#[derive(Default)]
pub(crate) struct Callbacks {
    ended: Mutex<bool>,
    end: Condvar,
}

impl Callbacks {
    /// The last callback has been called, or none will be.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.end.notify_all();
    }

    /// Waits for the last callback as long as `rest` says, asked before each sleep; without end if it says nothing. False when
    /// that has passed.
    pub(crate) fn wait(&self, rest: impl Fn() -> Option<Duration>) -> bool {
        let mut ended = self.ended.lock();
        while !*ended {
            match rest() {
                None => self.end.wait(&mut ended),
                Some(rest) => {
                    if self.end.wait_for(&mut ended, rest).timed_out() && !*ended {
                        return false;
                    }
                }
            }
        }
        true
    }
}
