//! Live progress on standard error: a bar per phase on a terminal, a line per phase elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::figures::per_second;
use super::result::Live;
use crate::output;
use crate::units::{grouped, in_bytes, plural};

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
    pub(crate) fn update(&mut self, live: &Live) {
        self.bar.set_message(words(live));
        self.bar.set_position(live.elapsed.as_millis() as u64);
    }

    /// Ends the phase; its bar stays.
    pub(crate) fn finish(self) {
        self.bar.finish();
    }
}

/// Returns the rates so far, and losses and errors if there are any.
fn words(live: &Live) -> String {
    let Live { elapsed, operations, bytes, verified_bytes, errors, lost } = *live;
    let rate = grouped(per_second(operations, elapsed).round() as u64);
    let speed = per_second(bytes, elapsed) / 1e6;
    let mut words = format!("{rate:>9} op/s {speed:>8.1} MB/s  {} verified", in_bytes(verified_bytes));
    for (count, label) in [(lost, "lost".to_string()), (errors, plural(errors, "error"))] {
        if count > 0 {
            words.push_str(&format!(", {} {label}", grouped(count)));
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_printed_and_troubles_if_there_are_some() {
        let live =
            Live { elapsed: Duration::from_secs(2), operations: 3_000, bytes: 5_000_000, ..Live::default() };
        let plain = |live: Live| words(&live).replace('\u{202f}', " ");
        assert_eq!(plain(live), "    1 500 op/s      2.5 MB/s  0 B verified");
        assert!(plain(Live { errors: 2, lost: 1, ..live }).ends_with(" verified, 1 lost, 2 errors"));
        assert!(plain(Live::default()).starts_with("        0 op/s"));
    }
}
