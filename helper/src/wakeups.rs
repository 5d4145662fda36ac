//! Wake-ups of clients, gathered over one step of a service thread's work.
//!
//! A poll of the network or a slice of a submission ring often brings dozens of events for one client. Woken by the first of
//! them, a client that shares a processor with this thread takes one event, sleeps, and is woken by the second: a futex call
//! and two context switches for each message. So a client is woken at the end of the step, once for all its events.
//!
//! Only wake-ups wait. An event is visible as soon as it is in its queue, and a client that is awake takes it then.
//!
//! A wake-up waits for little: a step ends with the poll or the slice, [`GATHERED_MAX`] events end the wait, and so does every
//! event of a bulk transfer, for what follows that one may take as long as it did. (To hold that wake-up back until the whole
//! operation is done was measured: transfers between two clients of one helper became 12 % slower.)

use std::cell::{Cell, RefCell};

use nlx_fallible::TryArc;
use nlx_kcore::News;

use super::outlet::Outlet;

/// Events whose wake-ups are gathered: half of what a poll handles. More would leave a client on another processor without
/// work for longer, and save little.
pub(super) const GATHERED_MAX: u32 = 32;

thread_local! {
    /// Events whose wake-ups wait; `None` outside of a step.
    static WAITING: Cell<Option<u32>> = const { Cell::new(None) };
    /// The transfer machines that have them; at most as many.
    static OUTLETS: RefCell<Vec<TryArc<Outlet>>> = const { RefCell::new(Vec::new()) };
}

/// Runs a step of this thread's work, and then wakes the clients that sleep and have events of it, also if it panics. A step
/// inside another ends with the outer one.
pub(super) fn gathered<R>(step: impl FnOnce() -> R) -> R {
    let _end = (WAITING.get().is_none() && has_room()).then(|| {
        WAITING.set(Some(0));
        End
    });
    step()
}

/// Wakes the client of a transfer machine if it sleeps: at the end of the step, if this thread is in one and the news can
/// wait.
pub(super) fn wake(outlet: &TryArc<Outlet>, news: News) {
    let Some(events) = WAITING.get() else { return outlet.wake() };
    if !note(outlet) {
        return outlet.wake();
    }
    WAITING.set(Some(events + 1));
    if news == News::Bulk || events + 1 >= GATHERED_MAX {
        wake_all();
        WAITING.set(Some(0));
    }
}

/// Whether there is memory for all that may be noted: asked for once in a thread's life, or again without memory.
fn has_room() -> bool {
    OUTLETS
        .try_with(|outlets| outlets.borrow_mut().try_reserve_exact(GATHERED_MAX as usize).is_ok())
        .unwrap_or(false)
}

/// Notes a transfer machine once; false if the thread is about to end.
fn note(outlet: &TryArc<Outlet>) -> bool {
    let noted = OUTLETS.try_with(|outlets| {
        let mut outlets = outlets.borrow_mut();
        // Events often come for one client in a row: the latest is looked at first.
        if !outlets.iter().rev().any(|known| TryArc::ptr_eq(known, outlet)) {
            // Does not allocate: at most `GATHERED_MAX` events are gathered, each adds one entry at most, and `has_room` has reserved
            // as many.
            outlets.push(outlet.clone());
        }
    });
    noted.is_ok()
}

/// Wakes all that were noted.
fn wake_all() {
    // Not borrowed while one is woken or dropped.
    while let Ok(Some(outlet)) = OUTLETS.try_with(|outlets| outlets.borrow_mut().pop()) {
        outlet.wake();
    }
}

/// The end of a step.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        WAITING.set(None);
        wake_all();
    }
}
