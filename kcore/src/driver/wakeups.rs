//! Wake-ups of clients, gathered over one step of a service thread's work.
//!
//! A poll of the network or a slice of a submission ring often brings dozens of events for one client. Woken by the first of
//! them, a client that shares a processor with this thread takes one event, sleeps, and is woken by the second: a futex call
//! and two context switches for each message. So a client is woken at the end of the step, once for all its events.
//!
//! Only wake-ups wait. An event is visible as soon as it is in its queue, and a client that is awake takes it then.
//!
//! A wake-up waits for little: a step ends with the poll or the slice, [`GATHERED_MAX`] events end the wait, and so does every
//! event of a bulk transfer, for what follows that one may take as long as it did. Between clients of one helper such an event
//! ends the wait when all of its operation is done ([`whole`]): else the client whose buffer was read could take the processor before
//! the client that reads it has its event.

use std::cell::{Cell, RefCell};

use nlx_fallible::TryArc;

use super::outlet::Outlet;
use crate::taker::News;

/// Events whose wake-ups are gathered: half of what a poll handles. More would leave a client on another processor without
/// work for longer, and save little.
pub(super) const GATHERED_MAX: u32 = 32;

thread_local! {
    /// The step that this thread is in.
    static STEP: Cell<Option<Step>> = const { Cell::new(None) };
    /// The transfer machines whose wake-ups wait; at most as many as events.
    static OUTLETS: RefCell<Vec<TryArc<Outlet>>> = const { RefCell::new(Vec::new()) };
}

/// How far a step has come.
#[derive(Debug, Clone, Copy, Default)]
struct Step {
    /// Events whose wake-ups wait.
    events: u32,
    /// They wait no longer than for the end of the operation.
    is_due: bool,
    /// An operation is being carried out.
    is_within: bool,
}

/// Runs a step of this thread's work, and then wakes the clients that sleep and have events of it, also if it panics. A step
/// inside another ends with the outer one.
pub(super) fn gathered<R>(step: impl FnOnce() -> R) -> R {
    let _end = (STEP.get().is_none() && has_room()).then(|| {
        STEP.set(Some(Step::default()));
        End
    });
    step()
}

/// Carries out one operation within a step: none of its events wakes a client before all of it is done.
pub(super) fn whole<R>(operation: impl FnOnce() -> R) -> R {
    STEP.set(STEP.get().map(|step| Step { is_within: true, ..step }));
    // After a panic the step ends.
    let done = operation();
    if let Some(step) = STEP.get() {
        STEP.set(Some(Step { is_within: false, ..step }));
        if step.is_due {
            wake_all();
        }
    }
    done
}

/// Wakes the client of a transfer machine if it sleeps: at the end of the step, if this thread is in one and the news can
/// wait.
pub(super) fn wake(outlet: &TryArc<Outlet>, news: News) {
    let Some(step) = STEP.get() else { return outlet.wake() };
    let events = step.events + 1;
    let is_due = step.is_due || news == News::Bulk || events >= GATHERED_MAX;
    // One operation has few events; however many there are, the list has room for so many.
    if events > GATHERED_MAX || !note(outlet) {
        return outlet.wake();
    }
    STEP.set(Some(Step { events, is_due, ..step }));
    if is_due && !step.is_within {
        wake_all();
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
            // There is room: each stands for an event that has been counted.
            outlets.push(outlet.clone());
        }
    });
    noted.is_ok()
}

/// Wakes all that were noted. The latest comes first: of a transfer between clients it is the one that has asked for it.
fn wake_all() {
    if let Some(step) = STEP.get() {
        STEP.set(Some(Step { events: 0, is_due: false, ..step }));
    }
    // Not borrowed while one is woken or dropped.
    while let Ok(Some(outlet)) = OUTLETS.try_with(|outlets| outlets.borrow_mut().pop()) {
        outlet.wake();
    }
}

/// The end of a step.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        STEP.set(None);
        wake_all();
    }
}
