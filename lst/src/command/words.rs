//! Lines and words.

use super::CommandError;

/// Most bytes of a line. A list of 1,024 NIDs is shorter.
pub const LINE_MAX: usize = 64 << 10;

/// Splits a line into words.
///
/// Blanks separate words. Between `'` and `'` everything belongs to the word, between `"` and `"`
/// everything but `\`, which takes the next character as it is; so it does outside of quotations.
/// A `#` at the beginning of a word begins a comment.
///
/// # Errors
/// [`CommandError::Quote`] for a quotation without an end, [`CommandError::TooMany`] for a line of
/// more than [`LINE_MAX`] bytes.
pub fn split_words(line: &str) -> Result<Vec<String>, CommandError> {
    if line.len() > LINE_MAX {
        return Err(CommandError::TooMany { what: "bytes in a line", limit: LINE_MAX });
    }
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() || rest.starts_with('#') {
            return Ok(words);
        }
        let (word, behind) = first_word(rest)?;
        words.push(word);
        rest = behind;
    }
}

/// Returns the word at the beginning of a text, and the text behind it.
fn first_word(text: &str) -> Result<(String, &str), CommandError> {
    let mut word = String::new();
    let mut quote = None;
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match (letter, quote) {
            (_, Some((open, _))) if letter == open => quote = None,
            (_, Some(('\'', _))) => word.push(letter),
            ('\\', _) => word.extend(letters.next().map(|(_, letter)| letter)),
            (_, Some(_)) => word.push(letter),
            ('\'' | '"', None) => quote = Some((letter, at + 1)),
            (_, None) if letter.is_whitespace() => return Ok((word, &text[at..])),
            (_, None) => word.push(letter),
        }
    }
    match quote {
        Some((open, from)) => Err(CommandError::quote(open, &text[from..])),
        None => Ok((word, "")),
    }
}

/// Splits a script into lines, each with the number of its first line, from 1. A `\` at the end of
/// a line joins it with the next one.
pub fn script_lines(script: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let mut lines = script.lines().enumerate();
    std::iter::from_fn(move || {
        let (number, line) = lines.next()?;
        let mut joined = line.to_owned();
        while joined.ends_with('\\') {
            joined.pop();
            let Some((_, line)) = lines.next() else { break };
            joined.push(' ');
            joined.push_str(line);
        }
        Some((number + 1, joined))
    })
}
