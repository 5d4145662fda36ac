//! Errors of the command language.

use lnet_nid::{NidError, printable};
use thiserror::Error;

/// The reason why a line is no command. It names the word that is wrong, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// A word is wrong.
    #[error("\"{}\" is not {expected}", printable(word))]
    Word {
        /// The word, or its first [`CommandError::WORD_MAX`] characters.
        word: String,
        /// What was expected in its place.
        expected: String,
    },
    /// A word is missing.
    #[error("{expected} is missing")]
    Missing {
        /// What was expected.
        expected: String,
    },
    /// A quotation has no end.
    #[error("no {quote} ends the text after {quote}{}", printable(text))]
    Quote {
        /// The quotation mark.
        quote: char,
        /// What follows it, or its first [`CommandError::WORD_MAX`] characters.
        text: String,
    },
    /// A list of nodes is wrong.
    #[error(transparent)]
    Nodes(#[from] NidError),
    /// A line is too long, or there are too many of something.
    #[error("more than {limit} {what}")]
    TooMany {
        /// The kind of things, in the plural: nodes, bytes.
        what: &'static str,
        /// The maximum number of them.
        limit: usize,
    },
}

impl CommandError {
    /// Most characters of a word that an error shows.
    pub const WORD_MAX: usize = 64;

    pub(super) fn word(word: &str, expected: impl Into<String>) -> CommandError {
        CommandError::Word { word: shortened(word), expected: expected.into() }
    }

    pub(super) fn missing(expected: impl Into<String>) -> CommandError {
        CommandError::Missing { expected: expected.into() }
    }

    pub(super) fn quote(quote: char, text: &str) -> CommandError {
        CommandError::Quote { quote, text: shortened(text) }
    }
}

fn shortened(word: &str) -> String {
    word.chars().take(CommandError::WORD_MAX).collect()
}
