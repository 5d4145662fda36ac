//! The manual page and the completions, from the same source as the help.

use std::path::Path;

use clap::{Command, CommandFactory};

use super::args::NlxdArgs;
use crate::failure::{Context, Failure};
use crate::help::Words;
use crate::output;

const WORDS: Words = Words {
    command: &[],
    examples: &[
        ("nlxd --net 'tcp(eth0)'", "hold 'eth0' for the programs of this host (as root)"),
        ("nlxd --config /etc/nlx/nlxd.toml", "as configured; docs/operating.md says what can be"),
        ("nlxd --net 'tcp(lo)' --accept-port 9988", "without privileges, for one's own programs"),
        ("nlxd --config /etc/nlx/nlxd.toml --check", "is the file right?"),
    ],
    success: "It was stopped by SIGINT or SIGTERM.",
    failure: "It could not be started.",
};

/// The program's options with all their words.
pub(super) fn command() -> Command {
    NlxdArgs::command().after_help(WORDS.text())
}

/// `nlxd.8`, in a folder.
pub(super) fn write(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).context(&format!("cannot make {}", folder.display()))?;
    let mut command = command();
    command.build();
    let others = ["nlx(1)", "nlx-status(1)", "nlx-serve(1)"].map(str::to_string);
    let path = folder.join("nlxd.8");
    let page = crate::man::page(&command, &WORDS, ("nlxd", "8"), &others)?;
    std::fs::write(&path, page).context(&format!("cannot write {}", path.display()))
}

pub(super) fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
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
