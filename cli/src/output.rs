//! Standard output that may be closed or full: a tool must report that, not panic.
//!
//! All output passes through here: names of files, interfaces and clients are foreign text, and
//! must not control a terminal. Code that prints foreign text within a line escapes it there as
//! well ([`lnet_nid::printable`]), because here the end of a line cannot be distinguished from a
//! line feed in a name.

use std::fmt::{self, Display, Write as _};
use std::io::{ErrorKind, Write, stdout};

use lnet_nid::is_printable;
use serde::Serialize;

use crate::failure::Failure;

/// Text of several lines, without control characters other than line feeds.
struct Lines<T>(T);

impl<T: Display> Display for Lines<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// A writer that escapes control characters.
struct Escaping<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl fmt::Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|letter| match letter {
            '\n' | '\t' => self.0.write_char(letter),
            letter if is_printable(letter) => self.0.write_char(letter),
            letter => write!(self.0, "{}", letter.escape_debug()),
        })
    }
}

/// Prints a line. If the reader has closed the pipe, the program ends quietly, as other tools do.
pub(crate) fn line(text: impl Display) -> Result<(), Failure> {
    let mut out = stdout().lock();
    match writeln!(out, "{}", Lines(text)).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::quiet()),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
    }
}

/// Prints one JSON value on one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(lnet_node::escaped(&serde_json::to_string(value)?))
}

/// Prints a line on standard error and ignores errors, which could not be reported anywhere.
pub(crate) fn print_error(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{}", Lines(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_lines_and_no_commands() {
        let shown = Lines("a\u{1b}[2J\n\tb\u{9b}0m\u{202e}\r").to_string();
        assert_eq!(shown, "a\\u{1b}[2J\n\tb\\u{9b}0m\\u{202e}\\r");
    }
}
