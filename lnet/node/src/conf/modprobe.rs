//! The lines of `/etc/modprobe.d/lustre.conf`: `options lnet networks="tcp(eth0)" accept=all`.
//!
//! A line that ends with a backslash continues on the next; lines that begin with `#` are comments.
//! Words in double quotes may contain blanks. Commands other than `options` load modules, and have
//! no effect here.

use super::doc::{LineError, limit};

/// The valid first words of a line.
pub(crate) const COMMANDS: [&str; 7] =
    ["options", "alias", "blacklist", "config", "install", "remove", "softdep"];

/// One `name=value` of one module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) line: usize,
    pub(crate) module: String,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Parses a text. The names of modules are those in memory, with `_` for `-`.
pub(crate) fn read(text: &str) -> Result<Vec<Assignment>, LineError> {
    limit(text)?;
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, first)) = lines.next() {
        let number = index + 1;
        if first.trim_start().starts_with('#') {
            continue;
        }
        let mut whole = first.to_string();
        while whole.ends_with('\\') {
            whole.pop();
            whole.push(' ');
            whole.push_str(lines.next().map_or("", |(_, next)| next));
        }
        line(&whole, number, &mut found)?;
    }
    Ok(found)
}

fn line(text: &str, number: usize, found: &mut Vec<Assignment>) -> Result<(), LineError> {
    let words = words(text, number)?;
    let mut words = words.into_iter();
    let Some(command) = words.next() else { return Ok(()) };
    if command != "options" {
        let known = COMMANDS.contains(&command.as_str());
        let reason = format!("no such command; a line begins with one of {}", COMMANDS.join(", "));
        return if known { Ok(()) } else { Err(LineError::new(number, command, reason)) };
    }
    let module = words
        .next()
        .ok_or_else(|| LineError::new(number, "options", "expected a module, for instance lnet"))?;
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| {
            LineError::new(number, &word, "expected name=value; put values with blanks in double quotes")
        })?;
        found.push(Assignment {
            line: number,
            module: module.replace('-', "_"),
            name: name.to_string(),
            value: value.to_string(),
        });
    }
    Ok(())
}

/// Splits a text at blanks, and removes the quotes.
fn words(text: &str, number: usize) -> Result<Vec<String>, LineError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for next in text.chars() {
        match next {
            '"' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            blank if blank.is_whitespace() && !quoted => words.extend(word.take()),
            next => word.get_or_insert_default().push(next),
        }
    }
    if quoted {
        return Err(LineError::new(number, word.unwrap_or_default(), "the closing quote is missing"));
    }
    words.extend(word);
    Ok(words)
}
