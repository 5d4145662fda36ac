//! Examples and exit status of each command, for its help and its manual page.

use clap::{Command, CommandFactory};

use crate::args::Args;

/// Examples and exit status of a command.
pub(crate) struct Words {
    /// The command's words without `nlx`.
    pub(crate) command: &'static [&'static str],
    /// Command lines with their purpose.
    pub(crate) examples: &'static [(&'static str, &'static str)],
    /// Meaning of exit status 0, and of 1.
    pub(crate) success: &'static str,
    pub(crate) failure: &'static str,
}

/// Meaning of exit status 2.
pub(crate) const USAGE: &str = "The arguments are invalid.";

/// All commands.
pub(crate) const WORDS: [Words; 16] = [
    Words {
        command: &[],
        examples: &[
            ("nlx selftest", "does everything work on this host?"),
            ("nlx ping 10.0.0.1@tcp", "ask a Lustre node for its NIDs (as root)"),
            ("nlx serve --net 'tcp(eth0)'", "be a node that others can ping (as root)"),
            ("nlx net show --why", "which interface would be used, and why"),
        ],
        success: "The command succeeded.",
        failure: "The command failed; standard error has the reason.",
    },
    Words {
        command: &["ping"],
        examples: &[
            (
                "nlx ping 10.0.0.1@tcp",
                "show show the NIDs of a node; as root, if it accepts privileged ports only",
            ),
            ("nlx ping 10.0.0.1@tcp --count 5 --interval 0.2", "five times, with the times in between"),
            ("nlx ping 10.0.0.1@tcp 10.0.0.2@tcp --count 0", "two nodes, until Ctrl-C"),
            ("nlx ping 10.0.0.1@tcp --size 1M --to-nlx", "do long messages get through to a node of nlx?"),
            (
                "nlx ping 127.0.0.1@tcp --from 127.0.0.2@tcp --accept-port 9988",
                "a node on this host, on a port that needs no privileges",
            ),
        ],
        success: "All pings were answered.",
        failure: "A ping was not answered, or none was sent.",
    },
    Words {
        command: &["discover"],
        examples: &[
            ("nlx discover 10.0.0.1@tcp", "primary NID, NIs and features of a node"),
            ("nlx discover 10.0.0.1@tcp --push", "also send it this node's NIs"),
        ],
        success: "The node answered, and with --push accepted the push, or does not support pushes.",
        failure: "It did not answer, or did not accept the push.",
    },
    Words {
        command: &["serve"],
        examples: &[
            ("nlx serve --net 'tcp(eth0)'", "a node on port 988 (as root)"),
            ("nlx serve --net 'tcp(lo)' --accept-port 9988", "without privileges"),
            ("nlx serve --net 'o2ib(ib0)'", "a node over RDMA (as root)"),
            ("nlx serve --config /etc/lnet.conf --stats 10", "as configured, with a line every 10 s"),
            ("nlx serve --lst", "a test node of LNet's self-test as well"),
        ],
        success: "It was stopped by SIGINT or SIGTERM.",
        failure: "It could not be started. A second signal ends it at once, with 128 and the signal's number.",
    },
    Words {
        command: &["status"],
        examples: &[
            (
                "nlx status",
                "the node that runs on this host, or of several a line each (as root: of all users)",
            ),
            ("nlx status 4711", "that of a process"),
            ("nlx status --all --json", "all of them, for a program to read"),
        ],
        success: "A node was shown, and every node that was asked answered.",
        failure: "There is no such node, or one did not answer.",
    },
    Words {
        command: &["net"],
        examples: &[
            ("nlx net show", "the network that this host would have by default"),
            ("nlx net devices", "what there is for networks over RDMA"),
        ],
        success: "The networks were shown.",
        failure: "The configuration has no networks, or is invalid.",
    },
    Words {
        command: &["net", "show"],
        examples: &[
            ("nlx net show", "what this host would have by default"),
            ("nlx net show --net 'tcp(eth0,eth1)' --why", "why an interface is taken, or is not"),
            ("nlx net show --config /etc/lnet.conf --yaml --tunables", "a configuration as lnetctl shows it"),
        ],
        success: "The networks were shown, whether free or held.",
        failure: "The configuration has no networks, or is invalid.",
    },
    Words {
        command: &["net", "devices"],
        examples: &[
            ("nlx net devices", "is this host ready for networks over RDMA? what is missing?"),
            ("nlx net devices --gids --json", "with every GID, for a program to read"),
        ],
        success: "An o2ib network can be had.",
        failure: "No network can be had; the output has the reasons and advice.",
    },
    Words {
        command: &["selftest"],
        examples: &[
            ("nlx selftest", "three seconds for each phase"),
            ("nlx selftest --net lo --clients 4", "in one process, four clients at once"),
            ("nlx selftest --server --net 'tcp(eth0)'", "serve the self-tests of other hosts"),
            ("nlx selftest --client 10.0.0.1@tcp --net 'tcp(eth0)'", "test against that server"),
            ("nlx selftest --faults 'drop 1/1000; delay 1ms..5ms 1/50 put'", "on a bad network"),
            ("nlx selftest --duration 60 --concurrency 32 --json", "longer, harder, for a program to read"),
            (
                "nlx selftest --net 'o2ib(10.77.0.1,10.77.0.2)'",
                "over RDMA, between two addresses of this host",
            ),
            ("nlx selftest --mode helper", "the same job, through a helper process for each node"),
            ("nlx selftest --html report.html", "with pictures of latency and throughput, on one page"),
        ],
        success: "All bytes were right, and only messages dropped by rules were lost; a server was stopped.",
        failure: "A byte or an event was wrong or missing, or it was interrupted.",
    },
    Words {
        command: &["lst"],
        examples: &[
            (
                "nlx lst run --from 10.0.0.1@tcp --to 10.0.0.[2-5]@tcp brw read size=1M --duration 30",
                "a kernel node reads from four others (as root)",
            ),
            (
                "nlx lst --net 'tcp(127.0.0.4)' --accept-port 9988 run --from 127.0.0.2@tcp --to 127.0.0.3@tcp ping",
                "between two nodes of this host, on a port that needs no privileges",
            ),
            (
                "nlx lst new_session",
                "open a session for this shell, after 'export LST_SESSION=$$'; add_group, add_test, run and the other commands of 'lst' follow, at last end_session",
            ),
            ("nlx lst --json run --from 10.0.0.1@tcp --to 10.0.0.2@tcp ping", "for a program to read"),
            (
                "nlx lst run --help",
                "the words of a command: run, new_session, show_session, end_session, add_group, del_group, update_group, list_group, add_batch, add_test, stop, query, list_batch, stat, show_error, ping",
            ),
        ],
        success: "The test ran, and none of its RPCs failed.",
        failure: "An RPC of the test failed, or the test was refused. As 'lst' does, it ends with 253 if a node refused something, with 254 if a node did not answer, and with 255 if the console refused a command.",
    },
    Words {
        command: &["lst", "node"],
        examples: &[
            ("nlx lst node --net 'tcp(eth0)'", "a test node for any console (as root)"),
            ("nlx lst node --net 'tcp(127.0.0.2)' --accept-port 9988", "without privileges"),
        ],
        success: "It was stopped by SIGINT or SIGTERM.",
        failure: "It could not be started. A second signal ends it at once, with 128 and the signal's number.",
    },
    Words {
        command: &["lst", "simulate"],
        examples: &[
            ("nlx lst simulate '127.1.[0-3].[1-250]@tcp' --accept-port 9988", "a thousand nodes"),
            (
                "nlx lst simulate '127.1.0.[1-100]@tcp' --accept-port 9988 --dead 2 --busy 5 --seed 7",
                "with nodes that do not exist, and nodes in another console's session",
            ),
        ],
        success: "It was stopped by SIGINT or SIGTERM.",
        failure: "It could not be started. A second signal ends it at once, with 128 and the signal's number.",
    },
    Words {
        command: &["lst", "script"],
        examples: &[
            (
                "nlx lst script site.lst",
                "the commands of a file: new_session, add_group, add_test, run, stat, ...",
            ),
            ("nlx lst script - --json", "of standard input, each with its output as JSON"),
        ],
        success: "All commands succeeded.",
        failure: "The script cannot be read, or the node not be started. A command that fails ends the script with its status: 253 to 255, or 234 for a list of nothing.",
    },
    Words {
        command: &["o2iblnd-calc"],
        examples: &[
            ("nlx o2iblnd-calc", "nlx and a current kernel node, with nothing tuned"),
            (
                "nlx o2iblnd-calc --a release=2.15,peer_credits=128 --b release=2.12,peer_credits=63 --peers 1000",
                "two kernel nodes, each with 1000 peers",
            ),
            ("nlx o2iblnd-calc --a peer_credits=32,concurrent_sends=8 --explain", "each step with its rule"),
            ("nlx o2iblnd-calc --sweep peer_credits=8..256 --html sweep.html", "what a deeper queue costs"),
        ],
        success: "The two sides were computed, though they may not be able to connect: see the warnings.",
        failure: "A value is invalid, or an NI would not start.",
    },
    Words {
        command: &["completions"],
        examples: &[("nlx completions bash > /etc/bash_completion.d/nlx", "for all users of bash")],
        success: "The completions were written.",
        failure: "They could not be written.",
    },
    Words {
        command: &["man"],
        examples: &[("nlx man /usr/local/share/man/man1", "a page for each command, for 'man nlx-ping'")],
        success: "The pages were written.",
        failure: "A file or the folder cannot be written.",
    },
];

impl Words {
    fn of(command: &[&str]) -> Option<&'static Words> {
        WORDS.iter().find(|words| words.command == command)
    }

    /// Returns the text at the end of the command's help.
    pub(crate) fn text(&self) -> String {
        let examples: String =
            self.examples.iter().map(|(typed, purpose)| format!("  {typed}\n      {purpose}\n")).collect();
        format!(
            "Examples:\n{examples}\nExit status:\n  0  {}\n  1  {}\n  2  {USAGE}",
            self.success, self.failure
        )
    }
}

/// Returns the tool's commands with their examples and exit status.
pub(crate) fn command() -> Command {
    // The options of `nlx lst` may stand behind its commands.
    let command = Args::command().mut_subcommand("lst", |lst| lst.mut_args(|option| option.global(true)));
    with_words(command, &[])
}

/// Returns the command without its hidden commands and options, which are internal.
pub(crate) fn shown(command: &Command) -> Command {
    let shown = Command::new(command.get_name().to_string())
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()))
        .subcommands(command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(shown));
    let shown = match command.get_version() {
        Some(version) => shown.version(version.to_string()),
        None => shown,
    };
    match command.get_about() {
        Some(about) => shown.about(about.clone()),
        None => shown,
    }
}

fn with_words(command: Command, path: &[&str]) -> Command {
    let command = match Words::of(path) {
        Some(words) => command.after_help(words.text()),
        None => command,
    };
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_string()).collect();
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |sub| with_words(sub, &[path, &[name]].concat()))
    })
}

/// Splits a line with quotes into words as a shell does.
#[cfg(test)]
pub(crate) fn as_typed(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(part, text)| {
        // Every second part was between quotes, and is one word.
        if part % 2 == 1 { vec![text] } else { text.split_whitespace().collect() }
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &Command, path: &[&str]) {
        if !command.is_hide_set() {
            assert!(Words::of(path).is_some(), "{path:?} has no examples");
            command.get_subcommands().for_each(|sub| check(sub, &[path, &[sub.get_name()]].concat()));
        }
    }

    #[test]
    fn every_command_has_words_and_every_example_can_be_read() {
        let command = command();
        command.clone().debug_assert();
        check(&command, &[]);
        for (typed, _) in WORDS.iter().flat_map(|words| words.examples) {
            let typed = typed.split(" > ").next().unwrap_or(typed);
            assert!(command.clone().try_get_matches_from(as_typed(typed)).is_ok(), "{typed}");
        }
    }
}
