//! The signals of nlxd.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::failure::{Context, Failure};

/// SIGINT, SIGTERM and SIGHUP, received through a descriptor.
pub(super) struct SignalReceiver(SignalFd);

/// A signal's request to `nlxd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalRequest {
    End,
    Reload,
}

impl SignalReceiver {
    /// Blocks the signals' default actions. Must be called before any other thread starts.
    pub(super) fn take() -> Result<SignalReceiver, Failure> {
        let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        set.thread_block().context("cannot block signals")?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(SignalReceiver(SignalFd::with_flags(&set, flags).context("cannot make a descriptor for signals")?))
    }

    /// Waits for the next signal; returns `None` if none came within this time.
    pub(super) fn wait(&self, time: Option<Duration>) -> Option<SignalRequest> {
        let timeout = time.and_then(|time| PollTimeout::try_from(time).ok()).unwrap_or(PollTimeout::NONE);
        let mut set = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        // EINTR is treated as a timeout: the caller checks its state and waits again.
        if poll(&mut set, timeout).unwrap_or(0) == 0 {
            return None;
        }
        let signal = self.0.read_signal().ok()??;
        Some(if signal.ssi_signo == Signal::SIGHUP as u32 {
            SignalRequest::Reload
        } else {
            SignalRequest::End
        })
    }
}
