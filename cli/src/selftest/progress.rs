//! Live progress on standard error: a bar per phase on a terminal, a line per phase elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::report::in_bytes;
use super::result::Live;
use crate::output;

/// The progress of one phase.
pub(crate) struct Progress {
    bar: ProgressBar,
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
        Progress { bar }
    }

    /// Draws the bar.
    pub(crate) fn update(&mut self, live: &Live) {
        let seconds = live.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        self.bar.set_position(live.elapsed.as_millis() as u64);
        let (rate, speed) = (live.operations as f64 / seconds, live.bytes as f64 / seconds / 1e6);
        self.bar.set_message(format!(
            "{rate:.0} op/s, {speed:.1} MB/s, {} verified, {} errors",
            in_bytes(live.verified_bytes),
            live.errors
        ));
    }

    pub(crate) fn finish(self) {
        self.bar.finish();
    }
}
