//! The end of event threads, and a mark of the threads that are event threads.

use std::cell::Cell;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

thread_local! {
    static IS_EVENT_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether this is an event thread: it must not wait for another machine's last callback,
/// which may wait for it.
pub(crate) fn is_event_thread() -> bool {
    IS_EVENT_THREAD.get()
}

/// Marks this thread as an event thread.
pub(crate) fn enter_event_thread() {
    IS_EVENT_THREAD.set(true);
}

/// The state of the event thread: running, or returned from its last callback. Threads can wait
/// for the end.
#[derive(Default)]
pub(crate) struct Callbacks {
    ended: Mutex<bool>,
    end: Condvar,
}

impl Callbacks {
    /// Records that the last callback has returned, or that none will be called.
    pub(crate) fn end(&self) {
        *self.ended.lock() = true;
        self.end.notify_all();
    }

    /// Waits for the last callback, at most for the time that `rest` returns, called before each
    /// sleep; `None` is without limit. Returns false if that time has passed.
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
