//! Waiting for events, in a call or in a program's event loop; timeouts of operations.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use nlx_core::Queue;
use parking_lot::ReentrantMutexGuard;

use crate::operations::NextEvent;
use crate::waiters::WaiterGuard;
use crate::{Error, Event, Machine, TmState, TransferMachine};

/// Delay before the next attempt to cancel a timed out operation that another thread had entered
/// but not yet started.
const CANCEL_AGAIN_NS: u64 = 1_000_000;

/// Taking events.
impl TransferMachine {
    /// Waits for the next event, and drives the network while it waits. Returns `None` when the
    /// timeout has passed. A timeout of 0 polls once; `None` as timeout waits without limit.
    ///
    /// # Errors
    /// ESHUTDOWN when the transfer machine is stopped, or its node has been shut down, and all its
    /// events have been taken; EINVAL if its events go to a callback; EIO if the program has
    /// overwritten the event queue.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        self.waited()?.next(timeout)
    }

    /// Returns the next event, if there is one, after polling the network once; does not sleep.
    ///
    /// # Errors
    /// The errors of [`TransferMachine::wait`].
    pub fn poll(&self) -> Result<Option<Event>, Error> {
        let machine = self.waited()?;
        if machine.waiters.disarm() {
            machine.tm.poll();
        }
        if let Some(event) = machine.next_ready(None)? {
            return Ok(Some(event));
        }
        machine.tm.poll();
        machine.next_ready(None)
    }

    /// Returns the next event, if there is one already; does not drive the network. For programs
    /// that handle all events before they wait again.
    ///
    /// # Errors
    /// The errors of [`TransferMachine::wait`].
    pub fn take(&self) -> Result<Option<Event>, Error> {
        self.waited()?.next_ready(None)
    }

    /// Returns whether an event is ready to be taken; the call changes nothing (MT-231).
    pub fn pending(&self) -> bool {
        self.machine.domain.in_owner_process()
            && (self.machine.operations.has_events() || self.machine.tm.pending())
    }

    /// Returns a descriptor for a program with an event loop (epoll, poll, io_uring, mio). It
    /// becomes readable when the program should call [`TransferMachine::poll`]: there is an event,
    /// the network needs to be driven, or the timeout of an operation has passed. It is valid while
    /// the machine exists, and the same at each call. Use only its readability: read nothing from
    /// it.
    ///
    /// Call [`TransferMachine::arm`] before each sleep:
    ///
    /// ```text
    ///    the loop                            the transfer machine
    ///    ────────                            ────────────────────
    ///    poll() until it gives None    ───>  takes events, moves the network forward
    ///    arm() ── false: poll() again  ───>  checks for events, then watches the network, the clock and drivers
    ///      │ true
    ///    epoll_wait(…)                 <───  makes the descriptor readable
    ///    poll() …                      ───>  stops watching
    /// ```
    ///
    /// ```
    /// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    /// use nlx::{Domain, NodeConfig, Op, TmOptions};
    ///
    /// let domain = Domain::in_process(&NodeConfig::new())?;
    /// let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// tm.start(Op::receive(domain.allocate(64)?))?;
    /// let other = domain.transfer_machine("0@lo:12345:31:2", TmOptions::default())?;
    /// other.start(Op::send(domain.buffer_of(b"hello")?, &other.end_point("0@lo:12345:31:1")?))?;
    /// let message = loop {
    ///     if let Some(event) = tm.poll()? {
    ///         break event.message;
    ///     }
    ///     if tm.arm()? {
    ///         // Together with the program's other descriptors.
    ///         poll(&mut [PollFd::new(tm.descriptor()?, PollFlags::POLLIN)], PollTimeout::NONE)?;
    ///     }
    /// };
    /// assert_eq!(message.as_deref(), Some(&b"hello"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Other threads may wait for events of the same machine, or of other machines of the node: the
    /// thread that drives the network wakes the loop when an event of this machine arrives. While
    /// the program does not run its loop, the node's scheduler threads drive the network.
    ///
    /// # Errors
    /// EINVAL if the events go to a callback, EOPNOTSUPP if the transport has no such descriptor,
    /// EMFILE or ENFILE.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        Ok(self.waited()?.tm.descriptor()?)
    }

    /// Announces that the program is about to sleep on [`TransferMachine::descriptor`]. Returns
    /// true if it may sleep, and false if it must call [`TransferMachine::poll`] first. The
    /// announcement holds until the next poll.
    ///
    /// # Errors
    /// The errors of [`TransferMachine::descriptor`], and ENOMEM.
    pub fn arm(&self) -> Result<bool, Error> {
        let machine = self.waited()?;
        // From here on, a thread that starts an operation with an earlier deadline wakes the loop,
        // and a thread that takes events takes one at a time, so that the remaining events stay in
        // the transport's queue, where they wake the loop.
        machine.waiters.arm();
        // Events taken from the transport before, or its end.
        if machine.operations.has_news() {
            return Ok(false);
        }
        loop {
            let deadline_ns = machine.operations.earlier(None);
            if !machine.tm.arm(deadline_ns)? {
                return Ok(false);
            }
            // An earlier deadline that was set before the announcement did not wake the loop.
            let latest_ns = machine.operations.earlier(None).unwrap_or(u64::MAX);
            if latest_ns >= deadline_ns.unwrap_or(u64::MAX) {
                return Ok(true);
            }
        }
    }

    /// Returns the machine, unless an event thread takes its events.
    fn waited(&self) -> Result<&Machine, Error> {
        self.machine.domain.check_here()?;
        if self.machine.callbacks.is_some() { Err(Error::Delivery) } else { Ok(&self.machine) }
    }
}

impl Machine {
    /// Waits for the next event; [`TransferMachine::wait`] and the event thread call this.
    pub(crate) fn next(&self, timeout: Option<Duration>) -> Result<Option<Event>, Error> {
        if let Some(event) = self.next_ready(None)? {
            return Ok(Some(event));
        }
        let deadline_ns = timeout.map(|timeout| self.deadline(timeout));
        let Some(_turn) = self.take_turn(deadline_ns) else { return self.next_ready(None) };
        let waiting = self.waiters.enter();
        let mut slept = false;
        loop {
            if let Some(event) = self.next_ready(Some(&waiting))? {
                return Ok(Some(event));
            }
            if slept && deadline_ns.is_some_and(|deadline_ns| self.now_ns() >= deadline_ns) {
                return Ok(None);
            }
            self.tm.event_wait(self.operations.earlier(deadline_ns));
            slept = true;
            if self.tm.has_ended() {
                // Events that arrived before the end are still to be taken.
                return self.next_ready(Some(&waiting))?.map(Some).ok_or(Error::Ended);
            }
        }
    }

    /// Waits until no other thread waits, at most until the deadline.
    pub(super) fn take_turn(&self, deadline_ns: Option<u64>) -> Option<ReentrantMutexGuard<'_, ()>> {
        self.waiters.take_turn(self.time_left(deadline_ns))
    }

    /// Returns the time left until the deadline.
    pub(super) fn time_left(&self, deadline_ns: Option<u64>) -> Option<Duration> {
        deadline_ns.map(|deadline_ns| Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns())))
    }

    /// Handles timeouts, and returns the client's next event. `own` is the caller's wait, if it
    /// waits.
    fn next_ready(&self, own: Option<&WaiterGuard<'_>>) -> Result<Option<Event>, Error> {
        loop {
            self.expire();
            self.report_drops();
            let sleeps = || self.waiters.others_than(own);
            let NextEvent { event: mut taken, state, is_failing } =
                self.operations.next(&*self.tm, &self.end_points, sleeps)?;
            if let Some(event) = &mut taken {
                if event.queue == Queue::MessageReceive && event.is_last() {
                    self.top_up();
                }
                let Some(owner) = event.owner.take() else { return Ok(taken) };
                let passed = taken.and_then(|event| owner.event(event));
                if passed.is_some() {
                    owner.delivered();
                    return Ok(passed);
                }
                continue;
            }
            match state {
                TmState::Stopped | TmState::Failed => return Err(Error::NotStarted { state }),
                _ if is_failing && self.end_if_idle()? => {}
                _ => return Ok(None),
            }
        }
    }

    /// Cancels the operations whose timeout has passed.
    pub(super) fn expire(&self) {
        let Some(earliest_ns) = self.operations.earlier(None) else { return };
        let now_ns = self.now_ns();
        if now_ns < earliest_ns {
            return;
        }
        while let Some((id, handle)) = self.operations.next_expired(now_ns) {
            if self.tm.cancel(handle, id.cookie()).is_err() {
                self.operations.expire_again(id, now_ns.saturating_add(CANCEL_AGAIN_NS));
            }
        }
    }

    /// Wakes a waiter that may sleep past this deadline.
    pub(super) fn wake_for(&self, deadline_ns: u64) {
        // A waiter counts itself before it reads the earliest deadline, under the lock that was
        // just held. Another thread may have removed this deadline already, if it has passed. The
        // earliest one may then belong to a thread that did not wake the waiter, because this
        // deadline came before its own: so the waiter is woken for every earliest deadline that is
        // not before this one.
        if self.waiters.are_there() && self.operations.is_earliest(deadline_ns) {
            self.tm.wake();
        }
    }
}
