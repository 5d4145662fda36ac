//! Waiting for events, and timeouts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nlx_core::{BufferEvent, Errno, Queue};
use parking_lot::ReentrantMutexGuard;

use super::State;
use crate::operations::{Op, Reason};
use crate::{Error, Event, Machine, Message, OpId, TmState};

/// How soon a timed out operation is cancelled again that another thread had entered, but not yet started.
const CANCEL_AGAIN_NS: u64 = 1_000_000;

impl Machine {
    /// Waits for the next event, and moves the network forward meanwhile. `None` when the timeout has passed; a timeout of 0
    /// looks once, `None` as timeout waits without end.
    ///
    /// # Errors
    /// ESHUTDOWN when the transfer machine is stopped, or its node has been shut down, and all its events have been given;
    /// EINVAL if its events go to a callback.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        self.check_waited()?;
        self.next(timeout)
    }

    /// The same for whoever it is that gets the events.
    pub(crate) fn next(&self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        let there = self.look();
        if !matches!(there, Ok(None)) {
            return there;
        }
        let deadline_ns = timeout.map(|timeout| self.deadline(timeout));
        let Some(_turn) = self.take_turn(deadline_ns) else { return self.look() };
        let _waiting = Waiting::new(&self.waiters);
        let mut slept = false;
        loop {
            let there = self.look();
            if !matches!(there, Ok(None)) {
                return there;
            }
            if slept && deadline_ns.is_some_and(|deadline_ns| self.now_ns() >= deadline_ns) {
                return Ok(None);
            }
            self.tm.event_wait(self.earlier(deadline_ns));
            slept = true;
            if self.tm.has_ended() {
                // The end came after what it gave the last events of.
                return self.look()?.map(Some).ok_or(Error::Ended);
            }
        }
    }

    /// The next event, if there is one, after moving the network forward once; does not sleep.
    ///
    /// # Errors
    /// As [`Machine::wait`].
    pub fn poll(&self) -> Result<Option<Event>, Error> {
        self.check_waited()?;
        if self.disarm() {
            self.tm.poll();
        }
        let there = self.look();
        if !matches!(there, Ok(None)) {
            return there;
        }
        self.tm.poll();
        self.look()
    }

    /// The next event, if there is one already; the network is not moved forward. For programs that work on all there is
    /// before they wait again.
    ///
    /// # Errors
    /// As [`Machine::wait`].
    pub fn take(&self) -> Result<Option<Event>, Error> {
        self.check_waited()?;
        self.look()
    }

    /// Whether an event waits to be taken; asking changes nothing (MT-231).
    pub fn pending(&self) -> bool {
        self.domain.is_here() && (!self.inner.lock().backlog.is_empty() || self.tm.pending())
    }

    pub(crate) fn check_waited(&self) -> Result<(), Error> {
        self.domain.check_here()?;
        if self.callbacks.is_some() { Err(Error::Delivery) } else { Ok(()) }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.domain.core().now_ns()
    }

    /// This deadline or that of an operation, whichever is earlier.
    pub(crate) fn earlier(&self, deadline_ns: Option<u64>) -> Option<u64> {
        let earliest_ns = self.earliest_ns.load(Ordering::Acquire);
        Some(earliest_ns.min(deadline_ns.unwrap_or(u64::MAX))).filter(|earlier_ns| *earlier_ns != u64::MAX)
    }

    pub(crate) fn take_turn(&self, deadline_ns: Option<u64>) -> Option<ReentrantMutexGuard<'_, ()>> {
        match deadline_ns {
            None => Some(self.turn.lock()),
            Some(deadline_ns) => {
                self.turn.try_lock_for(Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns())))
            }
        }
    }

    /// Acts on timeouts, and gives the next event that is for the client.
    fn look(&self) -> Result<Option<Event>, Error> {
        loop {
            self.expire();
            self.tell_drops();
            let mut inner = self.inner.lock();
            let mut taken = match inner.backlog.pop_front() {
                None => self.next_event(&mut inner),
                kept => kept,
            };
            let state = inner.state;
            let failed = inner.failing && state == TmState::Stopping;
            drop(inner);
            if let Some(event) = &mut taken {
                if event.queue == Queue::MessageReceive && event.is_last() {
                    self.top_up();
                }
                let Some(owner) = event.owner.take() else { return Ok(taken) };
                let passed = taken.and_then(|event| owner.event(event));
                if passed.is_some() {
                    owner.given();
                    return Ok(passed);
                }
                continue;
            }
            match state {
                TmState::Stopped | TmState::Failed => return Err(Error::NotStarted { state }),
                _ if failed && self.end_if_idle()? => {}
                _ => return Ok(None),
            }
        }
    }

    /// Cancels what has timed out.
    pub(crate) fn expire(&self) {
        let earliest_ns = self.earliest_ns.load(Ordering::Acquire);
        if earliest_ns == u64::MAX {
            return;
        }
        let now_ns = self.now_ns();
        if now_ns < earliest_ns {
            return;
        }
        while let Some((id, handle)) = self.next_expired(now_ns) {
            if self.tm.cancel(handle, id.cookie()).is_err() {
                self.cancel_again(id, now_ns.saturating_add(CANCEL_AGAIN_NS));
            }
        }
    }

    fn next_expired(&self, now_ns: u64) -> Option<(OpId, nlx_core::BufferHandle)> {
        let mut inner = self.inner.lock();
        let (_, slot) = inner.deadlines.first().filter(|(deadline_ns, _)| *deadline_ns <= now_ns)?;
        inner.deadlines.remove(slot);
        self.note_earliest(&inner);
        let id = inner.operations.in_slot(slot)?;
        let op = inner.operations.find(id)?;
        op.reason.get_or_insert(Reason::TimedOut);
        Some((id, op.buffer.handle()))
    }

    /// The transport does not know the operation: its last event waits to be taken, or it has not been started yet.
    fn cancel_again(&self, id: OpId, deadline_ns: u64) {
        let mut inner = self.inner.lock();
        if inner.operations.find(id).is_some() {
            inner.deadlines.set(id.slot(), deadline_ns);
            self.note_earliest(&inner);
        }
    }

    /// Ends the sleep of a waiter that does not know of this deadline yet.
    pub(crate) fn hurry(&self, deadline_ns: u64) {
        // A waiter counts itself before it looks for the earliest deadline, under the lock that has just been held. If this
        // deadline is past already, the next one may be that of a thread which has left the wake-up to this one.
        if self.waiters.load(Ordering::SeqCst) > 0 && self.earliest_ns.load(Ordering::SeqCst) >= deadline_ns {
            self.tm.wake();
        }
    }

    pub(super) fn note_earliest(&self, inner: &State) {
        let earliest_ns = inner.deadlines.first().map_or(u64::MAX, |(deadline_ns, _)| deadline_ns);
        self.earliest_ns.store(earliest_ns, Ordering::SeqCst);
    }

    pub(super) fn drop_deadline(&self, inner: &mut State, id: OpId) {
        if inner.deadlines.remove(id.slot()) {
            self.note_earliest(inner);
        }
    }

    /// Takes an event from the transport. Under the lock, so that the events of an operation keep their order whoever takes
    /// them.
    pub(super) fn next_event(&self, inner: &mut State) -> Option<Event> {
        let mut raw = self.tm.event_get()?;
        while inner.operations.find(OpId::from_cookie(raw.cookie)).is_none() {
            tracing::error!(cookie = raw.cookie, "an event of an operation that is over");
            raw = self.tm.event_get()?;
        }
        self.event(inner, &raw)
    }

    /// What the transport's event means to the client (motr-transport 9.5).
    fn event(&self, inner: &mut State, raw: &BufferEvent) -> Option<Event> {
        let op = OpId::from_cookie(raw.cookie);
        let found = inner.operations.find(op)?;
        let (queue, tag, owner) = (found.queue, found.buffer.tag(), found.owner.clone());
        let (mut status, mut length) = (status_of(found, raw), 0);
        let mut message = None;
        if status.is_ok() {
            length = if queue.receives() { raw.length as usize } else { found.length };
        }
        if queue == Queue::MessageReceive && status.is_ok() {
            match Message::lend(&found.buffer, raw.offset as usize, length) {
                Ok(lent) => message = Some(lent),
                Err(error) => (status, length) = (Err(error.errno()), 0),
            }
        }
        let after = Duration::from_nanos(raw.time_ns);
        inner.statistics.event(queue, status, length, raw.unlinked().then_some(after));
        Some(Event {
            op,
            queue,
            status,
            length,
            offset: raw.offset as usize,
            sender: raw.sender().map(|address| self.end_points.find(address)),
            message,
            buffer: if raw.unlinked() { self.finish(inner, op) } else { None },
            tag,
            after,
            owner,
        })
    }

    fn finish(&self, inner: &mut State, id: OpId) -> Option<crate::Buffer> {
        self.drop_deadline(inner, id);
        let op = inner.operations.leave(id)?;
        inner.posted[op.queue.index()] -= 1;
        Some(op.buffer)
    }
}

/// A timeout is carried out by cancelling; the client learns which of the two it was (X1).
fn status_of(op: &Op, raw: &BufferEvent) -> Result<(), Errno> {
    match raw.status() {
        Err(Errno::ECANCELED) if op.reason == Some(Reason::TimedOut) => Err(Errno::ETIMEDOUT),
        status => status,
    }
}

/// Counts a thread among those that wait, as long as it lives.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    pub(crate) fn new(waiters: &'a AtomicUsize) -> Waiting<'a> {
        waiters.fetch_add(1, Ordering::SeqCst);
        Waiting(waiters)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
