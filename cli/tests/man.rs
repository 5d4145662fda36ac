//! The manual pages agree with the help: every command has one, with each of its options.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::path::Path;

use support::run;

fn help(command: &[&str]) -> String {
    let output = run(&[command, &["--help"]].concat());
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the commands that a help lists.
fn commands(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    // Lines that are indented further continue the line before.
    let names =
        lines.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_string).collect()
}

fn check(folder: &Path, command: &[&str]) -> usize {
    let help = help(command);
    let name = [&["nlx"], command].concat().join("-");
    let page = std::fs::read_to_string(folder.join(format!("{name}.1")))
        .unwrap_or_else(|_| panic!("{name} has no page"));
    let plain = page.replace(['\\', '"'], "");
    let options = help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2);
    let mut count = 0;
    for option in options {
        let option = option.trim_end_matches(|mark: char| !mark.is_ascii_alphanumeric());
        assert!(plain.contains(option), "{name}.1 does not mention {option}");
        count += 1;
    }
    assert!(count > 0 && help.contains("\nExamples:\n") && help.contains("\nExit status:\n"), "{help}");
    for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "EXIT STATUS", "SEE ALSO"] {
        assert!(plain.contains(&format!(".SH {section}")), "{name}.1 has no {section}");
    }
    let below = commands(&help);
    1 + below.iter().map(|sub| check(folder, &[command, &[sub.as_str()]].concat())).sum::<usize>()
}

#[test]
fn every_command_has_a_page_with_all_its_options() {
    let folder = tempfile::tempdir().unwrap();
    assert!(run(&["man", folder.path().to_str().unwrap()]).status.success());
    let pages = check(folder.path(), &[]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), pages, "no page without a command");
    assert!(pages >= 7, "ping, discover, serve, net, net show, selftest and nlx itself");
}

#[test]
fn the_help_lists_what_users_call() {
    let listed = commands(&help(&[]));
    assert!(listed.contains(&"man".to_string()) && listed.contains(&"completions".to_string()), "{listed:?}");
    assert!(!listed.iter().any(|name| name.starts_with("selftest-")), "{listed:?}");
}

#[test]
fn completions_have_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("discover") && text.contains("accept-port"), "{shell}");
        for internal in ["selftest-peer", "selftest-helper", "selftest__peer", "spoil"] {
            assert!(!text.contains(internal), "{shell} offers {internal}");
        }
    }
}
