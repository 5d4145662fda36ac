//! Stopping a transfer machine.

use std::time::Duration;

use nlx_core::{BufferHandle, Errno};

use crate::operations::Reason;
use crate::{Error, OpId, TmState, TransferMachine};

/// How long a dropped transfer machine waits for its operations to end; they have all been cancelled.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a stop looks again at what nothing wakes it for: another thread between entering an operation and starting
/// it, or LNet between its last event and letting go of the memory.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl TransferMachine {
    /// Ends the transfer machine. It takes no more operations; those in flight are cancelled with `abort`, else awaited (a
    /// receive buffer waits for ever). Their events, buffers with them, are given by [`TransferMachine::wait`] before and
    /// after the stop. Stopping twice does nothing.
    ///
    /// # Errors
    /// [`Error::StopTimedOut`] (ETIMEDOUT) if operations are still in flight when the timeout has passed; it can be called
    /// again, with abort for instance. `None` waits without end.
    pub fn stop(&self, abort: bool, timeout: Option<Duration>) -> Result<(), Error> {
        let deadline_ns = timeout.map(|timeout| self.deadline(timeout));
        if !self.begin_stop() {
            return Ok(());
        }
        loop {
            self.expire();
            if abort {
                self.cancel_all();
            }
            self.drain();
            if self.end_if_idle()? {
                return Ok(());
            }
            if deadline_ns.is_some_and(|deadline_ns| self.now_ns() >= deadline_ns) {
                return Err(Error::StopTimedOut { in_flight: self.in_flight() });
            }
            self.sleep(deadline_ns);
        }
    }

    /// False if it is stopped already.
    fn begin_stop(&self) -> bool {
        let mut inner = self.inner.lock();
        if inner.state == TmState::Started {
            inner.state = TmState::Stopping;
        }
        inner.state == TmState::Stopping
    }

    /// Cancels what is in flight and has not been cancelled yet.
    fn cancel_all(&self) {
        for (id, handle) in self.not_cancelled() {
            if self.tm.cancel(handle, id.cookie()).is_ok()
                && let Some(op) = self.inner.lock().operations.find(id)
            {
                op.cancel_sent = true;
            }
        }
    }

    fn not_cancelled(&self) -> Vec<(OpId, BufferHandle)> {
        let mut inner = self.inner.lock();
        let mut found = Vec::new();
        let crate::machine::State { operations, statistics, .. } = &mut *inner;
        for (id, op) in operations.iter_mut().filter(|(_, op)| !op.cancel_sent) {
            if op.reason.is_none() {
                op.reason = Some(Reason::Cancelled);
                statistics.of(op.queue).cancels += 1;
            }
            found.push((id, op.buffer.handle()));
        }
        found
    }

    /// Takes the events there are, for whoever waits now or later.
    fn drain(&self) {
        let mut inner = self.inner.lock();
        let before = inner.backlog.len();
        while let Some(event) = self.next_event(&mut inner) {
            inner.backlog.push_back(event);
        }
        let found = inner.backlog.len() > before;
        drop(inner);
        if found {
            self.tm.wake();
        }
    }

    fn end_if_idle(&self) -> Result<bool, Error> {
        if self.in_flight() > 0 {
            return Ok(false);
        }
        match self.tm.stop() {
            Ok(()) => {}
            Err(error) if error.errno() == Errno::EBUSY => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.inner.lock().state = TmState::Stopped;
        self.tm.wake();
        Ok(true)
    }

    /// Sleeps until there is an event, or for a moment. If another thread waits, that one moves the network forward.
    fn sleep(&self, deadline_ns: Option<u64>) {
        let soon_ns = self.deadline(LOOK_AGAIN);
        let until_ns = deadline_ns.map_or(soon_ns, |deadline_ns| deadline_ns.min(soon_ns));
        if let Some(_turn) = self.take_turn(Some(until_ns)) {
            self.tm.event_wait(self.earlier(Some(until_ns)));
        }
    }
}

impl Drop for TransferMachine {
    fn drop(&mut self) {
        if let Err(error) = self.stop(true, Some(DROP_TIMEOUT)) {
            tracing::warn!(address = %self.address(), %error, "a transfer machine dropped in use");
        }
    }
}
