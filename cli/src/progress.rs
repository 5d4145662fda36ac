//! Live progress of tests on standard error: a bar per phase on a terminal, a line per phase
//! elsewhere.

use std::fmt::Display;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::output;

/// The phase's name, a bar in steps of an eighth of a letter, and the rates.
const TEMPLATE: &str = "{prefix:<13} {bar:30.cyan/8} {msg}";

/// The progress of one phase.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts to show a phase of about this duration; with `quiet` it shows nothing.
    pub(crate) fn new(phase: &str, duration: Duration, quiet: bool) -> Progress {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(duration.as_millis() as u64), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏·"));
        }
        let name = phase.replace('_', " ");
        if bar.is_hidden() && !quiet {
            output::print_error(format_args!("{name} …"));
        }
        bar.set_prefix(name);
        Progress { bar }
    }

    /// Draws the current progress.
    pub(crate) fn update(&self, elapsed: Duration, words: String) {
        self.bar.set_message(words);
        self.advance(elapsed);
    }

    /// Moves the bar.
    pub(crate) fn advance(&self, elapsed: Duration) {
        self.bar.set_position(elapsed.as_millis() as u64);
    }

    /// Prints a line on standard output, above the bar.
    pub(crate) fn line(&self, text: impl Display) -> Result<(), Failure> {
        self.bar.suspend(|| output::line(text))
    }

    /// Prints a line on standard error, above the bar.
    pub(crate) fn error(&self, text: impl Display) {
        self.bar.suspend(|| output::print_error(text));
    }

    /// Ends the phase; its bar stays.
    pub(crate) fn finish(&self) {
        self.bar.finish();
    }
}
