//! What can be said on the command line. It counts more than a file.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::args::{SetupArgs, seconds_or_none, whole};

/// The helper process of nlx: holds the network for the programs of this host, which share memory with it.
#[derive(Debug, Parser)]
#[command(name = "nlxd", version, max_term_width = 100)]
pub(crate) struct NlxdArgs {
    #[command(flatten)]
    pub setup: SetupArgs,
    /// The socket that clients connect to; by default /run/nlx/nlxd.sock, or nlx/nlxd.sock in $XDG_RUNTIME_DIR if this is not
    /// root. Not used when systemd hands over a socket.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Who may connect, by the socket's mode in octal: 0660, its owner and group.
    #[arg(long, value_name = "MODE")]
    pub mode: Option<String>,
    /// The socket's owner, a name or number; by default the user that nlxd runs as.
    #[arg(long, value_name = "USER")]
    pub owner: Option<String>,
    /// The socket's group, a name or number.
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Threads that serve clients; 0, the default, for one for each CPU partition.
    #[arg(long, value_name = "N", value_parser = whole::<usize>(0..=64), allow_negative_numbers = true)]
    pub threads: Option<usize>,
    /// Microseconds that a thread goes on looking for work before it sleeps; it takes a processor for as long.
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=1_000_000), allow_negative_numbers = true)]
    pub busy_poll_us: Option<u64>,
    /// Seconds that operations under way get when nlxd is stopped; 0 ends them at once.
    #[arg(long, value_parser = seconds_or_none, allow_negative_numbers = true, value_name = "SECONDS")]
    pub drain: Option<Duration>,
    /// Read the configuration, say what is wrong with it, and end.
    #[arg(long)]
    pub check: bool,
    /// Be the porter of the nlxd with this process id: the channel is standard input.
    #[arg(long, value_name = "PID", hide = true)]
    pub porter: Option<i32>,
    /// Write the manual page into a folder.
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub man: Option<PathBuf>,
    /// Print the completions of a shell.
    #[arg(long, value_name = "SHELL")]
    pub completions: Option<clap_complete::Shell>,
}
