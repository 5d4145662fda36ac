//! Stopping a transfer machine.

use std::sync::atomic::Ordering;
use std::time::Duration;

use nlx_core::{CoreError, Errno};

use crate::panics::contain;
use crate::thread::is_event_thread;
use crate::{Error, Event, Machine, TmEvent, TmState};

/// The time for which the drop of a transfer machine waits for its operations to end; all of them
/// have been cancelled.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which a stop checks for two conditions whose end wakes no thread: another thread
/// has entered an operation but not yet started it, or LNet has delivered a last event but not yet
/// released the memory.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);

/// The treatment of operations in flight by a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Cancels the operations in flight.
    Abort,
    /// Lets the operations in flight end. A receive ends only when it has all its messages, or is
    /// cancelled: the stop waits for that.
    Drain,
}

impl Machine {
    /// Stops the transfer machine. It accepts no more operations; those in flight are cancelled or
    /// run to their end. Their events, which return the buffers, come from
    /// [`TransferMachine::wait`](crate::TransferMachine::wait) before and after the stop. With
    /// callbacks, this returns after the last callback, unless it is called in a callback. Stopping
    /// twice does nothing.
    ///
    /// # Errors
    /// [`Error::StopTimedOut`] (ETIMEDOUT) if operations are still in flight, or callbacks
    /// outstanding, when the timeout has passed; call `stop` again, with [`Stop::Abort`] for
    /// instance. `None` waits without limit. [`CoreError::QueueCorrupt`] (EIO) if the program has
    /// overwritten the event queue: the machine has failed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use nlx::{Domain, NodeConfig, Op, Stop, TmOptions};
    ///
    /// let domain = Domain::in_process(&NodeConfig::new())?;
    /// let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// tm.start(Op::receive(domain.allocate(64)?))?;
    /// // No message comes.
    /// let late = tm.stop(Stop::Drain, Some(Duration::from_millis(1))).unwrap_err();
    /// assert_eq!(late.to_string(), "the transfer machine has not stopped in time: 1 operation is in flight");
    /// tm.stop(Stop::Abort, None)?;
    /// assert!(tm.wait(None)?.is_some_and(|event| event.buffer.is_some()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stop(&self, how: Stop, timeout: Option<Duration>) -> Result<(), Error> {
        self.domain.check_here()?;
        let deadline_ns = timeout.map(|timeout| self.deadline(timeout));
        if self.begin_stop(false) {
            self.end_operations(how, deadline_ns)?;
        }
        self.await_callbacks(deadline_ns)
    }

    /// Makes the machine fail: a callback of the client has panicked, or the node has been shut
    /// down below an event thread.
    pub(crate) fn fail(&self) {
        if !self.begin_stop(true) {
            return;
        }
        let deadline_ns = self.deadline(DROP_TIMEOUT);
        if let Err(error) = self.end_operations(Stop::Abort, Some(deadline_ns)) {
            tracing::warn!(address = %self.address(), %error, "a failed transfer machine could not be stopped");
        }
    }

    /// Stops the machine when its owner is dropped. Returns false if operations or callbacks did
    /// not end in time.
    pub(crate) fn stop_at_drop(&self) -> bool {
        if !self.domain.in_owner_process() {
            // In a forked child: the machine and its thread belong to the parent.
            return false;
        }
        let stopped = self.stop(Stop::Abort, Some(DROP_TIMEOUT));
        if let Err(error) = &stopped {
            tracing::warn!(address = %self.address(), %error, "a dropped transfer machine could not be stopped");
        }
        stopped.is_ok()
    }

    fn end_operations(&self, how: Stop, deadline_ns: Option<u64>) -> Result<(), Error> {
        loop {
            self.expire();
            if how == Stop::Abort {
                self.cancel_all();
            }
            if let Err(error) = self.drain() {
                // The events that would end its operations are lost: it can only fail.
                self.operations.fail();
                self.tm.wake();
                return Err(error.into());
            }
            if self.end_if_idle()? {
                return Ok(());
            }
            if deadline_ns.is_some_and(|deadline_ns| self.now_ns() >= deadline_ns) {
                return Err(Error::StopTimedOut { in_flight: self.in_flight() });
            }
            self.sleep(deadline_ns);
        }
    }

    /// Waits until the event thread has called its last callback.
    fn await_callbacks(&self, deadline_ns: Option<u64>) -> Result<(), Error> {
        let Some(callbacks) = self.callbacks.as_ref().filter(|_| !is_event_thread()) else { return Ok(()) };
        match callbacks.wait(|| self.time_left(deadline_ns)) {
            true => Ok(()),
            false => Err(Error::StopTimedOut { in_flight: self.in_flight() }),
        }
    }

    /// Called when the event thread has returned from its last callback, or could not be started.
    pub(crate) fn callbacks_ended(&self) {
        if let Some(callbacks) = &self.callbacks {
            callbacks.end();
        }
    }

    /// Makes the machine fail because its event thread could not be started.
    pub(crate) fn fail_to_start(&self, errno: Errno) {
        self.callbacks_ended();
        self.operations.fail();
        if let Err(error) = self.tm.stop() {
            tracing::warn!(address = %self.address(), %error, "a transfer machine without its event thread could not be stopped");
        }
        self.report_state(TmState::Failed, Err(errno));
    }

    /// Calls the observer with a new state.
    pub(crate) fn report_state(&self, state: TmState, status: Result<(), Errno>) {
        let end_point = (state == TmState::Started).then(|| self.own_end_point().clone());
        self.notify_observer(&TmEvent::State { state, status, end_point });
    }

    /// Calls the observer if messages have been dropped since the last call.
    pub(crate) fn report_drops(&self) {
        let total = self.tm.dropped();
        if total == self.dropped_reported.load(Ordering::Relaxed) {
            return;
        }
        let before = self.dropped_reported.fetch_max(total, Ordering::Relaxed);
        if before < total {
            self.notify_observer(&TmEvent::NoBuffer { messages: total - before, total });
        }
    }

    fn notify_observer(&self, event: &TmEvent) {
        if let Some(observer) = &self.observer
            && contain(|| observer(self, event)).is_err()
        {
            tracing::error!(address = %self.address(), "an observer has panicked: its transfer machine fails");
            self.fail();
        }
    }

    /// Returns false if the machine is stopped already.
    fn begin_stop(&self, failing: bool) -> bool {
        let stopping = self.operations.begin_stop(failing);
        self.provisioner.as_ref().inspect(|provisioner| provisioner.end());
        stopping
    }

    /// Cancels the operations in flight that have not been cancelled yet.
    fn cancel_all(&self) {
        for (id, handle) in self.operations.cancel_all() {
            if self.tm.cancel(handle, id.cookie()).is_ok() {
                self.operations.cancel_sent(id);
            }
        }
    }

    /// Moves the transport's events into the backlog, for threads that wait now or later. Events of
    /// owned operations go to their owners at once, which may start others.
    fn drain(&self) -> Result<(), CoreError> {
        let mut found = false;
        loop {
            let (kept, owned) = self.operations.keep_events(&*self.tm, &self.end_points)?;
            found |= kept;
            let Some((owner, event)) = owned else { break };
            if let Some(passed) = owner.event(event) {
                self.operations.keep(passed);
                owner.delivered();
                found = true;
            }
        }
        if found {
            self.tm.wake();
        }
        Ok(())
    }

    /// Queues an event that does not come from the transport.
    pub(crate) fn deliver(&self, event: Event) {
        self.operations.keep(event);
        self.tm.wake();
    }

    /// Returns true when the machine has stopped.
    pub(crate) fn end_if_idle(&self) -> Result<bool, Error> {
        // A large transfer may be between two of its parts.
        if self.in_flight() > 0 || !self.larges.is_empty() {
            return Ok(false);
        }
        match self.tm.stop() {
            // The connection to the helper is lost, which has stopped the machine.
            Ok(()) | Err(CoreError::Disconnected { .. }) => {}
            Err(error) if error.errno() == Errno::EBUSY => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let (before, after) = self.operations.end_stop();
        self.tm.wake();
        match (before, after) {
            // Another thread has reported the end already.
            (TmState::Stopped | TmState::Failed, _) => {}
            (_, TmState::Failed) if self.tm.has_ended() => self.report_state(after, Err(Errno::ESHUTDOWN)),
            (_, TmState::Failed) => self.report_state(after, Err(Errno::ECANCELED)),
            // The event thread reports this after its last callback.
            _ if self.callbacks.is_some() => {}
            _ => self.report_state(after, Ok(())),
        }
        Ok(true)
    }

    /// Sleeps until an event arrives, at most `CHECK_INTERVAL`. If another thread waits, that thread
    /// drives the network.
    fn sleep(&self, deadline_ns: Option<u64>) {
        let soon_ns = self.deadline(CHECK_INTERVAL);
        let until_ns = deadline_ns.map_or(soon_ns, |deadline_ns| deadline_ns.min(soon_ns));
        if let Some(_turn) = self.take_turn(Some(until_ns)) {
            self.tm.event_wait(self.operations.earlier(Some(until_ns)));
        }
    }
}
