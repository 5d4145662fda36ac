//! Generates `docs/traceability.md` from `docs/requirements.md` and the marks in the tests.
//!
//! A mark is a comment above a test. It lists the rows of `docs/requirements.md` that the test
//! shows:
//!
//! ```text
//! // Covers: S-203, MT-12
//! #[test]
//! ```
//!
//! A list that is too long for one line continues in a second mark. All other columns are written
//! by hand in `docs/requirements.md`; the page adds the column "tested by".

#![forbid(unsafe_code)]

mod marks;
mod page;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::{fs, io};

/// The generated page.
const PAGE: &str = "docs/traceability.md";

/// The files of a checkout by path. The text of files that are not needed is empty.
type Files = BTreeMap<String, String>;

fn main() -> ExitCode {
    let written = files(root())
        .map_err(|error| vec![error.to_string()])
        .and_then(|files| page::generate(&files))
        .and_then(|page| {
            fs::write(root().join(PAGE), page).map_err(|error| vec![format!("{PAGE}: {error}")])
        });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(errors) => {
            eprintln!("{PAGE} was not written:\n{}", errors.join("\n"));
            ExitCode::FAILURE
        }
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Reads the Rust sources and the Markdown files below a folder, except those of git and cargo.
fn files(root: &Path) -> io::Result<Files> {
    let mut files = Files::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = format!("{folder}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                if ![".git", "target"].contains(&path.as_str()) {
                    folders.push(path + "/");
                }
            } else {
                let wanted = path.ends_with(".rs") || path.ends_with(".md");
                let text = if wanted { fs::read_to_string(entry.path())? } else { String::new() };
                files.insert(path, text);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_up_to_date() {
        let files = files(root()).unwrap();
        let page = page::generate(&files).unwrap_or_else(|errors| panic!("{}", errors.join("\n")));
        assert!(page == files[PAGE], "{PAGE} is out of date: run `cargo run -p nlx-traceability`");
    }
}
