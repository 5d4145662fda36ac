//! `docs/traceability.md` is complete, and what it names is there.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The requirements: the card, and the five seed documents.
const REQUIREMENTS: [RangeInclusive<u32>; 6] = [1..=7, 101..=110, 201..=210, 301..=316, 401..=418, 501..=508];

/// The rows of the inventory of Motr's tests.
const INVENTORY: [RangeInclusive<u32>; 1] = [1..=246];

/// The weaknesses X1 to X15 of Motr's transport.
const WEAKNESSES: [RangeInclusive<u32>; 1] = [1..=15];

const STATES: [&str; 4] = ["built", "part", "missing", "not applicable"];

/// One row of a table.
struct Row {
    line: usize,
    /// `S`, `MT` or `X`.
    list: String,
    numbers: RangeInclusive<u32>,
    state: String,
    /// What the column of tests names.
    tests: String,
    /// What is missing or different.
    remarks: String,
}

#[test]
fn every_number_is_there_once() {
    for (list, ranges) in [("S", &REQUIREMENTS[..]), ("MT", &INVENTORY[..]), ("X", &WEAKNESSES[..])] {
        let mut times: BTreeMap<u32, u32> =
            ranges.iter().cloned().flatten().map(|number| (number, 0)).collect();
        for row in rows().iter().filter(|row| row.list == list) {
            for number in row.numbers.clone() {
                *times
                    .get_mut(&number)
                    .unwrap_or_else(|| panic!("line {}: there is no {list}-{number}", row.line)) += 1;
            }
        }
        let wrong: Vec<_> = times.into_iter().filter(|(_, times)| *times != 1).collect();
        assert!(wrong.is_empty(), "{list} numbers that are not there once, and how often: {wrong:?}");
    }
}

#[test]
fn every_row_has_a_state_and_what_is_built_has_a_test() {
    for row in rows() {
        assert!(STATES.contains(&row.state.as_str()), "line {}: the state {:?}", row.line, row.state);
        let tested = names(&row.tests).iter().any(|name| name.function.is_some());
        let needed = matches!(row.state.as_str(), "built" | "part");
        assert!(tested || !needed, "line {}: {} without a test", row.line, row.state);
        let explained = !row.remarks.is_empty() || row.state == "built";
        assert!(explained, "line {}: nothing says why it is {}", row.line, row.state);
    }
}

#[test]
fn every_file_and_test_named_is_there() {
    let mut files = HashMap::new();
    for (line, text) in (1..).zip(document().lines()) {
        for Name { file, function } in names(text) {
            let content = files.entry(file.clone()).or_insert_with(|| {
                std::fs::read_to_string(root().join(&file))
                    .unwrap_or_else(|error| panic!("line {line}: {file}: {error}"))
            });
            if let Some(function) = function {
                assert!(has_test(content, &function), "line {line}: {file} has no test {function}");
            }
        }
    }
}

/// Whether a source file has a test of this name: a function with `#[test]` among the attributes and comments above it.
fn has_test(source: &str, function: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let heads = (0..lines.len()).filter(|&at| lines[at].starts_with(&format!("fn {function}(")));
    let above = |at: usize| {
        lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"))
    };
    heads.into_iter().any(|at| above(at).any(|line| *line == "#[test]"))
}

fn document() -> String {
    let path = root().join("docs/traceability.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The rows of all tables: those whose first cell is a number or a range of numbers.
fn rows() -> Vec<Row> {
    let mut columns: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for (line, text) in (1..).zip(document().lines()) {
        let cells = cells(text);
        match cells.first().map(String::as_str) {
            None | Some("---") => {}
            Some("S" | "MT" | "X") => columns = cells,
            Some(_) => rows.push(row(line, &columns, &cells)),
        }
    }
    rows
}

/// The cells of a line of a table; none if it is no such line.
fn cells(text: &str) -> Vec<String> {
    let inner = text.trim().strip_prefix('|').and_then(|rest| rest.strip_suffix('|'));
    inner.map_or_else(Vec::new, |inner| inner.split('|').map(|cell| cell.trim().to_string()).collect())
}

fn row(line: usize, columns: &[String], cells: &[String]) -> Row {
    assert_eq!(cells.len(), columns.len(), "line {line}: cells");
    let cell = |column: &str| {
        let place = columns.iter().position(|name| name == column);
        cells[place.unwrap_or_else(|| panic!("line {line}: the table has no column {column:?}"))].clone()
    };
    Row {
        line,
        list: columns[0].clone(),
        numbers: numbers(&cells[0]).unwrap_or_else(|| panic!("line {line}: {:?} is no number", cells[0])),
        state: cell("state"),
        tests: cell("tested by"),
        remarks: cell("missing or different"),
    }
}

/// `7`, or `7–9`.
fn numbers(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('–').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some(first..=last)
}

/// A file, and a function in it if one is named.
struct Name {
    file: String,
    function: Option<String>,
}

/// What stands in backticks and names a file of the repository: `FILE`, `FILE::FUNCTION`, or `::FUNCTION` for the file
/// named last.
fn names(text: &str) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    for quoted in text.split('`').skip(1).step_by(2) {
        let (file, function) = match quoted.split_once("::") {
            Some((file, function)) => (file, Some(function.to_string())),
            None => (quoted, None),
        };
        let file = match file {
            "" => names.last().map(|name| name.file.clone()),
            file => Some(file.to_string()),
        };
        let file = file.unwrap_or_else(|| panic!("`{quoted}` follows no file"));
        if file.contains('/') && file.contains('.') {
            names.push(Name { file, function });
        }
    }
    names
}
