//! A transfer machine in a program's own event loop.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use crate::{Error, Machine, TmState};

impl Machine {
    /// For a program with an event loop of its own (epoll, poll, io_uring, mio): a descriptor that becomes readable when the
    /// program should call [`Machine::poll`]: there is an event, the network wants to be moved forward, or the timeout of an
    /// operation has come. It is valid as long as the machine is, and the same each time; only its readability counts, and
    /// nothing is read from it.
    ///
    /// [`Machine::arm`] comes before each sleep:
    ///
    /// ```text
    ///    the loop                            the transfer machine
    ///    ────────                            ────────────────────
    ///    poll() until it gives None    ───>  takes events, moves the network forward
    ///    arm() ── false: poll() again  ───>  looks once more, then watches the network, the clock, and who drives
    ///      │ true
    ///    epoll_wait(…)                 <───  makes the descriptor readable
    ///    poll() …                      ───>  watches no more
    /// ```
    ///
    /// ```
    /// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    /// use nlx::{Domain, NodeConfig, Receive, TmOptions};
    ///
    /// let domain = Domain::in_process(&NodeConfig::new())?;
    /// let tm = domain.transfer_machine("0@lo:12345:31:1", TmOptions::default())?;
    /// tm.receive(domain.allocate(64)?, Receive { min_receive_size: 64, max_messages: 1 }, None)?;
    /// let other = domain.transfer_machine("0@lo:12345:31:2", TmOptions::default())?;
    /// other.send(domain.buffer_of(b"hello")?, 5, &other.end_point("0@lo:12345:31:1")?, None)?;
    /// let message = loop {
    ///     if let Some(event) = tm.poll()? {
    ///         break event.message;
    ///     }
    ///     if tm.arm()? {
    ///         // Among the program's other descriptors.
    ///         poll(&mut [PollFd::new(tm.descriptor()?, PollFlags::POLLIN)], PollTimeout::NONE)?;
    ///     }
    /// };
    /// assert_eq!(message.as_deref(), Some(&b"hello"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Other threads may wait for events of the same machine, and other machines of the node be waited for: who drives wakes
    /// the loop when something has come for it. A program that stays away from its loop for long leaves the network to the
    /// node's own threads.
    ///
    /// # Errors
    /// EINVAL if the events go to a callback, EOPNOTSUPP if the transport has no such descriptor, EMFILE or ENFILE.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        self.check_waited()?;
        Ok(self.tm.descriptor()?)
    }

    /// Announces that the program is about to sleep on [`Machine::descriptor`]; true if it may. False if there is reason to
    /// [`Machine::poll`] now. It holds until the next poll.
    ///
    /// # Errors
    /// As [`Machine::descriptor`], and ENOMEM.
    pub fn arm(&self) -> Result<bool, Error> {
        self.check_waited()?;
        let inner = self.inner.lock();
        // What a stop has taken, or that it has ended.
        let news = !inner.backlog.is_empty() || matches!(inner.state, TmState::Stopped | TmState::Failed);
        drop(inner);
        if news {
            return Ok(false);
        }
        // From here on, whoever starts an operation with an earlier deadline says so.
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.waiters.fetch_add(1, Ordering::SeqCst);
        }
        loop {
            let deadline_ns = self.earlier(None);
            if !self.tm.arm(deadline_ns)? {
                return Ok(false);
            }
            // One that came before the announcement was not told of.
            let latest_ns = self.earlier(None).unwrap_or(u64::MAX);
            if latest_ns >= deadline_ns.unwrap_or(u64::MAX) {
                return Ok(true);
            }
        }
    }

    /// The loop is back. Whether it was away.
    pub(crate) fn disarm(&self) -> bool {
        let was = self.armed.load(Ordering::Relaxed) && self.armed.swap(false, Ordering::SeqCst);
        if was {
            self.waiters.fetch_sub(1, Ordering::Relaxed);
        }
        was
    }
}
