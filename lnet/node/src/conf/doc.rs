//! The content of a configuration text in any form: lists and maps of words, each with its line.

use std::path::Path;

use lnet_api::Errno;

use super::SourceLine;
use super::tunables::TunableRefusal;
use crate::NodeError;

/// The maximum length of a configuration, in bytes. An exported one of 16 interfaces with
/// statistics has some 50 KiB.
pub(crate) const MAX_CONFIG_BYTES: usize = 1 << 20;

/// The maximum nesting depth of lists and maps. The deepest key of `lnet.conf` is at 6.
pub(crate) const MAX_DEPTH: usize = 16;

/// A value with the line on which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocatedValue {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Nothing,
    Text(String),
    List(Vec<LocatedValue>),
    Map(Vec<MapEntry>),
}

/// A key of a map with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapEntry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) item: LocatedValue,
}

/// An error in a text, with the line on which it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineError {
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) reason: String,
    pub(crate) errno: Errno,
}

impl LineError {
    pub(crate) fn new(line: usize, key: impl Into<String>, reason: impl Into<String>) -> LineError {
        let (key, reason) = (shorten(key.into(), MAX_WORD_CHARS), shorten(reason.into(), MAX_REASON_CHARS));
        LineError { line, key, reason, errno: Errno::EINVAL }
    }

    /// Returns the error for a value that a tunable refuses.
    pub(crate) fn refused(line: usize, key: &str, refusal: TunableRefusal) -> LineError {
        LineError { errno: refusal.errno, ..LineError::new(line, key, refusal.reason) }
    }

    /// Converts the error for the user, with the file from which the text came.
    pub(crate) fn of(self, file: Option<&Path>) -> NodeError {
        let at = SourceLine { file: file.map(Path::to_path_buf), line: self.line };
        NodeError::Config { at, key: self.key, reason: self.reason, errno: self.errno }
    }
}

/// The maximum length of a word in an error; longer words of a hostile file are truncated.
pub(crate) const MAX_WORD_CHARS: usize = 80;
/// The maximum length of a reason: the longest ones list the names of all tunables.
const MAX_REASON_CHARS: usize = 2000;

pub(crate) fn shorten(text: String, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

impl MapEntry {
    pub(crate) fn fault(&self, reason: impl Into<String>) -> LineError {
        LineError::new(self.line, &self.key, reason)
    }

    /// Returns the entry's single word; an error if it has none or several.
    pub(crate) fn text(&self) -> Result<&str, LineError> {
        match &self.item.value {
            Value::Text(text) => Ok(text),
            Value::Nothing => Err(self.fault("a value is missing")),
            Value::List(_) | Value::Map(_) => Err(self.fault("expected one value, not several")),
        }
    }

    /// Returns the entry's map; an entry without a value is an empty map.
    pub(crate) fn map(&self) -> Result<&[MapEntry], LineError> {
        self.item.map().ok_or_else(|| self.fault("expected 'name: value' lines below it"))
    }

    /// Returns the entry's list. A single value is a list of one, and no value an empty list.
    pub(crate) fn items(&self) -> &[LocatedValue] {
        match &self.item.value {
            Value::List(items) => items,
            Value::Nothing => &[],
            Value::Text(_) | Value::Map(_) => std::slice::from_ref(&self.item),
        }
    }

    /// Returns the words of a list, of a map with arbitrary keys (`0: eth0`), or of a single word.
    pub(crate) fn words(&self) -> Result<Vec<(usize, &str)>, LineError> {
        let items: Vec<&LocatedValue> = match &self.item.value {
            Value::Map(entries) => entries.iter().map(|entry| &entry.item).collect(),
            _ => self.items().iter().collect(),
        };
        let word = |item: &'_ LocatedValue| match &item.value {
            Value::Text(_) => Ok(()),
            _ => Err(LineError::new(item.line, &self.key, "expected words")),
        };
        items.iter().try_for_each(|item| word(item))?;
        Ok(items.into_iter().filter_map(|item| Some((item.line, item.text()?))).collect())
    }
}

impl LocatedValue {
    pub(crate) fn map(&self) -> Option<&[MapEntry]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Nothing => Some(&[]),
            Value::Text(_) | Value::List(_) => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Fails if a text is longer than [`MAX_CONFIG_BYTES`].
pub(crate) fn limit(text: &str) -> Result<(), LineError> {
    if text.len() <= MAX_CONFIG_BYTES {
        return Ok(());
    }
    let reason = format!("{} bytes: at most {MAX_CONFIG_BYTES} are read", text.len());
    Err(LineError::new(1, "configuration", reason))
}

/// Returns the line of a byte of the text, counted from 1.
pub(crate) fn line_of(text: &str, byte: usize) -> usize {
    let before = &text.as_bytes()[..byte.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}
