//! Lines and words.

use nlx_lst::command::{CommandError, Defaults, LINE_MAX, parse, script_lines, split_words};
use proptest::prelude::*;

#[test]
fn words_are_split_at_blanks_and_kept_in_quotations() {
    let table: [(&str, &[&str]); 9] = [
        ("", &[]),
        ("  \t ", &[]),
        ("# a b", &[]),
        ("a b\tc", &["a", "b", "c"]),
        ("a # b", &["a"]),
        ("a#b #", &["a#b"]),
        (r#"'a b' "c 'd" e'f'g"#, &["a b", "c 'd", "efg"]),
        (r#"a\ b "c\"d" 'e\f' \#"#, &["a b", "c\"d", "e\\f", "#"]),
        (r#"'' """#, &["", ""]),
    ];
    for (line, words) in table {
        assert_eq!(split_words(line).unwrap(), words, "{line}");
    }
}

#[test]
fn a_quotation_without_an_end_is_named() {
    let error = split_words("run 'my batch").unwrap_err();
    assert_eq!(error.to_string(), "no ' ends the text after 'my batch");
    assert!(split_words("run \"b'").is_err());
    let long = "x".repeat(LINE_MAX + 1);
    assert_eq!(split_words(&long), Err(CommandError::TooMany { what: "bytes in a line", limit: LINE_MAX }));
}

#[test]
fn lines_are_joined_and_numbered() {
    let script = "a\nb \\\n c\\\nd\n\ne\\";
    let lines: Vec<(usize, String)> = script_lines(script).collect();
    let expected = [(1, "a"), (2, "b   c d"), (5, ""), (6, "e")];
    assert_eq!(lines, expected.map(|(number, line)| (number, line.to_owned())));
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

proptest! {
    #[test]
    fn quoted_words_come_back(words in proptest::collection::vec("[^\u{0}]{0,20}", 0..10)) {
        let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        prop_assert_eq!(split_words(&line.join(" ")).unwrap(), words);
    }

    #[test]
    fn no_line_panics(line in "\\PC{0,80}") {
        let _ = parse(&line, &Defaults::default());
        prop_assert!(script_lines(&line).count() <= 1);
    }

    /// Lines of words that the language has, in any order.
    #[test]
    fn no_order_of_known_words_panics(words in proptest::collection::vec(
        proptest::sample::select(vec![
            "lst", "export", "LST_SESSION=1", "new_session", "add_group", "update_group", "list_group", "add_test",
            "run", "stop", "query", "list_batch", "stat", "show_error", "ping", "sleep", "--from", "--to", "--force",
            "--timeout", "--delay", "--loop", "-1", "--count", "0", "7", "4294967296", "brw", "read", "size=1M",
            "size=", "size=99999999M", "check=full", "off=8", "--distribute", "1:2", "--all", "--nodes", "c",
            "10.0.0.[1-4]@tcp", "*@tcp", "--remove", "--clean", "busy", "--test", "--session", "--duration",
        ]), 0..10)) {
        let _ = parse(&words.join(" "), &Defaults::default());
    }
}
