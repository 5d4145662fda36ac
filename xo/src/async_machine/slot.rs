//! Where a value waits for its task, or a task for its value.
//!
//! Three may meet at a slot in any order: who brings the value (once), the task that polls, and the task that loses its
//! interest. Each step is one hold of the slot's lock; what belongs to others (wakers, values) is run and dropped outside of
//! it, by the caller.

use std::mem::replace;
use std::task::{Poll, Waker};

use crate::panics::contain;
use nlx_sync::Mutex;

/// One value on its way to one task.
#[derive(Debug)]
pub(crate) struct Slot<T>(Mutex<State<T>>);

#[derive(Debug)]
enum State<T> {
    /// Nobody uses it.
    Free,
    /// The value is to come. The task, once it has asked.
    Waiting(Option<Waker>),
    /// The value has come.
    Ready(T),
    /// The value is to come, and nobody wants it.
    Abandoned,
    /// No value comes any more.
    Closed,
}

/// What became of a value that was brought.
#[must_use = "a task is to be woken, or a value to be dropped"]
pub(crate) enum Brought<T> {
    /// It lies there for the task, which is to be woken if it has asked.
    Kept(Option<Waker>),
    /// Nobody wants it any more. The slot is free.
    Unwanted(T),
    /// The slot was to get none.
    Surplus(T),
}

/// What was found by a task that lost its interest.
#[must_use = "a value is to be dropped, or to be hurried"]
pub(crate) enum Left<T> {
    /// The value, or that none comes: the slot is free.
    Over(Option<T>),
    /// It is to come still, and will be unwanted.
    ToCome,
}

impl<T> Slot<T> {
    /// A slot that is to get a value.
    pub(crate) fn waiting() -> Slot<T> {
        Slot(Mutex::new(State::Waiting(None)))
    }

    /// Takes a free slot into use.
    pub(crate) fn begin(&self) {
        *self.0.lock() = State::Waiting(None);
    }

    /// Brings the value.
    pub(crate) fn bring(&self, value: T) -> Brought<T> {
        let mut state = self.0.lock();
        match replace(&mut *state, State::Free) {
            State::Waiting(waker) => {
                *state = State::Ready(value);
                Brought::Kept(waker)
            }
            State::Abandoned => Brought::Unwanted(value),
            other => {
                *state = other;
                Brought::Surplus(value)
            }
        }
    }

    /// The value, or `None` if none will come; the slot is free then. Else the task is woken when there is one.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Option<T>> {
        let waker = waker.clone();
        let mut state = self.0.lock();
        match replace(&mut *state, State::Free) {
            State::Waiting(before) => {
                *state = State::Waiting(Some(waker));
                drop(state);
                drop(before);
                Poll::Pending
            }
            State::Ready(value) => Poll::Ready(Some(value)),
            other => {
                *state = other;
                drop(state);
                Poll::Ready(None)
            }
        }
    }

    /// The task has lost its interest.
    pub(crate) fn leave(&self) -> Left<T> {
        let mut state = self.0.lock();
        match replace(&mut *state, State::Free) {
            State::Waiting(waker) => {
                *state = State::Abandoned;
                drop(state);
                drop(waker);
                Left::ToCome
            }
            State::Ready(value) => Left::Over(Some(value)),
            other => {
                *state = other;
                Left::Over(None)
            }
        }
    }

    /// No value will come any more; one that has come stays.
    pub(crate) fn close(&self) -> Option<Waker> {
        let mut state = self.0.lock();
        match replace(&mut *state, State::Closed) {
            State::Waiting(waker) => waker,
            ready @ State::Ready(_) => {
                *state = ready;
                None
            }
            _ => None,
        }
    }
}

/// Wakes a task. Its waker is somebody else's code: one that panics harms nobody else.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker
        && contain(|| waker.wake()).is_err()
    {
        tracing::error!("the waker of a task has panicked");
    }
}
