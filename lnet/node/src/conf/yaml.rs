//! A subset of YAML: maps, lists and words, as in the output of `lnetctl export` and in files
//! written by hand. Anchors, aliases and tags are refused: they are not needed here, and nested
//! aliases can expand without limit.

use std::collections::HashSet;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

use super::doc::{LineError, LocatedValue, MAX_DEPTH, MapEntry, Value, limit};

/// Reads one document; [`Value::Nothing`] if the text has none.
pub(crate) fn read(text: &str) -> Result<LocatedValue, LineError> {
    limit(text)?;
    Builder::default().read(text)
}

/// A list or map whose end has not been read.
enum Open {
    List(Vec<LocatedValue>),
    Map {
        entries: Vec<MapEntry>,
        /// The keys parsed so far, to find duplicates fast in maps of any length.
        seen: HashSet<String>,
        /// The key whose value comes next.
        key: Option<(String, usize)>,
    },
}

#[derive(Default)]
struct Builder {
    open: Vec<(usize, Open)>,
    whole: Option<LocatedValue>,
}

impl Builder {
    fn read(mut self, text: &str) -> Result<LocatedValue, LineError> {
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| syntax(&error))?;
            self.take(event, span.start.line())?;
        }
        Ok(self.whole.unwrap_or(LocatedValue { line: 1, value: Value::Nothing }))
    }

    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), LineError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.plain(line, anchor, tag.is_some())?;
                let nothing = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let text = text.into_owned();
                self.place(line, if nothing { Value::Nothing } else { Value::Text(text) })
            }
            Event::SequenceStart(anchor, tag) => {
                self.plain(line, anchor, tag.is_some())?;
                self.open(line, Open::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.plain(line, anchor, tag.is_some())?;
                self.open(line, Open::Map { entries: Vec::new(), seen: HashSet::new(), key: None })
            }
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some((line, Open::List(items))) => self.place(line, Value::List(items)),
                Some((line, Open::Map { entries, .. })) => self.place(line, Value::Map(entries)),
                None => Ok(()),
            },
            Event::Alias(_) => Err(LineError::new(line, "*", "aliases are not read: write the value itself")),
            Event::DocumentStart(_) if self.whole.is_some() => {
                Err(LineError::new(line, "---", "a second document: one file holds one configuration"))
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    /// Refuses anchors and tags.
    fn plain(&self, line: usize, anchor: usize, tag: bool) -> Result<(), LineError> {
        match () {
            () if anchor != 0 => {
                Err(LineError::new(line, "&", "anchors are not read: write the value itself"))
            }
            () if tag => Err(LineError::new(line, "!", "tags are not read: write the value alone")),
            () => Ok(()),
        }
    }

    fn open(&mut self, line: usize, open: Open) -> Result<(), LineError> {
        if let Some((_, Open::Map { key: None, .. })) = self.open.last() {
            return Err(LineError::new(line, "?", "a key must be a word"));
        }
        if self.open.len() == MAX_DEPTH {
            let reason = format!("lists and maps are nested more than {MAX_DEPTH} deep");
            return Err(LineError::new(line, self.key(), reason));
        }
        self.open.push((line, open));
        Ok(())
    }

    /// Returns the key that is being parsed, for errors.
    fn key(&self) -> String {
        let key = self.open.iter().rev().find_map(|(_, open)| match open {
            Open::Map { key: Some((key, _)), .. } => Some(key.clone()),
            _ => None,
        });
        key.unwrap_or_else(|| "YAML".into())
    }

    /// Adds a complete value to the list or map that is open, as an item, a key or the value of the
    /// key; without one the value is the whole document.
    fn place(&mut self, line: usize, value: Value) -> Result<(), LineError> {
        match self.open.last_mut() {
            None => self.whole = Some(LocatedValue { line, value }),
            Some((_, Open::List(items))) => items.push(LocatedValue { line, value }),
            Some((_, Open::Map { entries, seen, key })) => match key.take() {
                Some((key, at)) => {
                    entries.push(MapEntry { key, line: at, item: LocatedValue { line, value } })
                }
                None => {
                    let Value::Text(word) = value else {
                        return Err(LineError::new(line, "?", "a key must be a word"));
                    };
                    if !seen.insert(word.clone()) {
                        return Err(LineError::new(line, word, "the key occurs a second time"));
                    }
                    *key = Some((word, line));
                }
            },
        }
        Ok(())
    }
}

fn syntax(error: &ScanError) -> LineError {
    let marker = error.marker();
    LineError::new(marker.line(), "YAML", format!("column {}: {}", marker.col() + 1, error.info()))
}
