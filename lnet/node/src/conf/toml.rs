//! Converts TOML into lists and maps of words.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::doc::{LineError, LocatedValue, MAX_DEPTH, MapEntry, Value, limit};

/// Parses a text in TOML.
pub(crate) fn read(text: &str) -> Result<LocatedValue, LineError> {
    limit(text)?;
    let lines = Lines::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.of(span));
        LineError::new(line, "TOML", error.message().lines().collect::<Vec<_>>().join("; "))
    })?;
    Ok(LocatedValue { line: 1, value: lines.map(table.get_ref(), 0)? })
}

/// The start of each line of a text.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Lines {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Lines(std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect())
    }

    fn of(&self, span: Range<usize>) -> usize {
        self.0.partition_point(|start| *start <= span.start)
    }

    /// Returns a table's entries, in the order of the text.
    fn map(&self, table: &DeTable<'_>, depth: usize) -> Result<Value, LineError> {
        let entry = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
            let line = self.of(key.span());
            if depth == MAX_DEPTH {
                let reason = format!("tables are nested more than {MAX_DEPTH} deep");
                return Err(LineError::new(line, &**key.get_ref(), reason));
            }
            let key = key.get_ref().to_string();
            let item = self.item(&key, value, depth + 1)?;
            Ok(MapEntry { line, item, key })
        };
        let mut entries: Vec<MapEntry> = table.iter().map(entry).collect::<Result<_, _>>()?;
        entries.sort_by_key(|entry| entry.line);
        Ok(Value::Map(entries))
    }

    fn item(&self, key: &str, value: &Spanned<DeValue<'_>>, depth: usize) -> Result<LocatedValue, LineError> {
        let line = self.of(value.span());
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Boolean(value) => Value::Text(value.to_string()),
            DeValue::Integer(number) => match number.radix() {
                10 => Value::Text(number.as_str().to_string()),
                16 => Value::Text(format!("0x{}", number.as_str())),
                _ => return Err(LineError::new(line, key, "a number must be decimal or hexadecimal")),
            },
            // A version must be in quotes: as numbers, 2.1 and 2.10 are equal, but they are
            // different versions.
            DeValue::Float(number) => {
                let reason = format!("a whole number must stand here, or a version in quotes: \"{number}\"");
                return Err(LineError::new(line, key, reason));
            }
            DeValue::Datetime(_) => return Err(LineError::new(line, key, "no tunable is a date or a time")),
            DeValue::Array(_) if depth == MAX_DEPTH => {
                let reason = format!("lists are nested more than {MAX_DEPTH} deep");
                return Err(LineError::new(line, key, reason));
            }
            DeValue::Array(values) => {
                let items = values.iter().map(|value| self.item(key, value, depth + 1));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => self.map(table, depth)?,
        };
        Ok(LocatedValue { line, value })
    }
}
