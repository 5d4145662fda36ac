//! The inbox: received messages, and the tasks that wait for one.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use super::slot::wake;
use nlx_sync::Mutex;

/// A queue of values, each for the first task that asks. Queued messages keep their receive buffers
/// busy, so the buffers' room limits their number.
#[derive(Debug)]
pub(crate) struct Inbox<T>(Mutex<InboxState<T>>);

#[derive(Debug)]
struct InboxState<T> {
    values: VecDeque<T>,
    /// Waiting tasks in order of arrival. Each is woken for one value, and waits again if another
    /// task was faster.
    tasks: VecDeque<(u64, Waker)>,
    last_ticket: u64,
    closed: bool,
}

/// The place of a waiting task in the queue.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Option<u64>);

impl<T> Inbox<T> {
    pub(crate) fn new() -> Inbox<T> {
        Inbox(Mutex::new(InboxState {
            values: VecDeque::new(),
            tasks: VecDeque::new(),
            last_ticket: 0,
            closed: false,
        }))
    }

    pub(crate) fn push(&self, value: T) {
        let mut state = self.0.lock();
        state.values.push_back(value);
        let task = state.tasks.pop_front();
        drop(state);
        wake(task.map(|(_, waker)| waker));
    }

    /// Takes the next value; `None` if the inbox is empty and closed.
    pub(crate) fn poll(&self, ticket: &mut Ticket, waker: &Waker) -> Poll<Option<T>> {
        let waker = waker.clone();
        let mut state = self.0.lock();
        let value = state.values.pop_front();
        if value.is_none() && !state.closed {
            let before = state.enqueue(ticket, waker);
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        let before = state.withdraw(ticket);
        drop(state);
        drop(before);
        Poll::Ready(value)
    }

    /// Ends a task's wait. If it was woken already, wakes another task instead.
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        if ticket.0.is_none() {
            return;
        }
        let mut state = self.0.lock();
        let before = state.withdraw(ticket);
        let next = match before {
            None if !state.values.is_empty() => state.tasks.pop_front(),
            _ => None,
        };
        drop(state);
        drop(before);
        wake(next.map(|(_, waker)| waker));
    }

    /// Closes the inbox: queued values can still be taken.
    pub(crate) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        for (_, waker) in tasks {
            wake(Some(waker));
        }
    }
}

impl<T> InboxState<T> {
    /// Adds a task at the end of the queue, or keeps its place; returns the waker that it had.
    fn enqueue(&mut self, ticket: &mut Ticket, waker: Waker) -> Option<Waker> {
        if let Some(position) = self.position(ticket) {
            return Some(std::mem::replace(&mut self.tasks[position].1, waker));
        }
        self.last_ticket += 1;
        self.tasks.push_back((self.last_ticket, waker));
        *ticket = Ticket(Some(self.last_ticket));
        None
    }

    /// Removes a task from the queue; `None` if it is not there, because it has been woken.
    fn withdraw(&mut self, ticket: &mut Ticket) -> Option<Waker> {
        let position = self.position(ticket);
        *ticket = Ticket(None);
        self.tasks.remove(position?).map(|(_, waker)| waker)
    }

    fn position(&self, ticket: &Ticket) -> Option<usize> {
        self.tasks.binary_search_by_key(&ticket.0?, |task| task.0).ok()
    }
}
