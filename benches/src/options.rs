//! The command line.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::cores::Cores;

/// Duration of one side in a round: long compared with start-up effects, short enough that
/// disturbances of the machine hit both sides alike. (Two virtual cores may be neighbours for some
/// seconds, and then far apart.)
const ROUND: Duration = Duration::from_millis(500);

/// Time of a round of a smoke test.
const QUICK_ROUND: Duration = Duration::from_millis(50);

const ROUNDS: NonZeroUsize = NonZeroUsize::new(5).expect("5 is not 0");

/// Measures nlx side by side with its anchors in one run, and prints the ratios.
///
/// Both sides of a row run alternately on the same cores. The ratio is ours relative to the anchor,
/// the median of all rounds.
#[derive(Debug, Parser)]
#[command(
    name = "nlx-bench",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub(crate) struct Options {
    /// The rows to measure; without any, all of them.
    #[arg(value_name = "ROW")]
    pub(crate) rows: Vec<String>,

    /// Print one line of JSON per row instead of a table.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print a table in Markdown, as in docs/performance.md.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,

    /// Also compare with libfabric (`fi_pingpong`) and UCX (`ucx_perftest`), if they are installed.
    #[arg(long)]
    pub(crate) peers: bool,

    /// Number of rounds of each side [default: 5, or 1 with --quick].
    #[arg(long, value_name = "N")]
    rounds: Option<NonZeroUsize>,

    /// Short rounds: a smoke test that every row runs, not a measurement.
    #[arg(long)]
    quick: bool,

    /// List the rows and measure nothing.
    #[arg(long)]
    pub(crate) list: bool,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Internal commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run as the other process of a measurement.
    #[command(hide = true)]
    Serve {
        /// Name of the server.
        name: String,
        /// The cores of both sides, for instance `0,1`.
        cores: Cores,
        /// Arguments of the server.
        args: Vec<String>,
    },
}

impl Options {
    pub(crate) fn rounds(&self) -> usize {
        let usual = if self.quick { NonZeroUsize::MIN } else { ROUNDS };
        self.rounds.unwrap_or(usual).get()
    }

    pub(crate) fn round_time(&self) -> Duration {
        if self.quick { QUICK_ROUND } else { ROUND }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn rows_and_options_mix_in_any_order() {
        let options = Options::parse_from(["nlx-bench", "a/b", "--rounds", "3", "c/d", "--json"]);
        assert_eq!((options.rows, options.json), (vec!["a/b".to_string(), "c/d".to_string()], true));
    }

    #[test]
    fn no_rounds_and_unknown_options_are_wrong_usage() {
        for wrong in [["nlx-bench", "--rounds=0"], ["nlx-bench", "--fast"]] {
            assert_eq!(Options::try_parse_from(wrong).unwrap_err().exit_code(), 2, "{wrong:?}");
        }
    }
}
