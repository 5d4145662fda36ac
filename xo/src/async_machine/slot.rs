//! A slot passes one value to one task.
//!
//! Three parties use a slot in any order: the thread that delivers the value (once), the task that
//! polls, and the drop of the task's future. Each step takes the slot's lock once. Foreign code
//! (wakers, drops of values) runs after the lock is released, in the caller.

use std::mem::replace;
use std::task::{Poll, Waker};

use crate::panics::contain;
use nlx_sync::Mutex;

/// A one-shot cell that passes one value to one task.
#[derive(Debug)]
pub(crate) struct CompletionSlot<T>(Mutex<SlotState<T>>);

#[derive(Debug)]
enum SlotState<T> {
    /// Not in use.
    Free,
    /// Waiting for the value; has the task's waker once it has polled.
    Waiting(Option<Waker>),
    /// Holds the value.
    Ready(T),
    /// Waiting for the value, but the task has left.
    Abandoned,
    /// No value will come.
    Closed,
}

/// Result of [`CompletionSlot::deliver`].
#[must_use = "the caller wakes the task, or drops the value"]
pub(crate) enum Delivered<T> {
    /// The slot keeps the value; the task's waker, if it has polled.
    Kept(Option<Waker>),
    /// The task has left, and the value is returned. The slot is free.
    Unwanted(T),
    /// The slot did not wait for a value, which is returned.
    Surplus(T),
}

/// Result of [`CompletionSlot::leave`].
#[must_use = "the caller drops the value, or cancels the operation that will deliver it"]
pub(crate) enum Left<T> {
    /// The value, or `None` if none will come: the slot is free.
    Over(Option<T>),
    /// The value is outstanding; [`CompletionSlot::deliver`] will return it to its caller.
    ToCome,
}

impl<T> CompletionSlot<T> {
    /// Creates a slot that waits for a value.
    pub(crate) fn waiting() -> CompletionSlot<T> {
        CompletionSlot(Mutex::new(SlotState::Waiting(None)))
    }

    /// Makes a free slot wait for a value.
    pub(crate) fn begin(&self) {
        *self.0.lock() = SlotState::Waiting(None);
    }

    /// Puts the value into the slot.
    pub(crate) fn deliver(&self, value: T) -> Delivered<T> {
        let mut state = self.0.lock();
        match replace(&mut *state, SlotState::Free) {
            SlotState::Waiting(waker) => {
                *state = SlotState::Ready(value);
                Delivered::Kept(waker)
            }
            SlotState::Abandoned => Delivered::Unwanted(value),
            other => {
                *state = other;
                Delivered::Surplus(value)
            }
        }
    }

    /// Returns the value and frees the slot, or returns `None` if no value will come. While the
    /// value is outstanding, stores the waker and returns `Pending`.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Option<T>> {
        let waker = waker.clone();
        let mut state = self.0.lock();
        match replace(&mut *state, SlotState::Free) {
            SlotState::Waiting(before) => {
                *state = SlotState::Waiting(Some(waker));
                drop(state);
                drop(before);
                Poll::Pending
            }
            SlotState::Ready(value) => Poll::Ready(Some(value)),
            other => {
                *state = other;
                drop(state);
                Poll::Ready(None)
            }
        }
    }

    /// Cancels the task's wait, when its future is dropped.
    pub(crate) fn leave(&self) -> Left<T> {
        let mut state = self.0.lock();
        match replace(&mut *state, SlotState::Free) {
            SlotState::Waiting(waker) => {
                *state = SlotState::Abandoned;
                drop(state);
                drop(waker);
                Left::ToCome
            }
            SlotState::Ready(value) => Left::Over(Some(value)),
            other => {
                *state = other;
                Left::Over(None)
            }
        }
    }

    /// Marks that no value will come, unless there is one already. Returns the waker of the waiting
    /// task.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut state = self.0.lock();
        match replace(&mut *state, SlotState::Closed) {
            SlotState::Waiting(waker) => waker,
            ready @ SlotState::Ready(_) => {
                *state = ready;
                None
            }
            _ => None,
        }
    }
}

/// Wakes a task. The waker is foreign code: its panic is caught.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker
        && contain(|| waker.wake()).is_err()
    {
        tracing::error!("the waker of a task has panicked");
    }
}
