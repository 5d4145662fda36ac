//! The help of the console's commands, whose words clap does not read.

/// The words of the commands, and what they do.
const COMMANDS: [(&str, &str); 18] = [
    (
        "run --from NIDS --to NIDS TEST [--duration S] [--interval S] [--concurrency N] [--distribute C:S] [--force] [--json] [--html FILE]",
        "runs one test in a session of its own, for 10 s, and prints a table",
    ),
    ("run [BATCH] [--timeout S]", "starts the tests of a batch"),
    (
        "new_session [NAME] [--timeout S] [--force]",
        "opens a session, which expires after 300 s without a command",
    ),
    ("show_session", "shows the session"),
    ("end_session", "ends the session"),
    ("add_group NAME NIDS…", "puts nodes into the session, as a group"),
    ("del_group NAME", "forgets a group that no test uses"),
    (
        "update_group NAME --refresh | --clean STATE | --remove NIDS",
        "invites nodes again, or removes those in a state: active, busy, down, unknown, invalid, all",
    ),
    (
        "list_group [NAME…] [--active] [--busy] [--down] [--unknown] [--invalid] [--all]",
        "lists the groups, or the nodes of some by their states",
    ),
    ("add_batch NAME", "adds a batch; one named 'batch' is there from the start"),
    (
        "add_test TEST --from GROUP --to GROUP [--batch BATCH] [--loop N] [--concurrency N] [--distribute C:S]",
        "adds a test to a batch",
    ),
    ("stop [BATCH] [--force]", "stops the tests of a batch; --force also aborts RPCs in flight"),
    (
        "query [BATCH] [--test N] [--server] [--timeout S] [--delay S] [--loop N] [--active] [--idle] [--error] [--all]",
        "asks the nodes of a batch whether its tests run",
    ),
    (
        "list_batch [BATCH] [--test N] [--server] [--active] [--invalid] [--all]",
        "lists the batches, or the tests and nodes of one",
    ),
    (
        "stat GROUP|NIDS… [--rate] [--bw] [--read] [--write] [--avg] [--min] [--max] [--mbs] [--timeout S] [--delay S] [--count N]",
        "prints rates, every 5 s until it is interrupted",
    ),
    ("show_error GROUP|NIDS… [--session]", "prints the error counters of nodes"),
    (
        "ping --session | --group NAME | --batch NAME [--server] | --nodes NIDS [--timeout S]",
        "asks nodes for their states",
    ),
    ("sleep SECONDS", "pauses a script"),
];

/// The meaning of the capital words above.
const TERMS: &str = "\
TEST   ping | brw [read|write] [size=N] [check=none|simple|full|discard] [off=N]; both: [concurrency=N]
NIDS   10.0.0.[1-4,8]@tcp; several with commas or blanks
The options of the network, such as --net, stand before the command: see 'nlx lst --help'.";

/// Returns the help of a command if its words ask for it.
pub(super) fn asked(words: &[String]) -> Option<String> {
    let (name, rest) = words.split_first()?;
    let asks = rest.iter().any(|word| word == "--help" || word == "-h");
    let own = COMMANDS.iter().filter(|(words, _)| asks && words.split(' ').next() == Some(name));
    let own: String = own.map(|(words, purpose)| format!("  {words}\n      {purpose}\n")).collect();
    (!own.is_empty()).then(|| format!("nlx lst …\n{own}\n{TERMS}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nlx_lst::command::{Defaults, parse_words};

    use super::*;

    fn options(text: &str) -> BTreeSet<&str> {
        let letter = |letter: char| letter.is_ascii_alphanumeric();
        let words =
            text.split_whitespace().filter_map(|word| word.trim_start_matches('[').strip_prefix("--"));
        words
            .map(|word| word.trim_end_matches(|mark| !letter(mark)))
            .filter(|word| !word.is_empty())
            .collect()
    }

    /// The parser names a command's options when it refuses one.
    #[test]
    fn the_help_of_a_command_has_the_options_of_its_parser() {
        for (words, _) in COMMANDS {
            let is_plan = words.starts_with("run --from");
            let start = if is_plan { "run --from x" } else { words.split(' ').next().unwrap_or_default() };
            let refused: Vec<String> = start.split(' ').chain(["--?"]).map(str::to_string).collect();
            let error =
                parse_words(&refused, &Defaults::default()).map(drop).map_err(|error| error.to_string());
            let Err(error) = error else { panic!("{start} has an option --?") };
            let (_, known) = error.split_once(" is not ").unwrap_or_default();
            assert!(known.contains("an option of the command") || known.contains("no options"), "{error}");
            assert_eq!(options(words), options(known), "{words}");
        }
    }

    #[test]
    fn every_command_has_a_help() {
        let unknown =
            parse_words(&["x".to_string()], &Defaults::default()).map_err(|error| error.to_string());
        let Err(error) = unknown else { panic!("x is a command") };
        let (_, names) = error.split_once("a command: ").unwrap_or_default();
        assert!(names.split(", ").count() > 1, "{error}");
        for name in names.split(", ") {
            let words = |last: &str| [name, last].map(str::to_string);
            assert!(asked(&words("--help")).is_some_and(|help| help.contains(name)), "{name}");
            assert_eq!(asked(&words("x")), None);
        }
    }
}
