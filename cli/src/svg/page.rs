//! The parts that all pages share: style, header, cards, sections, tables, facts, and text escaped
//! for a browser.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::SystemTime;

use crate::failure::{Context, Failure};
use crate::machine::Machine;
use crate::tables::Grid;
use crate::units::{in_bytes, in_iso};

/// The style of pages, light and dark, for phones and paper.
const STYLE: &str = include_str!("style.css");

/// Returns a page that loads nothing; `style` has the rules of this page alone.
pub(crate) fn document(title: impl Display, style: &str, class: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n\
         <body class=\"{class}\">\n{body}</body>\n</html>\n"
    )
}

/// Returns a section with its title and a text beside it.
pub(crate) fn section(title: &str, words: &str, body: &str) -> String {
    let (title, words) = (escaped(title), escaped(words));
    let words = if words.is_empty() { words } else { format!("<p>{words}</p>") };
    format!("<section>\n<div class=\"head\"><h2>{title}</h2>{words}</div>\n{body}</section>\n")
}

/// The head of a page of results.
pub(crate) struct Header<'a> {
    /// The command line that made the page.
    pub(crate) command: &'a str,
    pub(crate) started: SystemTime,
    /// The result in a sentence.
    pub(crate) headline: &'a str,
    /// What was done, and what happened.
    pub(crate) lines: &'a [String],
    pub(crate) errors: &'a [String],
}

impl Header<'_> {
    pub(crate) fn html(&self) -> String {
        let Header { command, started, headline, lines, errors } = self;
        let when = in_iso(*started).replace('T', " ").replace('Z', " UTC");
        let lines: String = lines.iter().map(|line| format!("<p>{}</p>\n", escaped(line))).collect();
        let errors: String =
            errors.iter().map(|error| format!("<p class=\"wrong\">{}</p>\n", escaped(error))).collect();
        let headline = escaped(headline);
        format!("<header>\n<p>{command}, {when}</p>\n<h1>{headline}</h1>\n{lines}{errors}</header>\n")
    }
}

/// A number in large type.
pub(crate) struct Card {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) unit: String,
}

/// Returns the main numbers of a page.
pub(crate) fn cards(cards: impl Iterator<Item = Card>) -> String {
    let card = |Card { name, value, unit }: Card| {
        let [name, value, unit] = [name, value, unit].map(escaped);
        format!("<div><dt>{name}</dt><dd>{value} <small>{unit}</small></dd></div>\n")
    };
    format!("<dl class=\"cards\">\n{}</dl>\n", cards.map(card).collect::<String>())
}

/// Returns two pictures or tables side by side, each with its title.
pub(crate) fn pair(pictures: [(String, String); 2]) -> String {
    let figure = |(title, picture)| format!("<figure><h3>{}</h3>{picture}</figure>\n", escaped(title));
    format!("<div class=\"pair\">\n{}</div>\n", pictures.map(figure).concat())
}

/// Returns a table. In its columns of errors every number but 0 is marked.
pub(crate) fn table(grid: &Grid) -> String {
    let cell = |element: &str, (at, text): (usize, &str)| {
        let wrong = element == "td" && grid.header[at].ends_with("errors") && text != "0";
        let class = match (at >= grid.words, wrong) {
            (true, true) => " class=\"number wrong\"",
            (true, false) => " class=\"number\"",
            (false, _) => "",
        };
        format!("<{element}{class}>{}</{element}>", escaped(text))
    };
    let head: String = grid.header.iter().copied().enumerate().map(|named| cell("th", named)).collect();
    let row = |row: &Vec<String>| {
        let cells = row.iter().map(String::as_str).enumerate().map(|text| cell("td", text));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = grid.rows.iter().map(row).collect();
    format!("<div class=\"wide\"><table>\n<tr>{head}</tr>\n{rows}</table></div>\n")
}

/// Returns the section about the machine, the settings, and the command that runs the test again.
pub(crate) fn facts(machine: &Machine, settings: &[(&str, String)], command: &str) -> String {
    let memory = if machine.memory_bytes == 0 { "unknown".into() } else { in_bytes(machine.memory_bytes) };
    let fact = |name: &str, value: &str| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escaped(name), escaped(value))
    };
    let mut facts = [
        fact("host", &machine.host),
        fact("system", &machine.system),
        fact("processor", &format!("{} × {}", machine.cpus, machine.processor)),
        fact("memory", &memory),
    ]
    .concat();
    settings.iter().for_each(|(name, value)| facts.push_str(&fact(name, value)));
    facts.push_str(&fact("made by", concat!("nlx ", env!("CARGO_PKG_VERSION"))));
    let command = escaped(command);
    section(
        "How it was run",
        "",
        &format!("<dl class=\"facts\">\n{facts}</dl>\n<pre><code>{command}</code></pre>\n"),
    )
}

/// Returns a command line for a shell.
pub(crate) fn command_line<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:@=,".contains(letter);
    let quoted = |word: T| match word.as_ref() {
        word if !word.is_empty() && word.chars().all(plain) => word.to_string(),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Writes a page to a file.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(page: &str, path: &Path) -> Result<(), Failure> {
    fs::write(path, page).context(&refused(path))
}

/// Checks that a page can be written, before a long test runs in vain. The content of the file
/// stays until then.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn reserve(path: &Path) -> Result<(), Failure> {
    OpenOptions::new().append(true).create(true).open(path).map(drop).context(&refused(path))
}

fn refused(path: &Path) -> String {
    format!("cannot write the report to {}", path.display())
}

/// Escapes text for an element and for an attribute in double quotes. Characters that XML forbids
/// are left out.
pub(crate) fn escaped(value: impl Display) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            letter if letter.is_control() && !letter.is_whitespace() => {}
            letter => out.push(letter),
        }
    }
    out
}

/// Checks that each element of a page is closed, in order; returns the names of all.
#[cfg(test)]
pub(crate) fn elements(page: &str) -> Vec<String> {
    const VOID: [&str; 3] = ["meta", "line", "rect"];
    let (mut open, mut all) = (Vec::new(), Vec::new());
    let body = page.split_once("<html").expect("a page").1;
    for part in body.split('<').skip(1) {
        let (tag, _) = part.split_once('>').unwrap_or_else(|| panic!("'<{part}' has no end"));
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), (name != "html").then_some(name), "a wrong end");
        } else if !tag.ends_with('/') && !(VOID[..1].contains(&name.as_str())) {
            open.push(name.clone());
            all.push(name);
        } else {
            all.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} has no end");
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        let words = ["tcp", "drop 1/100 put", "it's", ""];
        assert_eq!(command_line(words), r"tcp 'drop 1/100 put' 'it'\''s' ''");
    }

    #[test]
    fn a_page_is_written_to_a_file_or_the_failure_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        write("page", &path).unwrap();
        reserve(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "page", "an earlier report is still there");
        let nowhere = folder.path().join("no/where.html");
        for failure in [write("page", &nowhere), reserve(&nowhere)].map(Result::unwrap_err) {
            assert!(failure.to_string().contains("no/where.html"));
        }
    }

    #[test]
    fn nothing_gets_out_of_a_text_or_an_attribute() {
        let hostile = "<script>\"'&\u{1b}\u{0}</script>";
        assert_eq!(escaped(hostile), "&lt;script&gt;&quot;&#39;&amp;&lt;/script&gt;");
    }
}
