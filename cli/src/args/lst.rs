//! The command line of `nlx lst`.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};

use super::{SetupArgs, TestNodeArgs, seconds};

#[derive(Debug, ClapArgs)]
pub(crate) struct LstArgs {
    #[command(flatten)]
    pub setup: SetupArgs,
    /// Print one JSON object on each line.
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub command: LstCommand,
}

impl LstArgs {
    /// Returns whether the results are JSON: `--json` may stand behind `run`, too.
    pub(crate) fn json(&self) -> bool {
        self.json
            || matches!(&self.command, LstCommand::Words(words) if words.iter().any(|word| word == "--json"))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum LstCommand {
    /// Run a test node, which consoles can put into their sessions, until it is stopped.
    Node(TestNodeArgs),
    /// Simulate many test nodes in this process, to try a script before a site runs it: a node for
    /// each NID, for instance '127.1.[0-3].[1-250]@tcp'. The addresses are of this host: all of
    /// 127.0.0.0/8 are.
    Simulate(SimulateArgs),
    /// Run the commands of a script, one on each line; '-' reads them from standard input. The
    /// session lives as long as the script.
    Script {
        /// The script.
        file: std::path::PathBuf,
    },
    /// Hold the session of the other commands.
    #[command(name = "session-console", hide = true)]
    Background {
        /// The number in LST_SESSION.
        session: u32,
    },
    /// Run one test: 'run --from NIDS --to NIDS ping' or 'run --from NIDS --to NIDS brw read
    /// size=1M check=full', with --duration, --interval, --concurrency, --distribute, --force,
    /// --json and --html FILE. If a NID of this node is among them, it takes part itself. Or one command
    /// of a session: 'new_session', 'add_group', …, 'end_session', in a shell with LST_SESSION set.
    #[command(external_subcommand)]
    Words(Vec<String>),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimulateArgs {
    /// The NIDs of the nodes: at most 2000.
    #[arg(required = true, value_name = "NIDS")]
    pub nodes: Vec<String>,
    /// Percentage of the nodes that do not exist: connections to them are refused.
    #[arg(long, value_parser = percent, default_value = "0", value_name = "PERCENT")]
    pub dead: f64,
    /// Percentage of the nodes that are in a session of another console.
    #[arg(long, value_parser = percent, default_value = "0", value_name = "PERCENT")]
    pub busy: f64,
    /// Percentage of the nodes that receive each message late.
    #[arg(long, value_parser = percent, default_value = "0", value_name = "PERCENT")]
    pub slow: f64,
    /// The longest delay of slow nodes, in seconds; the shortest is half of it.
    #[arg(long, value_parser = seconds, default_value = "1", value_name = "SECONDS")]
    pub delay: Duration,
    /// Percentage of the nodes that end after 3 to 29 messages.
    #[arg(long, value_parser = percent, default_value = "0", value_name = "PERCENT")]
    pub dying: f64,
    /// Decides which nodes misbehave: the same ones for the same seed.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// Reads a percentage.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').parse().ok();
    percent.filter(|percent| (0.0..=100.0).contains(percent)).ok_or_else(|| "not 0 to 100".to_string())
}
