//! The command line of `nlx lst`.

use clap::{Args as ClapArgs, Subcommand};

use super::{SetupArgs, TestNodeArgs};

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
    /// Run a test node, which any console can put into its session, until it is stopped.
    Node(TestNodeArgs),
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
