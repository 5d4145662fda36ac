//! Wake-ups of clients, batched over one step of a service thread's work.
//!
//! A poll of the network or a slice of a submission ring often brings dozens of events for one
//! client. If the first of them woke a client that shares a processor with this thread, the client
//! would take one event, sleep, and be woken by the second: a futex call and two context switches
//! for each message. So a client is woken at the end of the step, once for all its events.
//!
//! Only wake-ups are delayed. An event is visible as soon as it is in its queue, and a client that
//! is awake takes it then.
//!
//! The delay is short: a step ends with the poll or the slice, after [`GATHERED_MAX`] events, or
//! with an event of a bulk transfer, because the next one may take as long as that transfer.
//! (Delaying that wake-up until the whole operation is done was measured: transfers between two
//! clients of one helper became 12 % slower.)

use std::cell::{Cell, RefCell};

use nlx_fallible::TryArc;
use nlx_kcore::News;

use super::client_sink::ClientSink;

/// Events whose wake-ups are batched: half of what a poll handles. More would leave a client on
/// another processor without work for longer, and save little.
pub(super) const GATHERED_MAX: u32 = 32;

thread_local! {
    /// Number of events whose wake-ups are delayed; `None` outside of a step.
    static WAITING: Cell<Option<u32>> = const { Cell::new(None) };
    /// The transfer machines of these events; at most one for each event.
    static OUTLETS: RefCell<Vec<TryArc<ClientSink>>> = const { RefCell::new(Vec::new()) };
}

/// Runs a step of this thread's work, and then wakes the sleeping clients that got events in it,
/// also if it panics. A nested step ends with the outer one.
pub(super) fn gathered<R>(step: impl FnOnce() -> R) -> R {
    let _end = (WAITING.get().is_none() && has_room()).then(|| {
        WAITING.set(Some(0));
        End
    });
    step()
}

/// Wakes the client of a transfer machine if it sleeps: at the end of the step, if this thread is
/// in one and the news can be delayed.
pub(super) fn wake(sink: &TryArc<ClientSink>, news: News) {
    let Some(events) = WAITING.get() else { return sink.wake() };
    if !note(sink) {
        return sink.wake();
    }
    WAITING.set(Some(events + 1));
    if news == News::Bulk || events + 1 >= GATHERED_MAX {
        wake_all();
        WAITING.set(Some(0));
    }
}

/// Returns whether the list of transfer machines has its full capacity. It is reserved once for
/// each thread; without memory, the next step tries again.
fn has_room() -> bool {
    OUTLETS
        .try_with(|sinks| sinks.borrow_mut().try_reserve_exact(GATHERED_MAX as usize).is_ok())
        .unwrap_or(false)
}

/// Adds a transfer machine to the list once. Returns false if the thread is about to end.
fn note(sink: &TryArc<ClientSink>) -> bool {
    let noted = OUTLETS.try_with(|sinks| {
        let mut sinks = sinks.borrow_mut();
        // Events often come for one client in a row, so the latest entry is compared first.
        if !sinks.iter().rev().any(|known| TryArc::ptr_eq(known, sink)) {
            // Does not allocate: at most `GATHERED_MAX` events are batched, each adds one entry at
            // most, and `has_room` has reserved that number.
            sinks.push(sink.clone());
        }
    });
    noted.is_ok()
}

/// Wakes the clients of all transfer machines in the list.
fn wake_all() {
    // The list is not borrowed while a client is woken or a sink is dropped.
    while let Ok(Some(sink)) = OUTLETS.try_with(|sinks| sinks.borrow_mut().pop()) {
        sink.wake();
    }
}

/// Ends a step when dropped.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        WAITING.set(None);
        wake_all();
    }
}
