//! The symptoms of `docs/rdma.md` are messages of the program.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::Path;

const PAGE: &str = include_str!("../../docs/rdma.md");

/// The folders whose code contains the messages.
const SOURCES: [&str; 5] =
    ["lnet/lnd/src", "lnet/o2iblnd/src", "lnet/node/src", "lnet/ibverbs-sys/src", "cli/src"];

/// Collects all Rust code of a folder, with strings of several lines joined.
fn code(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            code(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let mut pieces = text.split("\\\n");
            into.push_str(pieces.next().unwrap_or_default());
            pieces.for_each(|piece| into.push_str(piece.trim_start()));
        }
    }
}

/// Returns each text that the first column of the table quotes as the program's own.
fn symptoms() -> Vec<&'static str> {
    let (_, table) = PAGE.split_once("| symptom |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let first = rows.map(|row| row.split(" | ").next().unwrap());
    first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn each_symptom_is_said_by_the_code() {
    let mut all = String::new();
    for folder in SOURCES {
        code(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder), &mut all);
    }
    // A system command, quoted beside those of nlx.
    let ours: Vec<&str> =
        symptoms().into_iter().filter(|symptom| !["ping", "nlx status"].contains(symptom)).collect();
    assert!(ours.len() > 30, "{ours:?}");
    for symptom in ours {
        // Placeholders for a value, or for all that may follow.
        for words in symptom.split('…') {
            assert!(
                all.contains(words.trim_matches(' ')),
                "nobody says '{words}', of the symptom '{symptom}'"
            );
        }
    }
}
