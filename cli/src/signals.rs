//! The signals that end a command, or request a report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lnet_node::Interrupt;
use nix::sys::signal::{SigSet, Signal};

use crate::failure::{Context, Failure};

/// Requests made by signals. One thread receives the signals; it raises the interrupt with which
/// the command waits.
pub(crate) struct Signals {
    pub(crate) interrupt: Interrupt,
    stopped: AtomicBool,
    report: AtomicBool,
}

impl Signals {
    /// Makes SIGINT and SIGTERM end the command, and SIGUSR1, if `reports`, request a report. Must
    /// be called before any other thread starts, so that all of them leave the signals to the
    /// thread that waits for them.
    pub(crate) fn take(reports: bool) -> Result<Arc<Signals>, Failure> {
        let mut set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        if reports {
            set.add(Signal::SIGUSR1);
        }
        set.thread_block().context("cannot block signals")?;
        let interrupt = Interrupt::new().context("cannot make an eventfd")?;
        let signals =
            Arc::new(Signals { interrupt, stopped: AtomicBool::new(false), report: AtomicBool::new(false) });
        let own = signals.clone();
        std::thread::Builder::new()
            .name("nlx-signals".into())
            .spawn(move || {
                while let Ok(signal) = set.wait() {
                    own.handle(signal);
                }
            })
            .context("cannot start the signal thread")?;
        Ok(signals)
    }

    /// Returns whether the end was requested.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns whether a report was requested since the last call.
    pub(crate) fn report(&self) -> bool {
        self.report.swap(false, Ordering::Relaxed)
    }

    fn handle(&self, signal: Signal) {
        // The flags need no memory ordering: `raise` publishes them.
        if signal == Signal::SIGUSR1 {
            self.report.store(true, Ordering::Relaxed);
        } else if self.stopped.swap(true, Ordering::Relaxed) {
            // A second signal ends the program at once, with the exit status that the signal has by
            // default.
            std::process::exit(128 + signal as i32);
        }
        self.interrupt.raise();
    }
}
