//! Reads the tests and their marks from the sources.

use std::collections::{BTreeMap, BTreeSet};

use crate::Files;

const MARK: &str = "// Covers: ";

/// A test function: its file and its name.
pub(crate) type Test<'a> = (&'a str, &'a str);

/// The tests of a checkout.
#[derive(Default)]
pub(crate) struct Tests<'a> {
    /// Every test, marked or not.
    pub(crate) all: BTreeSet<Test<'a>>,
    /// The tests of each number that a mark lists, such as `MT-12`.
    pub(crate) covering: BTreeMap<&'a str, BTreeSet<Test<'a>>>,
}

impl<'a> Tests<'a> {
    /// Reads all Rust sources. Wrong marks are added to `errors`.
    pub(crate) fn read(files: &'a Files, numbers: &BTreeSet<String>, errors: &mut Vec<String>) -> Self {
        let mut tests = Self::default();
        for (file, source) in files.iter().filter(|(file, _)| file.ends_with(".rs")) {
            tests.read_file(file, source, numbers, errors);
        }
        tests
    }

    fn read_file(
        &mut self,
        file: &'a str,
        source: &'a str,
        numbers: &BTreeSet<String>,
        errors: &mut Vec<String>,
    ) {
        // The marks among the comments and attributes above the current line, and whether `#[test]`
        // is there.
        let mut marks = Vec::new();
        let mut is_test = false;
        for (line, text) in (1..).zip(source.lines().map(str::trim).chain([""])) {
            if is_mark(text) {
                marks.push((line, text));
            } else if text == "#[test]" || text.starts_with("#[tokio::test") {
                is_test = true;
            } else if !text.starts_with("//") && !text.starts_with("#[") {
                let test = is_test.then(|| function(text)).flatten().map(|name| (file, name));
                self.all.extend(test);
                for (line, mark) in marks.drain(..) {
                    if let Err(error) = self.add(test, mark, numbers) {
                        errors.push(format!("{file}:{line}: {error}"));
                    }
                }
                is_test = false;
            }
        }
    }

    fn add(
        &mut self,
        test: Option<Test<'a>>,
        mark: &'a str,
        numbers: &BTreeSet<String>,
    ) -> Result<(), String> {
        let test = test.ok_or("a mark belongs directly above a test")?;
        let list =
            mark.strip_prefix(MARK).ok_or_else(|| format!("a mark has the form `{MARK}S-203, MT-12`"))?;
        for number in list.split(", ") {
            if !numbers.contains(number) {
                return Err(format!("there is no row {number:?}"));
            }
            self.covering.entry(number).or_default().insert(test);
        }
        Ok(())
    }
}

/// Returns whether a line is a mark, well-formed or not.
fn is_mark(text: &str) -> bool {
    let comment = text.strip_prefix("//").unwrap_or("").trim_start_matches(['/', '!']).trim_start();
    comment.to_ascii_lowercase().starts_with("covers:")
}

/// Returns the name of the function that a line declares.
fn function(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("fn ")?;
    rest.split_once(['(', '<']).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: &str) -> (Vec<String>, Vec<String>) {
        let files = Files::from([("a.rs".to_owned(), source.to_owned())]);
        let numbers = ["S-1", "MT-2", "X-3"].map(str::to_owned).into();
        let mut errors = Vec::new();
        let tests = Tests::read(&files, &numbers, &mut errors);
        let pairs = tests.covering.iter().flat_map(|(number, tests)| {
            tests.iter().map(move |(file, name)| format!("{number} {file} {name}"))
        });
        (pairs.collect(), errors)
    }

    #[test]
    fn marks_belong_to_the_next_test() {
        let source = [
            "/// One.\n// Covers: S-1, X-3\n// Covers: MT-2\n#[test]\n#[ignore = \"x\"]\nfn one() {}",
            "#[test]\nfn none() {}",
            "proptest! {\n    #[test]\n    // Covers: S-1\n    fn two(a: u8) {}\n}",
            "// Covers: S-1\n#[tokio::test(flavor = \"x\")]\nasync fn three() {}",
        ]
        .join("\n");
        let pairs = ["MT-2 a.rs one", "S-1 a.rs one", "S-1 a.rs three", "S-1 a.rs two", "X-3 a.rs one"];
        assert_eq!(read(&source), (pairs.map(str::to_owned).into(), vec![]));
    }

    #[test]
    fn wrong_marks_are_errors() {
        let form = "a mark has the form `// Covers: S-203, MT-12`";
        let place = "a mark belongs directly above a test";
        for (mark, rest, error) in [
            ("// Covers: S-1", "fn no_test() {}", place),
            ("// Covers: S-1", "#[test]\n\nfn too_far_away() {}", place),
            ("// Covers: S-1", "#[test]", place),
            ("// Covers: S-1", "", place),
            ("/// Covers: S-1", "#[test]\nfn a() {}", form),
            ("// covers: S-1", "#[test]\nfn a() {}", form),
            ("//Covers: S-1", "#[test]\nfn a() {}", form),
            ("// Covers:", "#[test]\nfn a() {}", form),
            ("// Covers: S-4", "#[test]\nfn a() {}", "there is no row \"S-4\""),
            ("// Covers: S-1 MT-2", "#[test]\nfn a() {}", "there is no row \"S-1 MT-2\""),
            ("// Covers: S-1.", "#[test]\nfn a() {}", "there is no row \"S-1.\""),
        ] {
            let (pairs, errors) = read(&format!("\n{mark}\n{rest}"));
            assert_eq!((pairs, errors), (vec![], vec![format!("a.rs:2: {error}")]), "{mark} {rest}");
        }
    }
}
