//! The command line, which overrides the file; and the help, the manual page and the completions,
//! which are generated from it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Command, CommandFactory, Parser};

use crate::args::{SetupArgs, TestNodeArgs, seconds_or_none, whole};
use crate::failure::{Context, Failure};
use crate::help::Words;
use crate::output;

/// The helper process of nlx: holds the network for the programs of this host, which share memory
/// with it.
#[derive(Debug, Parser)]
#[command(name = "nlxd", version, max_term_width = 100)]
pub(crate) struct NlxdArgs {
    #[command(flatten)]
    pub setup: SetupArgs,
    /// The socket that clients connect to; by default /run/nlx/nlxd.sock, or nlx/nlxd.sock in
    /// $XDG_RUNTIME_DIR if this is not root. Not used when systemd passes a socket.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The socket's mode in octal: with 0660 its owner and group may connect.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// The socket's owner, a name or number; by default the user that nlxd runs as.
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// The socket's group, a name or number.
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Threads that serve clients; 0, the default, is one for each CPU partition.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(0..=64), allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Microseconds that a thread polls for work before it sleeps. It occupies a processor for that
    /// time.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=1_000_000), allow_negative_numbers = true)]
    pub busy_poll_us: Option<u64>,
    /// Seconds that operations in progress get when nlxd is stopped; 0 ends them at once.
    #[arg(long, value_parser = seconds_or_none, allow_negative_numbers = true, value_name = "SECONDS")]
    pub drain: Option<Duration>,
    /// Be a test node of LNet's self-test as well, on the helper's NIDs, for the consoles of
    /// --lst-consoles or of the file. See nlx-lst(1).
    #[arg(long)]
    pub lst: bool,
    #[command(flatten)]
    pub test_node: TestNodeArgs,
    /// Read the configuration, report its errors, and end.
    #[arg(long)]
    pub check: bool,
    /// Run as the porter of the nlxd with this process id: the channel is standard input.
    #[arg(long, value_name = "PID", hide = true)]
    pub porter: Option<i32>,
    /// Write the manual page into a folder.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub man: Option<PathBuf>,
    /// Print the completions of a shell.
    #[arg(long, value_name = "SHELL")]
    pub completions: Option<clap_complete::Shell>,
}

const WORDS: Words = Words {
    command: &[],
    examples: &[
        ("nlxd --net 'tcp(eth0)'", "hold 'eth0' for the programs of this host (as root)"),
        ("nlxd --config /etc/nlx/nlxd.toml", "as configured; see docs/configuration.md"),
        ("nlxd --net 'tcp(lo)' --accept-port 9988", "without privileges, for programs of the same user"),
        ("nlxd --config /etc/nlx/nlxd.toml --check", "check the file, and end"),
        (
            "nlxd --lst --lst-consoles '10.0.0.1@tcp'",
            "a test node of LNet's self-test as well, for one console",
        ),
    ],
    success: "It was stopped by SIGINT or SIGTERM.",
    failure: "It could not be started.",
};

/// Returns the program's options with their help.
pub(super) fn command() -> Command {
    NlxdArgs::command().after_help(WORDS.text())
}

/// Writes `nlxd.8` into a folder.
pub(super) fn write_man(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).context(&format!("cannot make {}", folder.display()))?;
    let mut command = command();
    command.build();
    let others = ["nlx(1)", "nlx-status(1)", "nlx-serve(1)", "nlx-lst(1)"].map(str::to_string);
    let path = folder.join("nlxd.8");
    let page = crate::man::page(&command, &WORDS, ("nlxd", "8"), &others)?;
    std::fs::write(&path, page).context(&format!("cannot write {}", path.display()))
}

pub(super) fn print_completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "nlxd", &mut text);
    output::line(String::from_utf8_lossy(&text).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_can_be_read() {
        command().debug_assert();
        for (typed, _) in WORDS.examples {
            let words = crate::help::as_typed(typed);
            assert!(command().try_get_matches_from(words).is_ok(), "{typed}");
        }
    }
}
