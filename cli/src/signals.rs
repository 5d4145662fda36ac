//! The signals that end a command, or ask it for a report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lnet_node::Interrupt;
use nix::sys::signal::{SigSet, Signal};

use crate::failure::{Context, Failure};

/// What signals have asked for. One thread takes them; it raises the interrupt that the command waits with.
pub(crate) struct Signals {
    pub(crate) interrupt: Interrupt,
    stopped: AtomicBool,
    report: AtomicBool,
}

impl Signals {
    /// From now on SIGINT and SIGTERM ask for the end, and SIGUSR1, if `reports`, for a report. To be called before any other
    /// thread starts, so that all of them leave the signals to the one that waits for them.
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
                    own.came(signal);
                }
            })
            .context("cannot start the signal thread")?;
        Ok(signals)
    }

    /// Whether the end has been asked for.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether a report has been asked for since the last call.
    pub(crate) fn report(&self) -> bool {
        self.report.swap(false, Ordering::Relaxed)
    }

    fn came(&self, signal: Signal) {
        // The flags need no order of their own: raising publishes them.
        if signal == Signal::SIGUSR1 {
            self.report.store(true, Ordering::Relaxed);
        } else if self.stopped.swap(true, Ordering::Relaxed) {
            // Whoever asks twice does not want to wait: as if the signal had not been taken.
            std::process::exit(128 + signal as i32);
        }
        self.interrupt.raise();
    }
}
