//! Foreign text for output: names of files, interfaces and clients, keys and values of
//! configurations.

use std::fmt::{self, Write};

/// A text that prints without control characters; see [`printable`].
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(&'a str);

/// Prints a foreign text so that it cannot control a terminal, forge a line of a log or reorder the
/// text around it: each character that is not [`is_printable`] prints as its Rust escape, `\u{9b}`
/// for instance.
///
/// ```
/// use lnet_nid::printable;
///
/// assert_eq!(printable("eth0\u{9b}2J\n").to_string(), r"eth0\u{9b}2J\n");
/// ```
#[must_use]
pub fn printable(text: &str) -> Printable<'_> {
    Printable(text)
}

/// Returns whether a character has no effect except its own appearance. Not printable: control
/// characters (U+0000–U+001F, U+007F–U+009F), line and paragraph separators, and format characters,
/// among them those that change the direction of text (U+202A–U+202E, U+2066–U+2069).
#[must_use]
pub fn is_printable(letter: char) -> bool {
    match letter {
        '\'' | '"' | '\\' => true,
        '\u{2028}' | '\u{2029}' => false,
        // A blank of any width is printable.
        _ if letter.is_whitespace() => !letter.is_control(),
        _ => letter.escape_debug().len() == 1,
    }
}

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match is_printable(letter) {
            true => f.write_char(letter),
            false => write!(f, "{}", letter.escape_debug()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_commands() {
        assert_eq!(printable("a 'word'\u{1b}[2J\n\u{202e}").to_string(), "a 'word'\\u{1b}[2J\\n\\u{202e}");
        assert_eq!(printable("C:\\grün – 10\u{202f}000 µs …").to_string(), "C:\\grün – 10\u{202f}000 µs …");
    }

    #[test]
    fn what_does_more_than_show_itself_is_not_printable() {
        let ranges = [
            ('\u{0}'..='\u{1f}'),
            ('\u{7f}'..='\u{9f}'),
            ('\u{200b}'..='\u{200f}'),
            ('\u{2028}'..='\u{202e}'),
            ('\u{2066}'..='\u{2069}'),
            ('\u{61c}'..='\u{61c}'),
            ('\u{feff}'..='\u{feff}'),
        ];
        for letter in ranges.into_iter().flatten() {
            assert!(!is_printable(letter), "{}", letter.escape_unicode());
            let shown = printable(letter.encode_utf8(&mut [0; 4])).to_string();
            assert!(shown.starts_with('\\') && shown.is_ascii(), "{shown}");
        }
        assert!((' '..='~').all(is_printable));
    }
}
