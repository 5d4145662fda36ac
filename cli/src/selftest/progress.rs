//! Live progress on standard error: a bar per phase on a terminal, a line per phase elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::report::{Tally, in_bytes};
use crate::output;

/// How often the bar is drawn; often enough to look alive, seldom enough to cost nothing.
const REFRESH: Duration = Duration::from_millis(100);

/// The progress of one phase.
pub(crate) struct Progress {
    bar: ProgressBar,
    started: Instant,
    drawn: Instant,
}

impl Progress {
    pub(crate) fn new(phase: &str, duration: Duration, quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(duration.as_millis() as u64), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix:<14} {bar:30} {msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(phase.replace('_', " "));
        if bar.is_hidden() && !quiet {
            output::complain(format_args!("{} …", phase.replace('_', " ")));
        }
        let now = Instant::now();
        Progress { bar, started: now, drawn: now }
    }

    /// Draws the bar, if it is time; tells whether it was.
    pub(crate) fn update(&mut self, tally: &Tally) -> bool {
        let now = Instant::now();
        if now - self.drawn < REFRESH {
            return false;
        }
        self.drawn = now;
        let elapsed = now - self.started;
        self.bar.set_position(elapsed.as_millis() as u64);
        let rate = tally.operations as f64 / elapsed.as_secs_f64();
        let speed = tally.bytes as f64 / elapsed.as_secs_f64() / 1e6;
        self.bar.set_message(format!(
            "{rate:.0} op/s, {speed:.1} MB/s, {} verified, {} errors",
            in_bytes(tally.verified_bytes),
            tally.errors
        ));
        true
    }

    pub(crate) fn finish(self) {
        self.bar.finish();
    }
}
